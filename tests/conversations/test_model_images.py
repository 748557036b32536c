"""Images as they are fit for a model: unchanged where they are small, else smaller JPEGs."""

from __future__ import annotations

import os
from io import BytesIO

import pytest
from PIL import Image

from conversations.model_images import MAX_BYTES, MAX_SIDE, for_model


def encoded(image, form="PNG", **options):
    buffer = BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def noise(width, height):
    return Image.frombytes("RGB", (width, height), os.urandom(width * height * 3))


def opened(data):
    return Image.open(BytesIO(data))


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF"])
def test_a_small_image_stays_as_it_is(form):
    data = encoded(Image.new("RGB", (20, 10), "red"), form)
    assert for_model(data) == data


def test_an_image_with_too_many_pixels_is_scaled_keeping_its_shape():
    image = opened(for_model(encoded(Image.new("RGB", (4096, 1024), "red"))))
    assert (image.format, image.size) == ("JPEG", (MAX_SIDE, 512))


def test_an_image_with_too_many_bytes_becomes_small_enough():
    data = encoded(noise(1200, 1200))
    assert len(data) > MAX_BYTES
    smaller = for_model(data)
    assert 0 < len(smaller) <= MAX_BYTES
    assert opened(smaller).format == "JPEG"


def test_what_is_clear_becomes_white_not_black():
    image = opened(for_model(encoded(Image.new("RGBA", (3000, 10), (0, 0, 0, 0)))))
    assert image.convert("RGB").getpixel((5, 2)) == (255, 255, 255)


def test_a_palette_with_transparency_is_flattened_too():
    image = Image.new("P", (3000, 10), 0)
    image.putpalette([0, 0, 0] * 256)
    smaller = opened(for_model(encoded(image, "GIF", transparency=0)))
    assert smaller.convert("RGB").getpixel((5, 2)) == (255, 255, 255)


def test_a_photo_is_turned_upright():
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90 degrees
    data = encoded(Image.new("RGB", (3000, 300)), "JPEG", exif=exif.tobytes())
    image = opened(for_model(data))
    assert image.height > image.width


@pytest.mark.parametrize("data", [b"", b"no image", b"\x89PNG\r\n\x1a\n broken", b"<svg/>"])
def test_what_is_no_image_is_empty(data):
    assert for_model(data) == b""


def test_an_image_that_breaks_off_is_empty():
    assert for_model(encoded(noise(2100, 400))[:5000]) == b""


def test_an_image_that_would_fill_the_memory_is_empty(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert for_model(encoded(Image.new("1", (3000, 3000)))) == b""
