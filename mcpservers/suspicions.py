"""What is suspicious about a tool's definition: text that nobody sees, or that speaks past the reader to the model.

Heuristics: they flag with an excerpt, they take nothing away, and an admin decides. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from mcpservers.confusables import folded, mixed_scripts
from mcpservers.visible import is_visible, revealed

EXCERPT = 160  # characters
LONGEST = 200_000  # characters of one definition that are looked through
MOST = 20  # flags of one definition


class Kind(StrEnum):
    """What a flag is about."""

    INVISIBLE = "invisible"
    BIDIRECTIONAL = "bidirectional"
    INSTRUCTION = "instruction"
    HIDDEN = "hidden"
    ENCODED = "encoded"
    MIXED_SCRIPTS = "mixed-scripts"
    MENTIONS = "mentions"
    LOOKALIKE = "lookalike"
    SAME_NAME = "same-name"
    RENAMED = "renamed"
    TOO_LONG = "too-long"


@dataclass(frozen=True, slots=True)
class Flag:
    """One suspicion. `message` is for an admin; `excerpt` shows what is meant, with hidden characters written out.

    A `severe` one keeps a new tool from being accepted without an admin.
    """

    kind: Kind
    message: str
    excerpt: str = ""
    severe: bool = True

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_UNPLAIN = re.compile(r"[^\t\n\r\x20-\x7e]")
_TAGS = re.compile("[\U000e0000-\U000e007f]{2,}")

# Each is looked for in text as it looks (see `confusables.folded`). None repeats within a repetition.
_INSTRUCTIONS: tuple[tuple[str, str], ...] = (
    (
        r"\b(?:ignore|disregard|forget|override|bypass)\b[^.\n]{0,40}\b(?:previous|prior|above|earlier|preceding|other|all|any"
        r"|system|safety)\b[^.\n]{0,40}\b(?:instruction|prompt|rule|message|direction|guideline|command|context|polic)",
        "It tells the model to ignore other instructions.",
    ),
    (
        r"\b(?:do not|don'?t|never|must not|without|avoid)\b[^.\n]{0,30}"
        r"\b(?:tell|inform|mention|reveal|notify|alert|telling|informing|mentioning|revealing|notifying|alerting)\b"
        r"[^.\n]{0,40}\b(?:user|human|person|anyone|anybody|them|him|her|it|this)\b",
        "It tells the model to keep something from the user.",
    ),
    (
        r"<[ \t]{0,3}/?[ \t]{0,3}(?:important|system|secret|instructions?|hidden|admin|assistant|critical|priority"
        r"|override)\b[^>\n]{0,80}>",
        "It marks a part as an instruction for the model.",
    ),
    (
        r"<\|[a-z_]{3,24}\|>|\[/?INST\]|<</?SYS>>|(?:^|\n)[ \t]{0,8}(?:#{1,6}[ \t]{0,4})?(?:system|assistant|developer)"
        r"[ \t]{0,3}(?:prompt|message|note|override)?[ \t]{0,3}:",
        "It imitates the marks by which a model tells who speaks.",
    ),
    (
        r"\b(?:you are now|from now on,? you|new instructions?:|system prompt|developer mode|jailbreak)\b",
        "It tries to give the model a new role.",
    ),
    (
        r"(?:~/\.|/home/|\$HOME/)[\w./-]{0,60}|\bid_(?:rsa|ed25519|ecdsa)\b|/etc/(?:passwd|shadow)\b"
        r"|\.(?:ssh|aws|kube|gnupg)/|\bmcp\.json\b|\.env\b(?=[^\w])",
        "It names a place where secrets lie.",
    ),
    (
        r"\b(?:user|human|admin)\b[^.\n]{0,30}\b(?:already|has|have)\b[^.\n]{0,20}\b(?:approved|agreed|consented|authori[sz]ed)"
        r"|\b(?:no|without|skip|bypass)\b[^.\n]{0,20}\b(?:approval|confirmation|permission|consent)\b",
        "It speaks of approvals, which are not the server's to give.",
    ),
)
_HIDDEN: tuple[tuple[str, str], ...] = (
    (r"<!--", "It holds an HTML comment, which a reader may not be shown."),
    (r"[ \t\u00a0\u2000-\u200a\u3000]{60,}|(?:[ \t]{0,40}\n){12,}", "A long blank pushes what follows out of sight."),
    (r"(?:display|visibility)\s{0,3}:\s{0,3}(?:none|hidden)|font-size\s{0,3}:\s{0,3}0", "It hides text by its style."),
)
_ENCODED: tuple[tuple[str, str], ...] = (
    (r"data:[\w.+/-]{1,60};base64,", "It holds a data address."),
    (r"(?:\\x[0-9a-fA-F]{2}){8,}|(?:\\u[0-9a-fA-F]{4}){8,}|(?:&#x?[0-9a-fA-F]{2,6};){8,}", "It holds escaped text."),
)
_BLOB = re.compile(r"[A-Za-z0-9+/_-]{80,}")  # base64, if it holds capitals, small letters and digits
_PATTERNS = tuple(
    (kind, re.compile(pattern, re.IGNORECASE if kind is not Kind.ENCODED else 0), message)
    for kind, patterns in ((Kind.INSTRUCTION, _INSTRUCTIONS), (Kind.HIDDEN, _HIDDEN), (Kind.ENCODED, _ENCODED))
    for pattern, message in patterns
)


def suspicions(definition: Mapping[str, Any]) -> list[Flag]:
    """The flags of one definition, read alone; each message at most once, the field's name in it."""
    found: dict[tuple[Kind, str], Flag] = {}
    texts = list(texts_of(definition))
    if _is_plain("\n".join(text for _path, text in texts)):
        return []
    left = LONGEST
    for path, text in texts:
        for flag in _of_text(path, text[: max(0, left)]):
            found.setdefault((flag.kind, flag.message), flag)
        left -= len(text)
    if left < 0:
        message = f"It is so long that only its first {LONGEST} characters were looked through."
        found[Kind.TOO_LONG, ""] = Flag(Kind.TOO_LONG, message)
    name = definition.get("name")
    scripts = mixed_scripts(name) if isinstance(name, str) else ()
    if scripts:
        message = f"Its name mixes letters of several scripts ({', '.join(scripts)}) that look alike."
        found.setdefault((Kind.MIXED_SCRIPTS, ""), Flag(Kind.MIXED_SCRIPTS, message, excerpt_of(name or "", 0)))
    return list(found.values())[:MOST]


def _is_plain(text: str) -> bool:
    """Whether nothing at all can be found in `text`, which is every text of a definition: most are so."""
    if len(text) > LONGEST or _UNPLAIN.search(text) or _BLOB.search(text):
        return False
    return not any(pattern.search(text) for _kind, pattern, _message in _PATTERNS)


def texts_of(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a definition with where it stands (`inputSchema.properties.to.description`), keys included."""
    stack: list[tuple[str, Any]] = [(path, value)]
    while stack:  # not recursive: a schema may be as deep as JSON may be
        path, item = stack.pop()
        if isinstance(item, str):
            yield path, item
        elif isinstance(item, Mapping):
            for key, inner in reversed(list(item.items())):
                stack.append((f"{path}.{key}" if path else str(key), inner))
                if path and not str(key).isidentifier():
                    stack.append((path, str(key)))
        elif isinstance(item, list):
            stack += [(f"{path}[{at}]", inner) for at, inner in reversed(list(enumerate(item)))]


def _of_text(path: str, text: str) -> Iterator[Flag]:
    where = _where(path)
    bidi = _BIDI.search(text)
    if bidi:
        message = f"{where} holds marks that turn the direction of text, so that it is read as what it is not."
        yield Flag(Kind.BIDIRECTIONAL, message, excerpt_of(text, bidi.start()))
    if not is_visible(text) and (not bidi or not is_visible(_BIDI.sub("", text))):
        at = next((at for at, (a, b) in enumerate(zip(text, revealed(text), strict=False)) if a != b), 0)
        message = f"{where} holds characters that nobody sees."
        if _TAGS.search(text):
            message = f"{where} holds a whole text in characters that nobody sees (Unicode tags)."
        yield Flag(Kind.INVISIBLE, message, excerpt_of(text, at))
    for blob in _BLOB.finditer(text):
        if all(re.search(letters, blob[0]) for letters in ("[A-Z]", "[a-z]", "[0-9]")):
            message = f"{where}: It holds a long encoded text that nobody can read."
            yield Flag(Kind.ENCODED, message, excerpt_of(text, blob.start()))
            break
    read = folded(text)
    for kind, pattern, message in _PATTERNS:
        match = pattern.search(read) or (pattern.search(text) if kind is Kind.HIDDEN else None)
        if match:
            yield Flag(kind, f"{where}: {message}", excerpt_of(match.string, match.start()))


def _where(path: str) -> str:
    names = {"name": "The name", "title": "The title", "description": "The description"}
    return names.get(path) or (path if len(path) <= 100 else f"{path[:60]}…{path[-39:]}")


def excerpt_of(text: str, at: int) -> str:
    """The surroundings of place `at` on one line, hidden characters written out."""
    begin = max(0, at - 40)
    piece = revealed(text[begin : at + EXCERPT])
    piece = re.sub(r"\s*\n\s*", " ↵ ", re.sub(r"[ \t]{4,}", lambda run: f"⟨{len(run[0])} blanks⟩", piece)).strip()
    return f"{'…' if begin else ''}{piece[:EXCERPT]}{'…' if len(piece) > EXCERPT or at + EXCERPT < len(text) else ''}"
