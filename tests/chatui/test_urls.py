"""Addresses that are not in any other module's tests."""

from django.test import Client


def test_browsers_find_an_icon_for_pages_that_name_none(client: Client) -> None:
    response = client.get("/favicon.ico", follow=True)
    assert response["Content-Type"] == "image/svg+xml"
    assert b"<svg" in b"".join(response)
