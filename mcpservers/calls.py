"""`call_tool`: check again with fresh rows, resolve, borrow, call, and turn whatever happens into an outcome.

A tool never runs twice by our doing: a call is repeated once, and only if it certainly did not reach the server or
the tool only reads.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Q

from accounts.actors import Actor, find_actor
from accounts.policy import Action, allows, granted
from chatui.errors import ChatUIError, PermissionDeniedError
from chatui.prepared import PreparedQuery
from chatui.rows import in_rows
from chatui.text import clean_json
from mcpservers import approvals, pins, results
from mcpservers.elicitation import Answer
from mcpservers.errors import (
    BusyError,
    ConnectionLostError,
    NobodyPresentError,
    NotReadyError,
    RequestFailedError,
    RequestTimeoutError,
    ServerUnavailableError,
    ToolMissingError,
)
from mcpservers.health import troubles
from mcpservers.interruptions import Interruption, NotPossibleError, binding, resumed
from mcpservers.live_questions import Person
from mcpservers.models import MCPServer, ServerGrant, UserVariables
from mcpservers.outcomes import ArtifactData, Asked, Status, ToolOutcome
from mcpservers.pins import CallPins, owner_of
from mcpservers.requests import RequestContext
from mcpservers.sending import Progress, ToolCall, known_result
from mcpservers.transports import ConnectionTarget, target_of

logger = logging.getLogger(__name__)
URL_ELICITATION_REQUIRED = -32042  # MCP 2025-11-25
AGAIN_SECONDS = 0.25
_EFFECT = "It may have taken effect: find out before you try again."


@dataclass(frozen=True, slots=True)
class Authorization:
    """Whether a call may run, why, and with which rows: all read now, in one crossing."""

    allowed: bool
    reason: str
    server: MCPServer | None = None
    actor: Actor | None = None  # as the membership says now
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    pins: CallPins = field(default_factory=CallPins)  # what is accepted of the tool


def authorize_call(actor: Actor, server_id: UUID, tool: str, *, allow_globs: Sequence[str] = ()) -> Authorization:
    """Whether `actor` may call `tool` now: membership, role, server, grants and rules, from fresh rows.

    Three queries, and one more for a server with variables. Which version of the tool may be called depends on whose
    view of the server it is: `Authorization.pins` says it. `allow_globs`, if any, are the only tools that the agent
    offers of this server.
    """
    now = _as_the_rows_say(actor)
    if now is None:
        return Authorization(False, "You are no longer a member of this organization.")
    verdict = allows(now, Action.CALL_TOOL)
    if not verdict:
        return Authorization(False, verdict.reason)
    grants = _grants(now.organization_id, server_id, now.user_id)
    server = grants[0].server if grants else MCPServer.objects.visible_to(now).filter(pk=server_id).first()
    if server is None:
        return Authorization(False, "There is no such server.")
    reason = _refusal(now, server, grants, tool, allow_globs)
    if reason:
        return Authorization(False, reason, server)
    return Authorization(True, "", server, now, _own_values(now, server), pins.of_call(server_id, tool, now.user_id))


def _as_the_rows_say(actor: Actor) -> Actor | None:
    """The actor with role, groups and names as they are now, in one query; None if no longer a member."""
    now = find_actor(actor.user_id, actor.organization_id)
    return replace(now, present=actor.present, scopes=actor.scopes) if now is not None else None


# Of groups all, since an actor has any number of them, and a server few.
_grants = PreparedQuery(
    lambda organization, server, user: (
        ServerGrant.objects.filter(server_id=server, server__organization_id=organization)
        .filter(Q(user_id=None) | Q(user_id=user))
        .select_related("server")
    ),
    UUID,
    UUID,
    UUID,
)


def _own_values(actor: Actor, server: MCPServer) -> Mapping[str, str]:
    if not server.variables:
        return {}
    own = UserVariables.objects.filter(server=server, user_id=actor.user_id).first()
    return own.values if own is not None else {}


def _refusal(
    actor: Actor, server: MCPServer, grants: Sequence[ServerGrant], tool: str, allow_globs: Sequence[str]
) -> str:
    if not server.enabled:
        return f"“{server.title}” is switched off."
    verdict = granted(actor, [grant for grant in grants if not grant.tool or approvals.matches(grant.tool, tool)])
    if not verdict:
        return verdict.reason
    if allow_globs and not any(approvals.matches(glob, tool) for glob in allow_globs):
        return "The agent does not offer this tool."
    rules = approvals.rule_lists(server.slug, tool, server=server.rules, groups=actor.group_rules)
    decided = approvals.verdict(tool, lists=rules, read_only=server.read_only)
    return decided.reason if decided.do is approvals.Do.DENY else ""


async def call_tool(
    actor: Actor,
    server_id: UUID,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    turn_id: UUID | None,
    progress: Progress,
    request: RequestContext | None = None,
    allow_globs: Sequence[str] = (),
    images: bool = False,
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    annotations: Mapping[str, Any] | None = None,
    pin: str = "",
    person: Person | None = None,
) -> ToolOutcome:
    """Call a tool as `actor` and say how it ended. Raises nothing but `CancelledError`, which reaches the server.

    A server whose definition depends on the turn needs its `request`, whose run is open (`ConnectionManager.open_run`).
    The outcome's text is for the model; `duration_ms` is the whole time, opening a connection included. `person` is
    who can be asked by the server; without one a call that asks is an error.
    """
    began = time.monotonic()
    call = ToolCall(
        tool, clean_json(dict(arguments)), input_schema, output_schema, annotations or {}, images, pin, person
    )
    try:
        outcome = await _outcome(actor, server_id, call, allow_globs, progress, request)
    except Exception:  # boundary: the loop goes on with an error result, whatever went wrong here
        logger.exception("The call of a tool failed in turn %s.", turn_id)
        outcome = _failed("error", f"The call of “{tool}” failed for a reason of our own.")
    return replace(outcome, duration_ms=round((time.monotonic() - began) * 1000))


async def _outcome(
    actor: Actor,
    server_id: UUID,
    call: ToolCall,
    allow_globs: Sequence[str],
    progress: Progress,
    request: RequestContext | None,
) -> ToolOutcome:
    authorization = await in_rows(authorize_call, actor, server_id, call.tool, allow_globs=allow_globs)
    server = authorization.server
    if not authorization.allowed or server is None or authorization.actor is None:
        return _failed("denied", f"The call of “{call.tool}” is denied. {authorization.reason}")
    try:
        json.dumps(call.arguments, allow_nan=False)
        target = target_of(server, authorization.actor, authorization.variables, request=request)
    except ValueError:
        return _failed("error", "The arguments hold a number that JSON does not have (NaN or an infinity).")
    except NotReadyError as error:
        return _failed("unavailable", f"“{server.title}” is not set up. {error.public_message}")
    waits = authorization.pins.refusal(owner_of(target), call.pin)
    if waits:
        return _failed("denied", f"The call of “{call.tool}” is denied. {waits}")
    repeatable = _only_reads(server, call)
    try:
        found = await _concluded(target, call, repeatable, progress)
    except ChatUIError as error:
        _noted(error, target)
        return _explained(error, server)
    except NotPossibleError as error:
        return _failed("error", f"“{server.title}” {error}")
    if isinstance(found, Interruption):
        return _interrupted(found, server)
    return _with_notes(_normalised(found, call, target), call)


def _only_reads(server: MCPServer, call: ToolCall) -> bool:
    """Whether running it twice does no harm: an admin's word, or the server's own hint, which harms only itself."""
    hinted = any(call.annotations.get(hint) is True for hint in ("readOnlyHint", "idempotentHint"))
    return hinted or any(approvals.matches(glob, call.tool) for glob in server.read_only)


async def _concluded(
    target: ConnectionTarget, call: ToolCall, repeatable: bool, progress: Progress
) -> dict[str, Any] | Interruption:
    """The raw result, or the round of questions that stands before it. Raises `NotPossibleError`."""
    standing = Interruption(
        binding(target.server_id, target.definition_hash, target.user_id, call.tool, call.arguments)
    )
    person = call.person
    if person is not None and person.kept is not None:
        before = resumed(person.kept)
        if before.binding != standing.binding:
            raise NotPossibleError("or this call was changed while its question was open. Make the call again.")
        standing = before.answered(person.answer or Answer("cancel"))
    while standing.asks is None and not standing.refused:
        if standing.state is not None and not standing.answers:
            await asyncio.sleep(AGAIN_SECONDS)  # it only wants to be asked again
        try:
            raw = await known_result(target, replace(call, also=standing.params()), repeatable, progress)
        except RequestFailedError as error:
            if error.rpc_code != URL_ELICITATION_REQUIRED:
                raise
            standing = standing.for_addresses(error.data)
        else:
            if raw.get("resultType") != "input_required":
                if person is not None:
                    person.notes.extend(standing.notes)
                return raw
            standing = standing.following(raw)
        if person is None and (standing.waiting or standing.notes):
            raise NotPossibleError("asks a person for more before it goes on, and nobody is present to answer.")
    return standing


# --- Outcomes -----------------------------------------------------------------------------------------------------


def _normalised(raw: dict[str, Any], call: ToolCall, target: ConnectionTarget) -> ToolOutcome:
    if raw.get("isError"):
        raw = _redacted(raw, target)
    limit = settings.MCP["RESULT_MAX_CHARACTERS"]
    return results.normalise(raw, images=call.images, output_schema=call.output_schema, limit=limit)


def _interrupted(standing: Interruption, server: MCPServer) -> ToolOutcome:
    """A call that is made again after an answer, or, where that was no, not any more."""
    if standing.refused:
        notes = "".join(f" {note}" for note in standing.notes)
        return _failed("error", f"“{server.title}” wanted an address to be opened first; that was declined.{notes}")
    asked = Asked({"server": server.slug, "title": server.title, **standing.card()}, standing.kept())
    return replace(_failed("error", f"“{server.title}” asks a person for more before it goes on."), asked=asked)


def _with_notes(outcome: ToolOutcome, call: ToolCall) -> ToolOutcome:
    """`outcome`, saying what was declined or cancelled without being shown to anybody."""
    notes = list(dict.fromkeys(call.person.notes)) if call.person is not None else []
    if not notes:
        return outcome
    text = outcome.text + "".join(f"\n\n[{note}]" for note in notes)
    return replace(outcome, text=text, content=(*outcome.content, *({"type": "text", "text": note} for note in notes)))


def _redacted(value: Any, target: ConnectionTarget) -> Any:
    """`value` with our own secrets masked: servers repeat what they refuse."""
    match value:
        case str():
            return target.redact(value)
        case dict():
            return {key: _redacted(item, target) for key, item in value.items()}
        case list():
            return [_redacted(item, target) for item in value]
        case _:
            return value


def _noted(error: ChatUIError, target: ConnectionTarget) -> None:
    """What a call suffered, for the admin; what connecting suffered is noted where it is connected."""
    if isinstance(error, ConnectionLostError | RequestTimeoutError | BusyError):
        troubles.note(target, error.code, str(error))


def _explained(error: ChatUIError, server: MCPServer) -> ToolOutcome:
    title, words = server.title, str(error).rstrip(".")
    match error:
        case ConnectionLostError(sent=True):
            return _failed("error", f"The connection to “{title}” was lost during the call: {words}. {_EFFECT}")
        case ConnectionLostError():
            return _failed("unavailable", f"“{title}” cannot be reached: {words}.")
        case ToolMissingError():
            return replace(_failed("unavailable", error.public_message), missing=True)
        case ServerUnavailableError():
            return _failed("unavailable", error.public_message)
        case RequestTimeoutError():
            return _failed("timeout", f"“{title}” gave {error}, so the call was cancelled. {_EFFECT}")
        case NobodyPresentError():
            nobody = "asks a person for more before it goes on, and nobody is present to answer, so the call was ended"
            return _failed("error", f"“{title}” {nobody}. {_EFFECT}")
        case PermissionDeniedError():
            return _failed("denied", error.public_message)
        case RequestFailedError():
            return _failed("error", f"“{title}” answered with an error: {error}")
        case _:
            return _failed("unavailable", error.public_message)


def _failed(status: Status, text: str) -> ToolOutcome:
    return ToolOutcome(status=status, text=text, content=({"type": "text", "text": text},))


__all__ = ["ArtifactData", "Authorization", "ToolOutcome", "authorize_call", "call_tool"]
