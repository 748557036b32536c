"""What a name looks like: two names that a reader cannot tell apart have the same skeleton. Pure.

After Unicode Technical Standard 39 (section 4, confusable detection), with a table of the letters that names of tools
are likely to be imitated with: Cyrillic, Greek and Armenian letters, digits, and pairs such as “rn”.
"""

from __future__ import annotations

import re
import unicodedata

from mcpservers.visible import visible

LIMIT = 200  # characters of a skeleton
_ALIKE = {  # the small letters of Cyrillic, Greek and Armenian, and Latin ones that NFKD leaves alone
    "a": "аαɑ",
    "b": "вьβ",
    "c": "сϲ",
    "d": "ԁđ",
    "e": "еёѐҽεе",
    "g": "ɡցց",
    "h": "нһհħ",
    "i": "іїιı",
    "j": "јյ",
    "k": "кκ",
    "l": "ӏł",
    "m": "м",
    "n": "νηոπ",
    "o": "оοσօø",
    "p": "рρ",
    "q": "ԛք",
    "r": "г",
    "s": "ѕ",
    "t": "тτŧ",
    "u": "υսʋ",
    "w": "ԝωա",
    "x": "хχ",
    "y": "уγү",
}
_FOREIGN = str.maketrans(
    {letter: latin for latin, letters in _ALIKE.items() for letter in letters}
    | {
        letter.upper(): latin.upper()
        for latin, letters in _ALIKE.items()
        for letter in letters
        if len(letter.upper()) == 1
    }
    | {"İ": "I", "ſ": "s"}
)
_PAIRS = (("rn", "m"), ("vv", "w"), ("cl", "d"))
_DIGITS = str.maketrans("01i|!", "ollll")
_SEPARATORS = re.compile(r"[\W_]+")
_WRITTEN = re.compile(r"[ _./:-]+")


def skeleton(text: str) -> str:
    """What is left of `text` when case, accents, separators and what merely looks different are taken away.

    At most `LIMIT` characters; two texts are confusable if their skeletons are equal and not empty.
    """
    plain = folded(text).casefold()
    plain = "".join(c for c in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(c))
    plain = _SEPARATORS.sub("", plain.translate(_FOREIGN).translate(_DIGITS))
    for pair, single in _PAIRS:
        plain = plain.replace(pair, single)
    return plain[:LIMIT]


def folded(text: str) -> str:
    """`text` as it looks: nothing invisible, compatibility forms as plain ones (NFKC), foreign look-alikes as Latin.

    Words that hold no Latin letter are left as they are: they are words of another script.
    """
    text = unicodedata.normalize("NFKC", visible(text))
    if text.isascii():
        return text
    return re.sub(r"\w+", lambda word: _latin(word[0]), text)


def _latin(word: str) -> str:
    return word.translate(_FOREIGN) if re.search("[A-Za-z]", word) else word


def same_but_for_writing(one: str, other: str) -> bool:
    """Whether two names differ in case and separators alone, which is no imitation: `searchIssues`, `search_issues`."""
    return _WRITTEN.sub("", one).casefold() == _WRITTEN.sub("", other).casefold()


def mixed_scripts(text: str) -> tuple[str, ...]:
    """The scripts of `text`, if one word of it mixes Latin with letters that are made to look so; else empty."""
    for word in re.findall(r"[^\W\d_]+", text):
        scripts = {unicodedata.name(letter, "UNKNOWN").partition(" ")[0] for letter in word if letter.isalpha()}
        imitating = scripts & {"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"}
        if "LATIN" in scripts and imitating:
            return ("Latin", *sorted(script.capitalize() for script in imitating))
    return ()
