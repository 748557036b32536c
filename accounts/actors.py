"""`Actor`: who is asking, as a frozen value, built once at each door from fresh rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from django.db.models import Exists, F, OuterRef
from django.utils import timezone

from accounts.models import ApiKey, Membership, Organization, Role
from accounts.rules import Rule
from chatui.prepared import PreparedQuery

if TYPE_CHECKING:
    from django.db.models import QuerySet


@dataclass(frozen=True, slots=True)
class GroupRules:
    """The tool rules of one group, as in `accounts.rules`."""

    slug: str
    rules: Sequence[Rule]


@dataclass(frozen=True, slots=True)
class Actor:
    """A member of one organization, now. Build it again at every door: roles and groups change.

    `present` says that a person can be asked (a browser session, or a key with scope `approve`); `scopes` is None
    for a session (everything the role allows), else the scopes of the key `key_id`. `group_rules` are those of
    `groups`. `own_servers`: the organization lets its members have MCP servers of their own.
    """

    user_id: UUID
    organization_id: UUID
    role: Role
    groups: frozenset[UUID] = frozenset()
    username: str = ""
    email: str = ""
    name: str = ""
    organization_slug: str = ""
    present: bool = True
    scopes: frozenset[str] | None = None
    key_id: UUID | None = None
    group_rules: tuple[GroupRules, ...] = field(default=(), compare=False)
    own_servers: bool = False


MembershipRow = Mapping[str, Any]
# One row per group of the membership, one with `groups` None where there is none: a join costs less than a query.
_COLUMNS = (
    "user_id",
    "organization_id",
    "role",
    "groups",
    "groups__slug",
    "groups__rules",
    "organization__slug",
    "organization__own_servers",
    "user__username",
    "user__email",
    "user__first_name",
    "user__last_name",
    "user__password",
)


def _memberships(user_id: UUID, **organization: Any) -> QuerySet[Membership, dict[str, Any]]:
    members = Membership.objects.active().filter(user_id=user_id, **organization)
    rows: QuerySet[Membership, dict[str, Any]]
    rows = members.order_by(F("last_used_at").desc(nulls_last=True), "created_at", "pk").values(*_COLUMNS)
    return rows


_by_id = PreparedQuery(lambda user_id, id: _memberships(user_id, organization_id=id), UUID, UUID)
_by_slug = PreparedQuery(lambda user_id, slug: _memberships(user_id, organization__slug=slug), UUID, str)
_by_key = PreparedQuery(
    lambda user_id, id, key, now: _memberships(user_id, organization_id=id).filter(
        Exists(
            ApiKey.objects.usable(now).filter(
                pk=key, user=OuterRef("user_id"), organization=OuterRef("organization_id")
            )
        )
    ),
    UUID,
    UUID,
    UUID,
    datetime,
)
_recent_first = PreparedQuery(lambda user_id: _memberships(user_id), UUID)


def membership_rows(user_id: UUID, organization: UUID | str | None) -> Sequence[MembershipRow]:
    """The active membership of `user_id` in `organization` (id or slug), one row per group; empty without one.

    None is the organization used last, else the one joined first. One query.
    """
    if organization is None:
        rows = _recent_first(user_id)
    elif isinstance(organization, UUID):
        rows = _by_id(user_id, organization)
    else:
        rows = _by_slug(user_id, organization)
    return [row for row in rows if row["organization_id"] == rows[0]["organization_id"]]


def actor_of(rows: Sequence[MembershipRow], *, key: ApiKey | None = None) -> Actor:
    """The actor of a membership's rows, narrowed by `key`'s scopes."""
    first = rows[0]
    scopes = None if key is None else frozenset(key.scopes)
    return Actor(
        user_id=first["user_id"],
        organization_id=first["organization_id"],
        role=Role(first["role"]),
        groups=frozenset(row["groups"] for row in rows if row["groups"] is not None),
        username=first["user__username"],
        email=first["user__email"],
        name=f"{first['user__first_name']} {first['user__last_name']}".strip(),
        organization_slug=first["organization__slug"],
        present=scopes is None or "approve" in scopes,
        scopes=scopes,
        key_id=None if key is None else key.pk,
        group_rules=tuple(
            GroupRules(row["groups__slug"], row["groups__rules"]) for row in rows if row["groups__rules"]
        ),
        own_servers=first["organization__own_servers"] == Organization.OwnServers.MEMBERS,
    )


def find_actor(user_id: UUID, organization: UUID | str | None, *, key: ApiKey | None = None) -> Actor | None:
    """The actor of `user_id` in `organization` (id, slug; None: the one used last); None if not an active member.

    From fresh rows, one query. Callers answer None with 404 or close code 4403, never with a reason.
    """
    rows = membership_rows(user_id, organization)
    return actor_of(rows, key=key) if rows else None


def refreshed(actor: Actor) -> Actor | None:
    """The same actor with role, groups, rules and names as they are now; None if it may not be here any more.

    That is who is no active member, or came in with a key that was revoked or has expired. One query.
    """
    if actor.key_id is None:
        return _as_before(find_actor(actor.user_id, actor.organization_id), actor)
    rows = _by_key(actor.user_id, actor.organization_id, actor.key_id, timezone.now())
    return _as_before(actor_of(rows), actor) if rows else None


def _as_before(now: Actor | None, before: Actor) -> Actor | None:
    """`now`, come in as `before`."""
    return None if now is None else replace(now, present=before.present, scopes=before.scopes, key_id=before.key_id)


def why_gone(actor: Actor) -> str:
    """Why `refreshed` is None, in a sentence for a person. One query."""
    if actor.key_id is not None and find_actor(actor.user_id, actor.organization_id) is not None:
        return "The API key that this was started with is not valid any more."
    return "You are no longer a member of this organization."


def stand_in(**parameters: UUID) -> Actor:
    """For `visible_to` in a prepared query: an actor with these ids alone. Who looks at more of it fails at once."""
    return cast(Actor, SimpleNamespace(**parameters))
