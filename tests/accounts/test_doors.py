"""Who comes in: a session or a key becomes an actor from fresh rows, in two queries, and stops being one at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone

from accounts.actors import find_actor
from accounts.doors import Door, SignedOutError, StrangerError, key_of, session_user
from accounts.models import ApiKey, Group, Membership, Organization, Role, User


@pytest.fixture
def session(client: Client, bob: User) -> str:
    client.force_login(bob)
    return str(client.session.session_key)


@pytest.fixture
def secret(bob: User, organization: Organization) -> str:
    return ApiKey.issue(user=bob, organization=organization)[1]


def by_session(key: str | None, organization: str | None = "acme") -> Door:
    return Door(organization, session_key=key)


def by_key(secret: str, organization: str | None = "acme") -> Door:
    return Door(organization, authorization=f"Bearer {secret}")


def test_a_session_becomes_an_actor_with_everything_in_two_queries(
    session: str, bob: User, organization: Organization, django_assert_num_queries: Callable[..., Any]
) -> None:
    membership = Membership.objects.get(user=bob)
    groups = [Group.objects.create(organization=organization, slug=slug) for slug in ("a", "b", "c")]
    membership.groups.set(groups)
    User.objects.filter(pk=bob.pk).update(first_name="Bob", last_name="Baker")
    with django_assert_num_queries(2):
        actor = by_session(session).actor()
    assert (actor.user_id, actor.organization_id, actor.role) == (bob.pk, organization.pk, Role.MEMBER)
    assert actor.groups == {group.pk for group in groups}
    assert (actor.username, actor.email, actor.name, actor.organization_slug) == (
        "bob",
        "bob@example.org",
        "Bob Baker",
        "acme",
    )
    assert actor.present
    assert actor.scopes is None


def test_a_key_becomes_an_actor_of_its_scopes_in_two_queries(
    secret: str, django_assert_num_queries: Callable[..., Any]
) -> None:
    by_key(secret).actor()  # notes its use
    with django_assert_num_queries(2):
        actor = by_key(secret).actor()
    assert actor.scopes == {"chat"}
    assert not actor.present


def test_a_key_with_approve_has_a_person_behind_it(bob: User, organization: Organization) -> None:
    _, secret = ApiKey.issue(user=bob, organization=organization, scopes=["chat", "approve"])
    assert by_key(secret).actor().present


def end_session(client: Client, bob: User) -> None:
    client.logout()


def change_password(client: Client, bob: User) -> None:
    bob.set_password("another horse")
    bob.save()


def deactivate(client: Client, bob: User) -> None:
    User.objects.filter(pk=bob.pk).update(is_active=False)


@pytest.mark.parametrize("end", [end_session, change_password, deactivate])
def test_a_session_that_ended_in_any_way_is_signed_out(
    client: Client, session: str, bob: User, end: Callable[[Client, User], None]
) -> None:
    end(client, bob)
    assert session_user(session) is None
    for organization in ("acme", "globex", None):
        with pytest.raises(SignedOutError):
            by_session(session, organization).actor()


@pytest.mark.parametrize("key", [None, "", "made-up", "x" * 500, "\x00", "\x00" * 32])
def test_what_is_no_session_is_signed_out(db: None, key: str | None) -> None:
    with pytest.raises(SignedOutError):
        by_session(key).actor()


def test_a_session_of_a_backend_that_is_no_longer_trusted_is_signed_out(session: str, settings: Any) -> None:
    settings.AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
    with pytest.raises(SignedOutError):
        by_session(session).actor()


def test_a_session_survives_a_rotation_of_the_secret_key(session: str, settings: Any) -> None:
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another-" + "y" * 50
    # The session's own signature is checked by Django; the hash of the password is ours to check.
    assert session_user(session) is not None


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_key_is_found_by_its_secret(secret: str, scheme: str) -> None:
    found = key_of(f"{scheme}  {secret} ")
    assert found is not None
    assert found.prefix == secret[:10]


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic {}", "{}", "Bearer{}", "Bearer x{}", "Bearer {}x", "Bearer \x00"]
)
def test_what_is_no_key_is_none(secret: str, header: str | None) -> None:
    assert key_of(header and header.format(secret)) is None


def test_a_key_ends_with_its_expiry_its_revocation_its_user_and_its_organization(
    secret: str, bob: User, organization: Organization
) -> None:
    now = timezone.now()
    keys = ApiKey.objects.filter(user=bob)
    for fields in ({"expires_at": now - timedelta(seconds=1)}, {"revoked_at": now}):
        keys.update(**fields)
        assert key_of(f"Bearer {secret}") is None
        keys.update(expires_at=now + timedelta(days=1), revoked_at=None)
    assert key_of(f"Bearer {secret}") is not None
    Organization.objects.filter(pk=organization.pk).update(is_active=False)
    assert key_of(f"Bearer {secret}") is None
    Organization.objects.filter(pk=organization.pk).update(is_active=True)
    User.objects.filter(pk=bob.pk).update(is_active=False)
    assert key_of(f"Bearer {secret}") is None


def test_who_is_no_member_is_a_stranger(session: str, secret: str, bob: User, other_organization: Organization) -> None:
    for door in (by_session(session, "globex"), by_key(secret, "globex"), by_session(session, "no-such")):
        with pytest.raises(StrangerError):
            door.actor()
    Membership.objects.filter(user=bob).update(is_active=False)
    for door in (by_session(session), by_key(secret), by_session(session, None), by_key(secret, None)):
        with pytest.raises(StrangerError):
            door.actor()


def test_a_role_counts_from_the_next_look_on(session: str, bob: User) -> None:
    door = by_session(session)
    assert door.actor().role is Role.MEMBER
    Membership.objects.filter(user=bob).update(role=Role.GUEST)
    assert door.run(lambda actor: actor.role) is Role.GUEST


def test_without_a_name_it_is_the_organization_used_last(
    session: str, bob: User, other_organization: Organization
) -> None:
    Membership.objects.create(user=bob, organization=other_organization)
    assert by_session(session, None).actor().organization_slug == "acme"
    Membership.objects.filter(organization=other_organization).update(last_used_at=timezone.now())
    assert by_session(session, None).actor().organization_slug == "globex"


def test_an_organization_is_found_by_id_and_by_slug(bob: User, organization: Organization) -> None:
    assert find_actor(bob.pk, organization.pk) == find_actor(bob.pk, "acme") == find_actor(bob.pk, None)
    assert find_actor(bob.pk, UUID(int=1)) is None
    assert find_actor(UUID(int=1), "acme") is None


def test_groups_of_another_organization_do_not_count(
    bob: User, organization: Organization, other_organization: Organization
) -> None:
    elsewhere = Membership.objects.create(user=bob, organization=other_organization)
    elsewhere.groups.add(Group.objects.create(organization=other_organization, slug="secret"))
    for where in ("acme", None):
        actor = find_actor(bob.pk, where)
        assert actor is not None
        assert actor.groups == frozenset()
