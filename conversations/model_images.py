"""An image as it is fit for a model: at most 2048 pixels a side and 1 MiB (pure)."""

from __future__ import annotations

import warnings
from io import BytesIO

from PIL import Image, ImageOps

MAX_SIDE = 2048  # pixels
MAX_BYTES = 1024 * 1024
_QUALITIES = (88, 75, 60)
_SMALLEST_SIDE = 256


def for_model(data: bytes) -> bytes:
    """`data`, an image, unchanged if it is small enough, else as a smaller JPEG, upright, on white where it is clear.

    Empty if it is no image that can be read: it is then only named to the model.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(BytesIO(data)) as image:
                if len(data) <= MAX_BYTES and max(image.size) <= MAX_SIDE:
                    return data
                return _smaller(_flat(ImageOps.exif_transpose(image)))
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError, Image.DecompressionBombWarning):
        return b""


def _flat(image: Image.Image) -> Image.Image:
    if not image.has_transparency_data:
        return image.convert("RGB")
    clear = image.convert("RGBA")
    flat = Image.new("RGB", clear.size, "white")
    flat.paste(clear, mask=clear.getchannel("A"))
    return flat


def _smaller(image: Image.Image) -> bytes:
    side = min(MAX_SIDE, max(image.size))
    while True:
        scaled = image.copy()
        scaled.thumbnail((side, side))
        for quality in _QUALITIES:
            buffer = BytesIO()
            scaled.save(buffer, "JPEG", quality=quality)
            if buffer.tell() <= MAX_BYTES or side <= _SMALLEST_SIDE:
                return buffer.getvalue()
        side = side * 3 // 4
