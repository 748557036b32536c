"""Images in a request: as data URLs, of the type that their bytes have, or as a placeholder in words. Pure."""

from __future__ import annotations

import base64
from typing import Any

from agents.parts import ImageContent
from chatui.text import clean


def sniffed_type(data: bytes) -> str | None:
    """The media type of an image by its first bytes, if it is one that models take."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return None


def image_parts(image: ImageContent, *, sees: bool) -> list[dict[str, Any]]:
    """The content parts of an image: its name and its data, or (not seen, or no image at all) a placeholder.

    The declared type is not believed: an endpoint refuses the whole conversation for one image of another type.
    """
    media_type = sniffed_type(image.data)
    name = clean(image.name)
    if not sees or media_type is None:
        why = "not shown: this model takes no images" if media_type else "not shown: not a readable image"
        return [text_part(f"[{name or 'image'}: {why}]")]
    url = f"data:{media_type};base64,{base64.b64encode(image.data).decode()}"
    part = {"type": "image_url", "image_url": {"url": url}}
    return [text_part(f"{name}:"), part] if name else [part]


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
