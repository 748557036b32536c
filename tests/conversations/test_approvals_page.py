"""The page of approvals: for members, and to everybody else there is nothing."""

from __future__ import annotations

from django.test import Client

from accounts.models import Organization, User


def test_a_member_gets_the_page_and_a_stranger_finds_nothing(
    organization: Organization, bob: User, charlie: User
) -> None:
    address = f"/o/{organization.slug}/approvals/"
    assert Client().get(address).status_code == 302
    for user, status in ((bob, 200), (charlie, 404)):
        client = Client()
        client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
        response = client.get(address)
        assert response.status_code == status
    assert client.post(address).status_code == 405
