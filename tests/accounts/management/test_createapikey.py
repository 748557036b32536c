"""`createapikey` prints a working key once, and says what is wrong with its arguments."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from accounts.doors import key_of
from accounts.models import ApiKey, Organization, User


def create(capsys: Any, *args: str) -> str:
    call_command("createapikey", *args)
    return str(capsys.readouterr().out)


def test_the_last_word_of_the_output_is_a_key_that_opens_the_door(
    capsys: Any, bob: User, organization: Organization
) -> None:
    secret = create(capsys, "bob", "--org", "acme", "--name", "my script").split()[-1]
    key = key_of(f"Bearer {secret}")
    assert key is not None
    assert (key.user, key.organization, key.name, key.scopes, key.expires_at) == (
        bob,
        organization,
        "my script",
        ["chat"],
        None,
    )
    assert secret not in str(ApiKey.objects.values().get())


def test_scopes_and_a_lifetime_are_as_asked(capsys: Any, bob: User) -> None:
    create(capsys, "bob@EXAMPLE.org", "--org", "acme", "--name", "k", "--scope", "chat, approve,chat", "--days", "7")
    key = ApiKey.objects.get()
    assert key.scopes == ["chat", "approve"]
    assert key.expires_at is not None
    assert timedelta(days=6) < key.expires_at - timezone.now() <= timedelta(days=7)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nobody", "--org", "acme", "--name", "k"], "no user 'nobody'"),
        (["bob", "--org", "globex", "--name", "k"], "not an active member of an active organization 'globex'"),
        (["bob", "--org", "acme", "--name", ""], "--name"),
        (["bob", "--org", "acme", "--name", "k", "--scope", "chat,root"], "root; known scopes are chat, read"),
        (["bob", "--org", "acme", "--name", "k", "--scope", ","], "--scope"),
        (["bob", "--org", "acme", "--name", "k", "--days", "0"], "--days"),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_is_made(bob: User, charlie: User, args: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        call_command("createapikey", *args)
    assert not ApiKey.objects.exists()


def test_a_member_who_was_deactivated_gets_no_key(bob: User) -> None:
    bob.memberships.update(is_active=False)
    with pytest.raises(CommandError, match="not an active member"):
        call_command("createapikey", "bob", "--org", "acme", "--name", "k")
