"""`/me`: who one is, where, and one's own settings."""

from __future__ import annotations

import json
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.http import HttpResponse, JsonResponse
from pydantic import Field, field_validator

from accounts.actors import Actor
from accounts.models import Membership, User
from chatui.errors import InvalidRequestError, PermissionDeniedError
from conversations.api import body
from conversations.api.door import Call

PREFERENCES_LIMIT = 16 * 1024  # characters of JSON


class Settings(body.Body):
    """What may be changed; absent fields stay as they are."""

    timezone: str | None = Field(default=None, max_length=64)
    preferences: dict[str, Any] | None = None

    @field_validator("timezone")
    @classmethod
    def _is_a_zone(cls, name: str | None) -> str | None:
        if name:
            try:
                ZoneInfo(name)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                raise ValueError("not a time zone of the IANA database") from None
        return name

    @field_validator("preferences")
    @classmethod
    def _is_small(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None and len(json.dumps(value)) > PREFERENCES_LIMIT:
            raise ValueError(f"at most {PREFERENCES_LIMIT} characters of JSON")
        return value


async def read(call: Call) -> HttpResponse:
    return JsonResponse(await call.rows(me_json))


async def update(call: Call) -> HttpResponse:
    scopes = call.actor.scopes
    if scopes is not None and "chat" not in scopes:
        raise PermissionDeniedError(public_message="This API key has no scope “chat”.")
    changes = body.read(Settings, call.request).model_dump(exclude_unset=True)
    if any(value is None for value in changes.values()):
        raise InvalidRequestError(public_message="A setting cannot be null; leave it out to keep it.")
    return JsonResponse(await call.rows(change, changes))


def change(actor: Actor, changes: dict[str, Any]) -> dict[str, Any]:
    """Store `changes` (fields of the user's own row) and return `me_json`."""
    if changes:
        User.objects.filter(pk=actor.user_id).update(**changes)
    return me_json(actor)


def me_json(actor: Actor) -> dict[str, Any]:
    user = User.objects.get(pk=actor.user_id)
    memberships = Membership.objects.active().filter(user=user).select_related("organization")
    if actor.scopes is not None:  # a key belongs to one organization and knows of no other
        memberships = memberships.filter(organization_id=actor.organization_id)
    organizations = sorted((row.organization for row in memberships), key=lambda found: found.name.casefold())
    here = next(found for found in organizations if found.pk == actor.organization_id)
    return {
        "user": {
            "id": str(user.pk),
            "username": user.username,
            "name": actor.name,
            "email": user.email,
            "timezone": user.timezone,
            "preferences": user.preferences,
        },
        "organization": {"id": str(here.pk), "slug": here.slug, "name": here.name, "role": actor.role.value},
        "organizations": [{"slug": found.slug, "name": found.name} for found in organizations],
    }
