"""Files over HTTP: in as a form, out as a download that can do nothing on this site."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from conversations.models import Attachment
from tests.conversations.api.conftest import Enter, World
from tests.conversations.test_uploads import image

ADDRESS = "/api/v1/attachments"


async def upload(client: Any, data: bytes, name: str = "a.txt", content_type: str = "text/plain") -> Any:
    return await client.post(ADDRESS, {"file": SimpleUploadedFile(name, data, content_type)})


async def test_a_text_file_goes_in_and_comes_out_as_a_download(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    answer = await upload(client, "Grüße".encode(), "Grüße.md", "image/png")
    assert answer.status_code == 201
    told = answer.json()
    assert (told["name"], told["content_type"], told["size"]) == ("Grüße.md", "text/plain", 7)
    response = await client.get(told["url"])
    assert response.content == "Grüße".encode()
    assert response["Content-Type"] == "text/plain; charset=utf-8"
    assert response["Content-Disposition"] == "attachment; filename*=utf-8''Gr%C3%BC%C3%9Fe.md"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Content-Security-Policy"] == "default-src 'none'; sandbox; frame-ancestors 'none'"
    assert response["Cache-Control"].startswith("private")


async def test_an_image_is_what_it_is_and_not_what_it_is_called(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    told = (await upload(client, image("PNG"), "page.html", "text/html")).json()
    assert told["content_type"] == "image/png"
    response = await client.get(told["url"])
    assert response["Content-Type"] == "image/png"
    assert response["Content-Disposition"].startswith("inline")


async def test_a_page_with_a_script_is_never_served_as_one(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    for data, name in ((b"<script>alert(1)</script>", "x.html"), (b"<svg onload='alert(1)'/>", "x.svg")):
        response = await client.get((await upload(client, data, name, "image/svg+xml")).json()["url"])
        assert response["Content-Type"] == "text/plain; charset=utf-8"
        assert response["Content-Disposition"].startswith("attachment")


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [(b"", 400, "invalid_request"), (b"PK\x03\x04\x00", 415, "unsupported_file"), (b"x" * 101, 413, "too_large")],
)
async def test_what_cannot_be_kept_is_refused_and_not_kept(
    world: World, as_user: Enter, settings: Any, data: bytes, status: int, code: str
) -> None:
    settings.ATTACHMENT_MAX_BYTES = 100
    before = await Attachment.objects.as_system().acount()
    response = await upload(await as_user(world.bob), data)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert await Attachment.objects.as_system().acount() == before


async def test_a_body_that_says_it_is_too_long_is_not_parsed(world: World, as_user: Enter, settings: Any) -> None:
    settings.ATTACHMENT_MAX_BYTES = 100
    response = await upload(await as_user(world.bob), b"x" * 200_000)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")


async def test_the_form_has_one_file(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    one = SimpleUploadedFile("a.txt", b"x")
    for body in ({}, {"other": one}, {"file": "text"}, {"file": [SimpleUploadedFile("a", b"x") for _ in range(2)]}):
        assert (await client.post(ADDRESS, body)).status_code == 400
    assert (await client.post(ADDRESS, b"x", content_type="text/plain")).status_code == 400
    broken = await client.generic("POST", ADDRESS, b"--x\r\n", "multipart/form-data; boundary=")
    assert broken.status_code == 400
    assert broken.json()["error"]["code"] == "invalid_request"


async def test_a_file_that_is_gone_from_disk_is_404(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    attachment = await Attachment.objects.as_system().aget(pk=world.ids["attachment"])
    attachment.file.storage.delete(attachment.file.name)
    response = await client.get(f"/api/v1/attachments/{attachment.pk}/content")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
