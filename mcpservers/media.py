"""What a result's bytes are, whatever the server says they are: decoding, types by content, safe names. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import unquote

from chatui.text import clean
from mcpservers.visible import visible

UNKNOWN = "application/octet-stream"
MAX_NAME = 150
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_EXTENSIONS = {
    "image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "image/bmp": "bmp",
    "image/tiff": "tiff", "image/avif": "avif", "image/svg+xml": "svg", "application/pdf": "pdf",
    "application/zip": "zip", "application/gzip": "gz", "application/json": "json", "audio/mpeg": "mp3",
    "audio/ogg": "ogg", "audio/flac": "flac", "audio/wav": "wav", "audio/mp4": "m4a", "video/mp4": "mp4",
    "video/webm": "webm", "text/plain": "txt", "text/html": "html", "text/csv": "csv", "text/markdown": "md",
}  # fmt: skip
_SVG = re.compile(
    rb"\A\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*(?:<!DOCTYPE[^>]*>\s*)?<svg[\s>]", re.DOTALL | re.IGNORECASE
)
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,63}")
_DATA_URI = re.compile(r"\A\s*data:[^,]{0,200},", re.IGNORECASE)
# Formats that contain other ones: the declared type says more than the bytes do, if it is of this shape.
_CONTAINERS = {"application/zip": re.compile(r"application/(?:vnd\.|epub|java-archive|x-zip)")}
# What models and browsers show as a picture. Others are files.
SHOWN_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def decoded(text: object) -> bytes | None:
    """The bytes behind base64 in any of its spellings: a data: URI, wrapped, URL-safe, without padding; None if none.

    Canonical base64 of the same bytes is what anything later gets.
    """
    if not isinstance(text, str):
        return None
    body = _DATA_URI.sub("", text, count=1)
    if "%" in body:
        body = unquote(body)
    body = re.sub(r"\\[rn]", "", body).replace("\\/", "/")  # as JSON within text writes them
    body = re.sub(r"\s+", "", body).rstrip("=").translate(str.maketrans("-_", "+/"))
    if not body or len(body) % 4 == 1:
        return None
    try:
        return base64.b64decode(body + "=" * (-len(body) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def sniffed(data: bytes) -> str:
    """The media type that the first bytes speak of, or ""."""
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12], "")
    if data[4:8] == b"ftyp":
        brand = data[8:12]
        return "image/avif" if brand in (b"avif", b"avis") else "audio/mp4" if brand.startswith(b"M4A") else "video/mp4"
    if data[:4] == b"\x1a\x45\xdf\xa3":
        return "video/webm"
    for magic, media_type in _MAGIC:
        if data.startswith(magic):
            return media_type
    return "image/svg+xml" if _SVG.match(data[:2000]) else ""


def media_type_of(data: bytes, declared: object) -> str:
    """The type of `data`: by content where that is known, else as declared.

    A picture by name alone is none: a model's endpoint would refuse it, now and in every later request.
    """
    content = sniffed(data)
    named = declared.split(";")[0].strip().lower() if isinstance(declared, str) else ""
    if not _MEDIA_TYPE.fullmatch(named):
        named = ""
    if content:
        container = _CONTAINERS.get(content)
        return named if container is not None and container.match(named) else content
    return UNKNOWN if not named or named.startswith("image/") else named


def safe_name(address: object, fallback: str) -> str:
    """A file name from the last segment of a URI or path: no separators, no control characters, 150 characters.

    `fallback` where nothing is left of it.
    """
    path = clean(address) if isinstance(address, str) else ""
    path = re.split(r"[?#]", path, maxsplit=1)[0] if "://" in path else path
    for _ in range(3):  # %252f
        path = unquote(path)
    name = re.split(r"[/\\]", visible(path).replace("\n", " ").replace("\t", " ").rstrip("/\\"))[-1]
    name = re.sub(r'[<>:"|?*\x00-\x1f\x7f]', "_", name).strip(" .")
    if len(name) > MAX_NAME:
        stem, dot, extension = name.rpartition(".")
        short = dot and len(extension) <= 10
        name = f"{stem[: MAX_NAME - len(extension) - 1]}.{extension}" if short else name[:MAX_NAME]
    return name.strip(" .") or fallback


def extension_of(media_type: str) -> str:
    return _EXTENSIONS.get(media_type, "bin")
