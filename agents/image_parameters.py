"""Which parameters of a tool take an image, and in which form: judged by their schema, name and description. Pure.

A parameter that merely speaks of an image (its path, its caption, a search for one) must keep the text that a model
wrote, so the judgement is careful: in doubt a parameter takes none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

from agents.arguments import types_of
from agents.parts import JSONObject

Form = Literal["data URL", "base64"]

_READ = 1_000  # characters of a description
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_A-Za-z]+")
_IMAGE = {"image", "img", "picture", "pic", "photo", "photograph", "screenshot", "thumbnail", "avatar", "logo", "icon"}
_IMAGE_WORDS = re.compile(
    rf"\b(?:{'|'.join(_IMAGE)})s?\b|图片|图像|照片|截图|圖片|圖像|画像|写真|이미지|사진", re.IGNORECASE
)
# What may follow the image word in a name that means the image itself, and what means data by itself.
_AFTER = {
    "base", "64", "b", "data", "url", "uri", "byte", "binary", "encoded", "blob", "content", "string", "str", "input",
}  # fmt: skip
_OF_DATA = _AFTER | {"file", "in", "media", "source", "src", "upload", "value"}
_URL_WORDS = re.compile(r"\bdata[\s_-]?ur[il]s?\b|\bdata:|\bur[il]s?\b|网址|链接", re.IGNORECASE)
_BASE64_WORDS = re.compile(r"base[\s_-]?64|\bb[\s_-]?64\b|编码", re.IGNORECASE)
_BARE = re.compile(
    r"\b(?:without|no|not|omit\w*|exclud\w*|strip\w*|raw)\b[^.;]{0,40}(?:prefix|header|data:|data[\s_-]ur[il])",
    re.IGNORECASE,
)
_NO_PICTURE = re.compile(
    r"\b(?:docker|containers?|oci|disks?|iso|virtual machines?|vms?|ami|kernel|registry)\b", re.IGNORECASE
)
_COMBINED = {"anyOf", "oneOf", "allOf", "$ref"}
_URL_FORMATS = {"uri", "url", "iri", "uri-reference", "iri-reference", "data-url", "data-uri"}


def form_of(name: str, branches: Iterable[JSONObject], within: str = "") -> Form | None:
    """How the parameter `name` takes an image, or None if it takes none.

    `branches` are its schema's alternatives; `within` is the name of the parameter that it is a part of.
    """
    schemas = list(branches)
    takes = _takes_text(schemas) and not _NO_PICTURE.search(_told(schemas)) and _takes_image(name, schemas, within)
    return _form(name, schemas) if takes else None


def _takes_text(schemas: list[JSONObject]) -> bool:
    """Whether any text may stand there."""
    if any("enum" in schema or "const" in schema for schema in schemas):
        return False
    single = [schema for schema in schemas if _COMBINED.isdisjoint(schema) or "type" in schema]
    return any("string" in (types_of(schema) or ["string"]) for schema in single or [{}])


def _takes_image(name: str, schemas: list[JSONObject], within: str) -> bool:
    text = _told(schemas)
    if any(str(schema.get("contentMediaType", "")).lower().startswith("image/") for schema in schemas):
        return True
    words = _words(name)
    spoken_of = bool(_IMAGE_WORDS.search(text)) or any(map(_is_image, _words(within)))
    if any(str(schema.get("contentEncoding", "")).lower() == "base64" for schema in schemas):
        return spoken_of or any(map(_is_image, words))
    if any(map(_is_image, words)):
        return _means_image(words)
    says_data = bool(_URL_WORDS.search(text) or _BASE64_WORDS.search(text)) or not _AFTER.isdisjoint(words)
    return bool(words) and _OF_DATA.issuperset(words) and spoken_of and says_data


def _means_image(words: list[str]) -> bool:
    """Whether a name that has an image word means the image itself: `product_image_url`, `image_2`, `image_to_edit`,
    and not `image_path`, `logo_position`.
    """
    last = max(place for place, word in enumerate(words) if _is_image(word))
    rest = [word for word in words[last + 1 :] if word not in _AFTER and not word.isdigit() and len(word) > 1]
    return not rest or rest[0] == "to"


def _form(name: str, schemas: list[JSONObject]) -> Form:
    text = f"{' '.join(_words(name))} {_told(schemas)}"
    if _BARE.search(text):
        return "base64"
    formats = {str(schema.get("format", "")).lower() for schema in schemas}
    wants_url = bool(_URL_WORDS.search(text)) or bool(formats & _URL_FORMATS)
    encoded = any(str(schema.get("contentEncoding", "")).lower() == "base64" for schema in schemas)
    return "base64" if (encoded or _BASE64_WORDS.search(text)) and not wants_url else "data URL"


def _told(schemas: Iterable[JSONObject]) -> str:
    said: list[Any] = [schema.get(key) for schema in schemas for key in ("title", "description", "pattern")]
    return " ".join(text for text in said if isinstance(text, str))[:_READ]


def _words(name: str) -> list[str]:
    words = [word.lower() for word in _WORD.findall(name[:100])]
    return [word[:-1] if len(word) > 2 and word.endswith("s") else word for word in words]


def _is_image(word: str) -> bool:
    return word in _IMAGE or (not word.isascii() and bool(_IMAGE_WORDS.search(word)))
