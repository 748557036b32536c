"""`call_tool`: check again with fresh rows, resolve, borrow, call, and turn whatever happens into an outcome.

A tool never runs twice by our doing: a call is repeated once, and only if it certainly did not reach the server or
the tool only reads.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings

from accounts.actors import Actor
from chatui.errors import ChatUIError, PermissionDeniedError
from chatui.rows import in_rows
from chatui.text import clean_json
from mcpservers import approvals, fetching, learning, pins, results
from mcpservers.acting import Identity, acting_target
from mcpservers.authorizing import DIRECTLY, Authorization, Through, authorize_call
from mcpservers.elicitation import Answer
from mcpservers.errors import (
    BusyError,
    ConnectionLostError,
    NobodyPresentError,
    NotReadyError,
    RequestFailedError,
    RequestTimeoutError,
    ServerUnavailableError,
    SignInRequiredError,
    ToolMissingError,
)
from mcpservers.health import troubles
from mcpservers.interruptions import Interruption, NotPossibleError, binding, resumed
from mcpservers.live_questions import Person
from mcpservers.models import MCPServer
from mcpservers.outcomes import ArtifactData, Asked, Status, ToolOutcome
from mcpservers.pins import CallPins, Owner, owner_of
from mcpservers.requests import RequestContext
from mcpservers.sending import Permission, Progress, ToolCall, known_result
from mcpservers.signing_in import completed
from mcpservers.transports import ConnectionTarget

logger = logging.getLogger(__name__)
URL_ELICITATION_REQUIRED = -32042  # MCP 2025-11-25
AGAIN_SECONDS = 0.25
_EFFECT = "It may have taken effect: find out before you try again."


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
    account_id: UUID | None = None,
    through: Through = DIRECTLY,
) -> ToolOutcome:
    """Call a tool as `actor` and say how it ended. Raises nothing but `CancelledError`, which reaches the server.

    A server whose definition depends on the turn needs its `request`, whose run is open (`ConnectionManager.open_run`).
    The outcome's text is for the model; `duration_ms` is the whole time, opening a connection included. `person` is
    who can be asked by the server; without one a call that asks is an error. `through` has a word in it each time that
    the rows are looked at, which is at once and, where the call then has to wait, again before it is sent.
    """
    began = time.monotonic()
    call = ToolCall(
        tool, clean_json(dict(arguments)), input_schema, output_schema, annotations or {}, images, pin, person
    )
    authorize = partial(
        authorize_call, actor, server_id, tool, allow_globs=allow_globs, account_id=account_id, through=through
    )
    try:
        outcome = await _outcome(authorize, call, progress, request)
    except Exception:  # boundary: the loop goes on with an error result, whatever went wrong here
        logger.exception("The call of a tool failed in turn %s.", turn_id)
        outcome = _failed("error", f"The call of “{tool}” failed for a reason of our own.")
    return replace(outcome, duration_ms=round((time.monotonic() - began) * 1000))


async def _outcome(
    authorize: Callable[[], Authorization], call: ToolCall, progress: Progress, request: RequestContext | None
) -> ToolOutcome:
    permission = Permission()
    authorization = await in_rows(authorize)
    server = authorization.server
    if not authorization.allowed or server is None or authorization.actor is None:
        return _denied(call, authorization.reason)
    try:
        json.dumps(call.arguments, allow_nan=False)
        identity = authorization.identity
        target = acting_target(server, authorization.actor, authorization.variables, identity, request)
    except ValueError:
        return _failed("error", "The arguments hold a number that JSON does not have (NaN or an infinity).")
    except NotReadyError as error:
        return _failed("unavailable", f"“{server.title}” is not set up. {error.public_message}")
    permission.refusal = partial(_refused_by_now, authorize, owner_of(target), call.pin)
    outcome = await _made(target, server, replace(call, permission=permission), authorization, progress)
    return replace(outcome, account_id=target.account.id) if target.account is not None else outcome


def _refused_by_now(authorize: Callable[[], Authorization], owner: Owner, pin: str) -> str:
    now = authorize()
    return now.pins.refusal(owner, pin) if now.allowed else now.reason


async def _made(
    target: ConnectionTarget, server: MCPServer, call: ToolCall, authorization: Authorization, progress: Progress
) -> ToolOutcome:
    """The call that is allowed, made with whoever's account it is."""
    identity = authorization.identity
    try:
        if identity.is_missing:
            raise SignInRequiredError(server.pk, server.slug, server.title)
        waits = await _waits(target, call, authorization.pins)
        if waits:
            return _denied(call, waits)
        found = await _concluded(target, call, _only_reads(server, call), progress)
    except ChatUIError as error:
        needed = await learning.sign_in_for(target, error)
        if needed is not None:
            return await _signed_out(needed, server, identity)
        _noted(error, target)
        return _explained(error, server)
    except NotPossibleError as error:
        return _failed("error", f"“{server.title}” {error}")
    if isinstance(found, Interruption):
        return _interrupted(found, server)
    return _with_notes(_normalised(found, call, target), call)


async def _waits(target: ConnectionTarget, call: ToolCall, accepted: CallPins) -> str:
    """Why this version of the tool may not be called; "" if it may.

    With an account that was linked after the tools were offered nothing was listed yet: that is done first.
    """
    owner = owner_of(target)
    waits = accepted.refusal(owner, call.pin)
    if waits and owner.user_id is not None and target.account is not None and not accepted.has_view(owner):
        await fetching.fetches().listed(target)
        accepted = await in_rows(pins.of_call, target.server_id, call.tool, owner.user_id, own=accepted.own)
        waits = accepted.refusal(owner, call.pin)
    return waits


def _only_reads(server: MCPServer, call: ToolCall) -> bool:
    """Whether running it twice does no harm: an admin's word, or the server's own hint, which harms only itself."""
    hinted = any(call.annotations.get(hint) is True for hint in ("readOnlyHint", "idempotentHint"))
    return hinted or any(approvals.matches(glob, call.tool) for glob in server.read_only)


async def _concluded(
    target: ConnectionTarget, call: ToolCall, repeatable: bool, progress: Progress
) -> dict[str, Any] | Interruption:
    """The raw result, or the round of questions that stands before it. Raises `NotPossibleError`."""
    who = target.account.id if target.account is not None else target.user_id
    standing = Interruption(binding(target.server_id, target.definition_hash, who, call.tool, call.arguments))
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
    limit = settings.MCP["RESULT_MAX_CHARACTERS"]
    return results.normalise(raw, images=call.images, output_schema=call.output_schema, limit=limit)


def _denied(call: ToolCall, reason: str) -> ToolOutcome:
    return replace(_failed("denied", f"The call of “{call.tool}” is denied. {reason}"), refusal=reason)


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


async def _signed_out(error: SignInRequiredError, server: MCPServer, identity: Identity) -> ToolOutcome:
    """A call that did not run for want of an account. Only who links accounts there can be sent to sign in."""
    outcome = _failed("unavailable", f"The call was not made. {error.public_message}")
    if server.signs_in and not identity.links:
        return outcome
    return replace(outcome, sign_in=await completed(error, server))


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
