"""One's own values of a server's declared variables: they go in and are replaced, and never come out again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import F
from django.http import HttpResponse, JsonResponse

from accounts import audit
from accounts.actors import Actor
from accounts.models import AuditAction
from chatui.errors import InvalidRequestError
from conversations.api import body
from conversations.api.door import Call
from conversations.usable import usable_server
from mcpservers.models import MCPServer, UserVariables

VALUE_LIMIT = 8 * 1024  # characters


async def read(call: Call, server: str) -> HttpResponse:
    return JsonResponse(await call.rows(states, server))


async def put(call: Call, server: str) -> HttpResponse:
    """`{NAME: value}` sets those values and keeps the others; null or white space clears one."""
    return JsonResponse(await call.rows(change, server, body.read_json(call.request)))


async def clear(call: Call, server: str) -> HttpResponse:
    await call.rows(forget, server)
    return HttpResponse(status=204)


def declared_variables(server: MCPServer, values: Mapping[str, str]) -> list[dict[str, Any]]:
    """What a server asks its users for, and which of it `values` has; never a value."""
    return [
        {
            "name": name,
            "title": str((about or {}).get("title") or name),
            "description": str((about or {}).get("description") or ""),
            "sensitive": bool((about or {}).get("sensitive")),
            "set": bool(values.get(name, "").strip()),
        }
        for name, about in server.variables.items()
    ]


def states(actor: Actor, slug: str) -> dict[str, Any]:
    server = usable_server(actor, slug)
    stored = UserVariables.objects.filter(server=server, user_id=actor.user_id).first()
    return {"variables": declared_variables(server, stored.values if stored else {})}


def change(actor: Actor, slug: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Store `changes` and return `states`. Raises `InvalidRequestError`, naming the variable, and changes nothing."""
    server = usable_server(actor, slug)
    checked = {name: _checked(server, name, value) for name, value in changes.items()}
    with transaction.atomic():
        UserVariables.objects.get_or_create(server=server, user_id=actor.user_id)
        stored = UserVariables.objects.select_for_update().get(server=server, user_id=actor.user_id)
        values = {name: value for name, value in stored.values.items() if name in server.variables} | checked
        stored.values = {name: value for name, value in values.items() if value}
        stored.version = F("version") + 1
        stored.save(update_fields=["values", "version", "updated_at"])
        given = {name for name, value in checked.items() if value}
        _record(actor, server, {"set": sorted(given), "cleared": sorted(set(checked) - given)})
    return {"variables": declared_variables(server, stored.values)}


def _checked(server: MCPServer, name: str, value: Any) -> str:
    if name not in server.variables:
        declared = ", ".join(server.variables) or "none"
        raise InvalidRequestError(public_message=f"{name[:80]}: this server has no such variable; it has {declared}.")
    if value is not None and not isinstance(value, str):
        raise InvalidRequestError(public_message=f"{name}: a text, or null to clear it.")
    text = (value or "").strip()
    if len(text) > VALUE_LIMIT:
        raise InvalidRequestError(public_message=f"{name}: at most {VALUE_LIMIT} characters.")
    return text


def forget(actor: Actor, slug: str) -> None:
    """Forget all of the actor's values for the server. The row stays: connections notice its version."""
    server = usable_server(actor, slug)
    with transaction.atomic():
        UserVariables.objects.filter(server=server, user_id=actor.user_id).update(values={}, version=F("version") + 1)
        _record(actor, server, {"cleared": sorted(server.variables)})


def _record(actor: Actor, server: MCPServer, details: Mapping[str, list[str]]) -> None:
    audit.record(
        AuditAction.VARIABLES_CHANGED,
        organization_id=actor.organization_id,
        actor_id=actor.user_id,
        via=audit.via_of(actor),
        person_id=actor.user_id,
        server_id=server.pk,
        server=server.slug,
        details=details,
    )
