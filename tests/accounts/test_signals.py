"""What lets a person in is told of when it changes: after commit, by whatever page, and once is enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from django.test import Client

from accounts import signals
from accounts.models import ApiKey, Membership, Organization, User


@pytest.fixture
def told() -> Iterator[list[UUID]]:
    heard: list[UUID] = []

    def hear(user_id: UUID, **_: Any) -> None:
        heard.append(user_id)

    signals.rights_changed.connect(hear)
    yield heard
    signals.rights_changed.disconnect(hear)


def test_each_change_of_what_lets_a_person_in_is_told(
    transactional_db: None, bob: User, organization: Organization, told: list[UUID]
) -> None:
    key, _ = ApiKey.issue(user=bob, organization=organization, name="k")
    told.clear()
    changes: list[Callable[[], Any]] = [
        lambda: key.save(update_fields=["revoked_at"]),
        key.delete,
        lambda: Membership.objects.get(user=bob).save(),
        Membership.objects.get(user=bob).delete,
        bob.save,
    ]
    for change in changes:
        change()
        assert told == [bob.pk]
        told.clear()


def test_signing_out_is_told_when_the_session_is_gone(client: Client, transactional_db: None, bob: User) -> None:
    client.force_login(bob)
    key = str(client.session.session_key)
    there = []

    def look(**_: Any) -> None:
        there.append(client.session.exists(key))

    signals.rights_changed.connect(look)
    try:
        client.post("/accounts/logout/")
    finally:
        signals.rights_changed.disconnect(look)
    assert there == [False]


def test_signing_out_of_the_administration_is_told(
    client: Client, transactional_db: None, alice: User, told: list[UUID]
) -> None:
    client.force_login(alice)
    told.clear()
    client.post("/admin/logout/")
    assert told == [alice.pk]


def test_signing_in_and_what_is_rolled_back_are_no_news(
    client: Client, transactional_db: None, bob: User, told: list[UUID]
) -> None:
    client.force_login(bob)
    with transaction.atomic():
        bob.save()
        transaction.set_rollback(True)
    assert told == []


def test_keys_revoked_together_are_told_of_their_people(
    client: Client, transactional_db: None, alice: User, organization: Organization, told: list[UUID]
) -> None:
    keys = [ApiKey.issue(user=alice, organization=organization, name=name)[0] for name in "ab"]
    client.force_login(alice)
    told.clear()
    chosen = {"action": "revoke", "_selected_action": [str(key.pk) for key in keys]}
    client.post("/admin/accounts/apikey/", chosen)
    assert not ApiKey.objects.usable().exists()
    assert told == [alice.pk]


def test_a_listener_that_fails_breaks_nothing(transactional_db: None, bob: User, told: list[UUID]) -> None:
    def fail(**_: Any) -> None:
        raise OSError("the channel layer is away")

    signals.rights_changed.connect(fail)
    try:
        bob.save()
    finally:
        signals.rights_changed.disconnect(fail)
    assert told == [bob.pk]
