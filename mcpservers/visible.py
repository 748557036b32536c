"""Text of servers without what an eye cannot see: hidden instructions, reversed words, terminal escapes."""

from __future__ import annotations

import re
import unicodedata

from chatui.text import clean

# CSI and OSC sequences (ECMA-48 5.4, 8.3.89), and any other escape with its one final character.
_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|\x1b.?", re.DOTALL
)
_OF_ESCAPES = "\x07\x1b\x9b\x9c\x9d"
_KEPT_CONTROLS = "\t\n"
# Format characters (Cf) that are drawn: Arabic number signs, Kaithi number signs, Egyptian joiners and the like.
_DRAWN = re.compile("[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd]")
# Not Cf, and yet nothing is drawn: fillers, the grapheme joiner, Khmer inherent vowels, selectors beyond emoji's two.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0d\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
# Joiners carry meaning within Arabic and Indic words and in emoji: there, and only one at a time, they stay.
_SCRIPT = "[\u0600-\u06ff\u0750-\u077f\u0900-\u0dff\u0f00-\u109f\u1780-\u17ff]"
_JOINER = re.compile(
    f"(?<={_SCRIPT})[\u200c\u200d](?={_SCRIPT})|(?<=[\u2600-\u27bf\ufe0f\U0001f000-\U0001faff])\u200d(?=[\u2600-\u27bf\U0001f000-\U0001faff])"
)
_SELECTOR = re.compile("(?<=[^\\s\ufe0e\ufe0f])[\ufe0e\ufe0f]")


def visible(text: str) -> str:
    """`text` without ANSI escapes, control characters (but tab and newline), bidi controls and invisible Unicode.

    What a reader would see stays the same. `visible(visible(x)) == visible(x)`; `visible(x) != x` is worth a warning.
    """
    if text.isascii() and text.isprintable():
        return text
    text = clean(text).replace("\r\n", "\n").replace("\r", "\n")
    shown = _shown(_ANSI.sub("", _shown(text, _OF_ESCAPES)))  # an escape may itself be broken up by hidden characters
    return shown if shown == text else visible(shown)


def _shown(text: str, kept: str = "") -> str:
    places = {match.start() for pattern in (_JOINER, _SELECTOR) for match in pattern.finditer(text)}
    return "".join(
        character for at, character in enumerate(text) if character in kept or at in places or _is_shown(character)
    )


def _is_shown(character: str) -> bool:
    if character in "\ufe0e\ufe0f" or _BLANK.match(character):
        return False
    match unicodedata.category(character):
        case "Cc":
            return character in _KEPT_CONTROLS
        case "Cf":
            return _DRAWN.match(character) is not None
        case _:
            return True


def is_visible(text: str) -> bool:
    """Whether nothing in `text` is hidden. Line ends of any kind do not count as hidden."""
    unified = text.replace("\r\n", "\n").replace("\r", "\n")
    return visible(unified) == unified


def revealed(text: str) -> str:
    """`text` with everything that `visible` would take away written out, as `⟨U+200B⟩`: for who must see it all."""
    unified = text.replace("\r\n", "\n").replace("\r", "\n")
    if is_visible(unified):
        return unified
    places = {match.start() for pattern in (_JOINER, _SELECTOR) for match in pattern.finditer(unified)}
    return "".join(
        character if at in places or _is_shown(character) else f"⟨U+{ord(character):04X}⟩"
        for at, character in enumerate(unified)
    )
