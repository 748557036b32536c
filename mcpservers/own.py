"""Servers that people define for themselves: added, changed, removed and reviewed by their owner, and by nobody else.

What such a definition may hold is `mcpservers.definitions`' to say; whom it serves, `mcpservers.giving`'s. Everything
here is row work, but for `check`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils.text import slugify

from accounts import audit, policy
from accounts.actors import Actor
from accounts.models import AuditAction, User
from accounts.policy import Action
from chatui.errors import InvalidRequestError, NotFoundError, PermissionDeniedError
from chatui.rows import in_rows
from chatui.text import shorten
from mcpservers import catalogue, peers, pin_decisions
from mcpservers.catalogue import RefreshReport, ServerState
from mcpservers.definitions import findings
from mcpservers.models import OWN_PREFIX, MCPServer, ToolVersion, UserVariables
from mcpservers.pin_reviews import Review, Shown, chosen, reviews

FIELDS = ("title", "url", "transport", "headers", "variables", "enabled")
_SLUG_LENGTH = 24
_WAITING_SHOWN = 100
BARRED = "An administrator switched this server off. Ask one if it should be used again."


class TooManyServersError(PermissionDeniedError):
    """The person has as many servers of their own as anybody may have."""

    code = "too_many_servers"

    def __init__(self) -> None:
        limit = settings.MCP["OWN_SERVERS"]
        super().__init__(
            public_message=f"You have {limit} servers of your own, the most there may be. Delete one first."
        )


@dataclass(frozen=True, slots=True)
class Changed:
    """A server as it is now; `dropped` names what was stored for another address and has to be entered again."""

    server: MCPServer
    dropped: tuple[str, ...] = ()


def require_owner(actor: Actor) -> None:
    """Raise `PermissionDeniedError` unless the role and the key let one look after servers of one's own.

    Whether the organization lets its members have any is not asked: what one has, one may see and delete.
    """
    policy.require(replace(actor, own_servers=True), Action.OWN_SERVERS)


def all_of(actor: Actor) -> list[MCPServer]:
    """The actor's own servers, by title."""
    return list(MCPServer.objects.visible_to(actor).filter(owner=actor.user_id).order_by("title", "pk"))


def owned(actor: Actor, server_id: UUID, *, locked: bool = False) -> MCPServer:
    """One of them; `locked` until the transaction ends. Raises `NotFoundError`, for everybody else's too."""
    rows = MCPServer.objects.visible_to(actor).filter(pk=server_id, owner=actor.user_id)
    server: MCPServer | None = (rows.select_for_update(no_key=True) if locked else rows).first()
    if server is None:
        raise NotFoundError(public_message="There is no such server.")
    return server


# --- Definitions ----------------------------------------------------------------------------------------------------


def create(actor: Actor, wanted: Mapping[str, Any]) -> MCPServer:
    """Add a server of `wanted` (of `FIELDS`). Raises `PermissionDeniedError`, `InvalidRequestError` by the field."""
    policy.require(actor, Action.OWN_SERVERS)
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=actor.user_id)  # two at once are counted one after the other
        if len(all_of(actor)) >= settings.MCP["OWN_SERVERS"]:
            raise TooManyServersError
        server = MCPServer(organization_id=actor.organization_id, owner_id=actor.user_id)
        _apply(server, wanted)
        server.slug = _free_slug(actor, server.title)
        _require_possible(server)
        server.save()
        _record(AuditAction.DEFINITION_CREATED, actor, server, {"fields": sorted(wanted)})
        transaction.on_commit(partial(peers.server_changed, server.pk))
    return server


def change(actor: Actor, server_id: UUID, wanted: Mapping[str, Any]) -> Changed:
    """Change what `wanted` names. Another address gets nothing that was stored for the one before.

    `headers`: a text is stored, None removes, what is absent stays. Raises `NotFoundError`, `PermissionDeniedError`,
    and `InvalidRequestError` by the field.
    """
    policy.require(actor, Action.OWN_SERVERS)
    with transaction.atomic():
        server = owned(actor, server_id, locked=True)
        if server.barred and wanted.get("enabled"):
            raise PermissionDeniedError(public_message=BARRED)
        before = {name: getattr(server, name) for name in FIELDS}
        dropped = _apply(server, wanted)
        fields = sorted(name for name in FIELDS if getattr(server, name) != before[name])
        if not fields:
            return Changed(server)
        _require_possible(server)
        if {"url", "transport"} & set(fields):
            dropped += _drop_values(server)
        server.revision += 1
        server.save()
        details = {"fields": fields} | ({"values": {"enabled": server.enabled}} if "enabled" in fields else {})
        _record(AuditAction.DEFINITION_CHANGED, actor, server, details)
        transaction.on_commit(partial(peers.server_changed, server.pk))
    return Changed(server, tuple(dropped))


def remove(actor: Actor, server_id: UUID) -> None:
    """Delete a server with all that was stored for it. Raises `NotFoundError`, `PermissionDeniedError`."""
    require_owner(actor)
    with transaction.atomic():
        server = owned(actor, server_id)
        _record(AuditAction.DEFINITION_DELETED, actor, server, {})
        server.delete()


def _apply(server: MCPServer, wanted: Mapping[str, Any]) -> list[str]:
    """Put `wanted` into the row, which is not saved; the names of headers that another address does not get."""
    where = (server.url, server.transport)
    for name in ("url", "transport", "variables", "enabled"):
        if name in wanted:
            setattr(server, name, wanted[name])
    if "title" in wanted:
        server.title = shorten(wanted["title"], 120)
    server.url = server.url.strip()
    typed = wanted.get("headers") or {}
    moved = not server._state.adding and where != (server.url, server.transport)
    kept = {} if moved else server.headers
    dropped = sorted(name for name in server.headers if name not in typed) if moved else []
    server.headers = {name: value for name, value in {**kept, **typed}.items() if value is not None}
    return dropped


def _drop_values(server: MCPServer) -> list[str]:
    rows = UserVariables.objects.filter(server=server)
    names = sorted({name for row in rows for name, value in row.values.items() if value})
    rows.delete()
    return names


def _require_possible(server: MCPServer) -> None:
    if not server.title:
        raise InvalidRequestError(public_message="title: A name is needed, by which you know the server.")
    for field, message in findings(server):
        raise InvalidRequestError(public_message=f"{field}: {message}")


def _free_slug(actor: Actor, title: str) -> str:
    """A name for its tools that nothing else has which the person can see."""
    base = OWN_PREFIX + (slugify(title).replace("_", "-") or "server")
    taken = set(MCPServer.objects.visible_to(actor).values_list("slug", flat=True))
    return next(slug for slug in _slugs(base) if slug not in taken)


def _slugs(base: str) -> Iterator[str]:
    number = 1
    while True:
        end = f"-{number}" if number > 1 else ""
        yield re.sub(r"-+\Z", "", re.sub(r"-{2,}", "-", base)[: _SLUG_LENGTH - len(end)]) + end
        number += 1


def _record(action: AuditAction, actor: Actor, server: MCPServer, details: Mapping[str, Any], **fields: Any) -> None:
    audit.record(
        action,
        organization_id=actor.organization_id,
        actor_id=actor.user_id,
        via=audit.via_of(actor),
        person_id=actor.user_id,
        target=audit.Target("server", server.pk, server.slug),
        details={"own": True, **details},
        **fields,
    )


# --- Checking and reviewing -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found: how connecting went, the tools, and those that wait for their owner's word."""

    report: RefreshReport
    state: ServerState | None
    waiting: Sequence[Review] = ()


async def check(actor: Actor, server_id: UUID) -> Checked:
    """Connect to a server of one's own now, and list its tools. Raises `NotFoundError`, `PermissionDeniedError`."""
    await in_rows(require_usable, actor, server_id)
    report = await catalogue.refresh(server_id, actor=actor)
    server = await in_rows(_checked, actor, server_id, report)
    states = await catalogue.server_states(actor, [server_id])
    return Checked(report, states[0] if states else None, await in_rows(waiting_of, server))


def require_usable(actor: Actor, server_id: UUID) -> MCPServer:
    """One of the actor's own that is switched on. Raises `NotFoundError`, `PermissionDeniedError`."""
    policy.require(actor, Action.OWN_SERVERS)
    server = owned(actor, server_id)
    if not server.enabled:
        raise PermissionDeniedError(
            public_message=BARRED if server.barred else "It is switched off: switch it on first."
        )
    return server


def _checked(actor: Actor, server_id: UUID, report: RefreshReport) -> MCPServer:
    server = owned(actor, server_id)
    _record(AuditAction.CONNECTION_TESTED, actor, server, {}, status="error" if report.error else "ok")
    return server


def waiting_of(server: MCPServer) -> list[Review]:
    """The versions of its tools that wait, with what differs from what was accepted."""
    return reviews(server, chosen(server, Shown.WAITING)[:_WAITING_SHOWN])


def decide(actor: Actor, server_id: UUID, versions: Sequence[UUID], decision: ToolVersion.Decision) -> list[Review]:
    """Accept or reject versions of tools of one's own server; what waits then. Raises `NotFoundError` and the like."""
    server = require_usable(actor, server_id)
    with transaction.atomic():
        pin_decisions.decide(server, versions, decision, User.objects.get(pk=actor.user_id))
    return waiting_of(server)
