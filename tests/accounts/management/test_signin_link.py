"""`signin_link` prints a link on BASE_URL that signs its user in."""

from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from accounts.models import User


def test_the_printed_link_signs_in(capsys: Any, settings: Any, client: Client, bob: User) -> None:
    settings.BASE_URL = "https://chat.example.org"
    call_command("signin_link", "bob")
    link = capsys.readouterr().out.strip()
    assert link.startswith("https://chat.example.org/accounts/link/")
    client.post(link.removeprefix("https://chat.example.org"))
    assert client.session["_auth_user_id"] == str(bob.pk)


def test_without_such_an_active_user_it_says_so(bob: User) -> None:
    User.objects.filter(pk=bob.pk).update(is_active=False)
    for name in ("bob", "nobody", ""):
        with pytest.raises(CommandError, match="no active user"):
            call_command("signin_link", name)
