from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from accounts.actors import Actor
from accounts.models import Role
from accounts.policy import Action, allows, granted, require
from chatui.errors import PermissionDeniedError


def an_actor(role: Role = Role.MEMBER, **fields: Any) -> Actor:
    return Actor(user_id=uuid4(), organization_id=uuid4(), role=role, **fields)


@dataclass
class Grant:
    whole_organization: bool = False
    group_id: UUID | None = None
    user_id: UUID | None = None
    deny: bool = False


def test_an_auditor_reads_the_audit_but_does_not_chat() -> None:
    assert allows(an_actor(Role.AUDITOR), Action.READ_AUDIT)
    assert not allows(an_actor(Role.AUDITOR), Action.CHAT)


def test_a_member_does_not_manage_and_is_told_why() -> None:
    with pytest.raises(PermissionDeniedError) as caught:
        require(an_actor(Role.MEMBER), Action.MANAGE)
    assert "Member" in caught.value.public_message


def test_a_key_narrows_what_its_owner_may_do() -> None:
    owner = an_actor(Role.OWNER)
    assert allows(owner, Action.MANAGE)
    assert not allows(replace(owner, scopes=frozenset({"chat"})), Action.MANAGE)


def test_no_grant_is_no_access_for_an_owner_too() -> None:
    assert not granted(an_actor(Role.OWNER), [])


def test_deny_wins_over_every_grant() -> None:
    actor = an_actor()
    assert not granted(actor, [Grant(whole_organization=True), Grant(user_id=actor.user_id, deny=True)])


def test_a_group_grants_to_its_members_only() -> None:
    group = uuid4()
    assert granted(an_actor(groups=frozenset({group})), [Grant(group_id=group)])
    assert not granted(an_actor(), [Grant(group_id=group)])


def test_a_guest_gets_only_what_names_the_guest() -> None:
    guest = an_actor(Role.GUEST)
    assert not granted(guest, [Grant(whole_organization=True)])
    assert granted(guest, [Grant(user_id=guest.user_id)])


def test_an_actor_is_found_only_while_everything_is_active(
    alice: Any, organization: Any, actor_of: Callable[[Any], Actor]
) -> None:
    from accounts.actors import find_actor

    assert actor_of(alice).role is Role.OWNER
    organization.is_active = False
    organization.save()
    assert find_actor(alice.pk, "acme") is None
