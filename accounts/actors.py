"""`Actor`: who is asking, as a frozen value, built once at each door from fresh rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

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


def actor_of(membership: Membership, *, key: ApiKey | None = None) -> Actor:
    """The actor of `membership` (with `user`, `organization` and `groups` loaded), narrowed by `key`'s scopes."""
    scopes = None if key is None else frozenset(key.scopes)
    user = membership.user
    return Actor(
        user_id=user.pk,
        organization_id=membership.organization_id,
        role=Role(membership.role),
        groups=frozenset(group.pk for group in membership.groups.all()),
        username=user.username,
        email=user.email,
        name=user.get_full_name(),
        organization_slug=membership.organization.slug,
        present=scopes is None or "approve" in scopes,
        scopes=scopes,
    )


def find_actor(user_id: UUID, organization: UUID | str, *, key: ApiKey | None = None) -> Actor | None:
    """The actor of `user_id` in `organization` (id or slug), from fresh rows; None if not an active member.

    Three queries at most, constant. Callers answer None with 404 or close code 4403, never with a reason.
    """
    where = (
        {"organization_id": organization} if isinstance(organization, UUID) else {"organization__slug": organization}
    )
    membership = (
        Membership.objects.active()
        .select_related("user", "organization")
        .prefetch_related("groups")
        .filter(user_id=user_id, **where)
        .first()
    )
    return None if membership is None else actor_of(membership, key=key)
