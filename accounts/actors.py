"""`Actor`: who is asking, as a frozen value, built once at each door from fresh rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db.models import F

from accounts.models import Membership, Role

if TYPE_CHECKING:
    from accounts.models import ApiKey


@dataclass(frozen=True, slots=True)
class Actor:
    """A member of one organization, now. Build it again at every door: roles and groups change.

    `present` says that a person can be asked (a browser session, or a key with scope `approve`); `scopes` is None
    for a session (everything the role allows), else the key's scopes.
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


MembershipRow = Mapping[str, Any]
# One row per group of the membership, one with `groups` None where there is none: a join costs less than a query.
_COLUMNS = (
    "user_id",
    "organization_id",
    "role",
    "groups",
    "organization__slug",
    "user__username",
    "user__email",
    "user__first_name",
    "user__last_name",
    "user__password",
)


def membership_rows(user_id: UUID, organization: UUID | str | None) -> Sequence[MembershipRow]:
    """The active membership of `user_id` in `organization` (id or slug), one row per group; empty without one.

    None is the organization used last, else the one joined first. One query.
    """
    members = Membership.objects.active().filter(user_id=user_id)
    if isinstance(organization, UUID):
        members = members.filter(organization_id=organization)
    elif organization is not None:
        members = members.filter(organization__slug=organization)
    recent_first = members.order_by(F("last_used_at").desc(nulls_last=True), "created_at", "pk")
    rows = list(recent_first.values(*_COLUMNS))
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
    )


def find_actor(user_id: UUID, organization: UUID | str | None, *, key: ApiKey | None = None) -> Actor | None:
    """The actor of `user_id` in `organization` (id, slug; None: the one used last); None if not an active member.

    From fresh rows, one query. Callers answer None with 404 or close code 4403, never with a reason.
    """
    rows = membership_rows(user_id, organization)
    return actor_of(rows, key=key) if rows else None
