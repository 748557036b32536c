"""Servers of one's own: defined, checked, reviewed and deleted by that person. No header's value comes out again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from uuid import UUID

from django.conf import settings
from django.http import HttpResponse, JsonResponse
from pydantic import Field, StringConstraints

from accounts import policy
from accounts.actors import Actor
from chatui.errors import InvalidRequestError
from conversations.api import body
from conversations.api.door import Call
from conversations.linking import news
from mcpservers import own
from mcpservers.models import LinkedAccount, MCPServer, ToolVersion
from mcpservers.oauth.accounts import Disconnected
from mcpservers.offers import OfferedTool
from mcpservers.pin_reviews import Review
from mcpservers.suspicions import Kind

HEADERS_AT_MOST = 30
VARIABLES_AT_MOST = 30
Value = Annotated[str, StringConstraints(max_length=8 * 1024)]
Title = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=120)]


class Variable(body.Body):
    title: str = Field(default="", max_length=120)
    description: str = Field(default="", max_length=500)
    sensitive: bool = True


class _Definition(body.Body):
    transport: Literal["http", "streamable-http", "sse"] | None = None
    headers: dict[str, Value | None] | None = Field(default=None, max_length=HEADERS_AT_MOST)
    variables: dict[str, Variable] | None = Field(default=None, max_length=VARIABLES_AT_MOST)
    enabled: bool | None = None

    def wanted(self) -> dict[str, Any]:
        """What was sent. Null stands for nothing but a header that is to go."""
        return {name: value for name, value in self.model_dump(exclude_unset=True).items() if value is not None}


class NewServer(_Definition):
    title: Title
    url: Annotated[str, StringConstraints(min_length=1, max_length=2000)]


class ServerChange(_Definition):
    title: Title | None = None
    url: Annotated[str, StringConstraints(min_length=1, max_length=2000)] | None = None


class Decisions(body.Body):
    accept: list[UUID] = Field(default=[], max_length=1000)
    reject: list[UUID] = Field(default=[], max_length=1000)


async def index(call: Call) -> HttpResponse:
    """Also where the organization lets nobody have any (any more): `allowed` says so, and `reason` why."""
    return JsonResponse(await call.rows(listing))


def listing(actor: Actor) -> dict[str, Any]:
    own.require_owner(actor)
    return overview(actor)


def overview(actor: Actor) -> dict[str, Any]:
    """What a person has, and whether there may be more."""
    may = policy.allows(actor, policy.Action.OWN_SERVERS)
    return {
        "items": [server_json(server) for server in own.all_of(actor)],
        "allowed": bool(may),
        "reason": "" if may else may.reason,
        "limit": settings.MCP["OWN_SERVERS"],
    }


async def create(call: Call) -> HttpResponse:
    def made(actor: Actor) -> MCPServer:
        policy.require(actor, policy.Action.OWN_SERVERS)
        return own.create(actor, body.read(NewServer, call.request).wanted())

    return JsonResponse(server_json(await call.rows(made)), status=201)


async def read(call: Call, own_server: UUID) -> HttpResponse:
    def found(actor: Actor) -> MCPServer:
        own.require_owner(actor)
        return own.owned(actor, own_server)

    return JsonResponse(server_json(await call.rows(found)))


async def update(call: Call, own_server: UUID) -> HttpResponse:
    """A header that is not named stays as it is, unless the address changes: `dropped` names what was left behind."""

    def changed(actor: Actor) -> own.Changed:
        policy.require(actor, policy.Action.OWN_SERVERS)
        own.owned(actor, own_server)
        return own.change(actor, own_server, body.read(ServerChange, call.request).wanted())

    done = await call.rows(changed)
    return JsonResponse(server_json(done.server) | {"dropped": list(done.dropped)})


async def delete(call: Call, own_server: UUID) -> HttpResponse:
    """Its accounts are disconnected first; `warnings` say what the servers' side may not have forgotten."""
    gone: list[Disconnected] = []
    for account in await call.rows(_accounts, own_server):
        gone.append(await news.disconnect(call.actor, account))
    await call.rows(own.remove, own_server)
    return JsonResponse({"warnings": [each.warning for each in gone if each.warning]})


def _accounts(actor: Actor, server_id: UUID) -> list[UUID]:
    own.require_owner(actor)
    server = own.owned(actor, server_id)
    rows = LinkedAccount.objects.visible_to(actor).filter(server=server, user_id=actor.user_id)
    return list(rows.values_list("pk", flat=True))


async def check(call: Call, own_server: UUID) -> HttpResponse:
    """Connect now and list the tools. What went wrong there is an answer, not an error."""
    return JsonResponse(checked_json(await own.check(call.actor, own_server)))


async def review(call: Call, own_server: UUID) -> HttpResponse:
    """Accept or reject versions of its tools, by the ids that a check gave."""

    def decided(actor: Actor) -> list[Review]:
        own.require_usable(actor, own_server)
        wanted = body.read(Decisions, call.request)
        if not wanted.accept and not wanted.reject:
            raise InvalidRequestError(public_message="Nothing to decide: accept or reject.")
        waiting: list[Review] = []
        for ids, decision in (
            (wanted.accept, ToolVersion.Decision.ACCEPTED),
            (wanted.reject, ToolVersion.Decision.REJECTED),
        ):
            if ids:
                waiting = own.decide(actor, own_server, ids, decision)
        return waiting

    return JsonResponse({"waiting": [review_json(each) for each in await call.rows(decided)]})


# --- Representations ------------------------------------------------------------------------------------------------


def server_json(server: MCPServer) -> dict[str, Any]:
    """The definition: of headers the names alone. `barred`: an admin switched it off."""
    return {
        "id": str(server.pk),
        "slug": server.slug,
        "title": server.title,
        "url": server.url,
        "transport": server.transport,
        "headers": list(server.headers),
        "variables": {name: _variable(about) for name, about in server.variables.items()},
        "enabled": server.enabled,
        "barred": server.barred,
        "created_at": server.created_at.isoformat(),
    }


def _variable(about: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "title": about.get("title", ""),
        "description": about.get("description", ""),
        "sensitive": about.get("sensitive", True),
    }


def checked_json(checked: own.Checked) -> dict[str, Any]:
    report, state = checked.report, checked.state
    return {
        "ok": not report.error,
        "error": report.error,
        "state": state.state if state is not None else "unknown",
        "message": state.message if state is not None else "",
        "duration_ms": report.duration_ms,
        "transport": report.transport,
        "protocol_version": report.protocol_version,
        "warnings": list(report.warnings),
        "tools": [_tool(tool) for tool in (state.tools if state is not None and not report.error else ())],
        "waiting": [review_json(each) for each in checked.waiting],
    }


def _tool(tool: OfferedTool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "title": tool.title or tool.name,
        "description": tool.description,
        "withheld": tool.withheld,
        "pin": tool.state.value,
    }


# What these say names servers and tools of the organization, which are not everybody's to know.
_OF_OTHERS = frozenset({Kind.MENTIONS, Kind.LOOKALIKE, Kind.SAME_NAME})


def _words(flag: Mapping[str, Any]) -> str:
    told = "It resembles, or speaks of, a tool of another server." if flag.get("kind") in _OF_OTHERS else ""
    return told or str(flag.get("message", ""))


def review_json(review: Review) -> dict[str, Any]:
    """A version that waits: `fields` are what differs, piece by piece, or all of a new one."""
    return {
        "id": str(review.id),
        "name": review.name,
        "state": review.state,
        "flags": list(dict.fromkeys(_words(flag) for flag in review.flags)),
        "fields": [
            {
                "field": field.field,
                "lines": field.lines,
                "pieces": [{"op": piece.op, "text": piece.text} for piece in field.pieces],
            }
            for field in review.fields
        ],
    }
