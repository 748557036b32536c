"""An upload is what its content says, its name is harmless, and nothing is served as a page of this site."""

from __future__ import annotations

import zlib
from io import BytesIO
from typing import Any

import pytest
from PIL import Image

from accounts.models import User
from chatui.errors import InvalidRequestError, TooLargeError
from conversations.models import Attachment
from conversations.uploads import MAX_PIXELS, UnsupportedFileError, file_response, kind_of, safe_name, store


def image(kind: str, size: tuple[int, int] = (8, 6)) -> bytes:
    data = BytesIO()
    Image.new("RGB", size, "teal").save(data, kind)
    return data.getvalue()


def bomb() -> bytes:
    """A PNG whose header says that it is larger than any that is let in."""
    side = int(MAX_PIXELS**0.5) + 1
    whole = bytearray(image("PNG"))
    whole[16:24] = side.to_bytes(4, "big") * 2
    whole[29:33] = zlib.crc32(whole[12:29]).to_bytes(4, "big")
    return bytes(whole)


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp"), ("GIF", "image/gif")],
)
def test_images_are_recognised_by_their_content(kind: str, content_type: str) -> None:
    assert kind_of(image(kind)).content_type == content_type


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain", "plain"),
        ("Grüße, 世界 🎉".encode(), "Grüße, 世界 🎉"),
        (b"\xef\xbb\xbfwith a mark", "with a mark"),
        (b"a\tb\r\n\x1b[31mred", "a\tb\r\n\x1b[31mred"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>", None),
        (b"<!doctype html><script>alert(1)</script>", None),
        (b"GIF89 is what this sentence begins with", None),
    ],
)
def test_text_in_utf8_is_text_whatever_it_says(data: bytes, text: str | None) -> None:
    kind = kind_of(data)
    assert kind.content_type == "text/plain"
    assert kind.text == (data.decode() if text is None else text)


@pytest.mark.parametrize(
    "data",
    [
        b"with \x00 zero",
        b"\xff\xfew\x00i\x00d\x00e\x00",
        b"%PDF-1.7\n\xe2\xe3\xcf\xd3",
        b"PK\x03\x04rest",
        b"latin-1: gr\xfc\xdfe",
        b"\x7fELF\x02\x01",
        image("BMP"),
        image("TIFF"),
        b"\xed\xa0\xbd",  # a lone surrogate
    ],
)
def test_everything_else_is_refused_with_what_is_possible(data: bytes) -> None:
    with pytest.raises(UnsupportedFileError, match="UTF-8 and PNG, JPEG, WebP and GIF"):
        kind_of(data)


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="empty"):
        kind_of(b"")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_a_broken_image_is_refused(kind: str) -> None:
    whole = image(kind, (200, 200))
    with pytest.raises((InvalidRequestError, UnsupportedFileError)):
        kind_of(whole[: len(whole) // 2])


def test_an_image_that_would_fill_the_memory_is_refused_by_its_header() -> None:
    with pytest.raises(TooLargeError, match="megapixels"):
        kind_of(bomb())


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("notes.txt", "notes.txt"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\bob\\notes.txt", "notes.txt"),
        ("a\r\nSet-Cookie: x.txt", "a Set-Cookie x.txt"),
        ('quote".txt', "quote .txt"),
        ("报告 2026.md", "报告 2026.md"),
        ("photo\u202egnp.exe", "photognp.exe"),
        ("\x00", "file"),
        ("", "file"),
        ("..", "file"),
        (".hidden", "hidden"),
        ("x" * 300 + ".jpeg", "x" * 145 + ".jpeg"),
        ("x" * 300, "x" * 150),
    ],
)
def test_names_are_made_harmless(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_a_file_is_stored_under_its_id_and_not_under_its_name(bob: User, actor_of: Any) -> None:
    attachment = store(actor_of(bob), b"hello", "../evil.html")
    stored = Attachment.objects.as_system().get(pk=attachment.pk)
    assert stored.file.name.endswith(str(attachment.pk))
    assert (stored.name, stored.content_type, stored.size, stored.text) == ("evil.html", "text/plain", 5, "hello")
    with stored.file.open() as file:
        assert file.read() == b"hello"


def test_a_file_above_the_limit_is_refused(bob: User, actor_of: Any, settings: Any) -> None:
    settings.ATTACHMENT_MAX_BYTES = 4
    with pytest.raises(TooLargeError, match="at most"):
        store(actor_of(bob), b"hello", "a.txt")


@pytest.mark.parametrize(
    ("content_type", "served", "inline"),
    [
        ("image/png", "image/png", True),
        ("image/gif", "image/gif", True),
        ("image/svg+xml", "application/octet-stream", False),
        ("text/plain", "text/plain; charset=utf-8", False),
        ("text/html", "text/plain; charset=utf-8", False),
        ("application/pdf", "application/octet-stream", False),
    ],
)
def test_only_safe_images_are_shown_in_place(content_type: str, served: str, inline: bool) -> None:
    response = file_response(Attachment(name='a"b\n世.x', content_type=content_type), b"data")
    assert response["Content-Type"] == served
    assert response["Content-Disposition"].startswith("inline" if inline else "attachment")
    assert "\n" not in response["Content-Disposition"]
    assert response["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in response["Content-Security-Policy"]
