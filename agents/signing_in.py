"""A call that needs an account first: one card for it, and no second one but for more access than was asked for."""

from __future__ import annotations

from dataclasses import replace

from accounts.actors import Actor
from agents.parts import PersonNeeded, PreparedCall, ToolResult
from mcpservers.credentials import sign_in_of
from mcpservers.errors import SignInRequiredError

CARDS = 3  # of one call; each asks for access that was not asked for before
NOBODY = (
    "Nobody is present to sign in. Whoever this is done for can sign in on the page “Connections” of this product, "
    "and then it can be tried again."
)
OTHER = (
    "The person signed in as “{given}”, but this chat uses “{account}”. Which account it uses is chosen among the "
    "tools of the chat; or the page “Connections” lets one sign in again with the other one."
)
STILL = "That was asked for already, so nobody is asked again. The page “Connections” shows what is connected."


def sign_in_first(
    actor: Actor, call: PreparedCall, error: SignInRequiredError, result: ToolResult, *, present: bool
) -> ToolResult | PersonNeeded:
    """The card of the sign-in that `call` needs; where nobody is present, or signed in before, an error result."""
    kept = call.resumed.needed.kept if call.resumed is not None else {}
    asked, scopes = int(kept.get("cards", 0)), set(kept.get("scopes", ()))
    wants_more = error.reason == "insufficient_scope" and set(error.scopes) - scopes
    if not present:
        return _told(result, NOBODY)
    if asked >= CARDS or (asked and not wants_more):
        return _told(result, _other(call, error) or STILL)
    kept = {"cards": asked + 1, "scopes": sorted(scopes | set(error.scopes))}
    return PersonNeeded("authorization", sign_in_of(actor.organization_slug, error).card(), kept)


def _other(call: PreparedCall, error: SignInRequiredError) -> str:
    """That the sign-in was with another account than the one in use, where it was."""
    given = call.resumed.answer.content.get("account") if call.resumed is not None else None
    if not given or not error.account or given == error.account:
        return ""
    return OTHER.format(given=given, account=error.account)


def _told(result: ToolResult, what: str) -> ToolResult:
    text = f"{result.text} {what}"
    return replace(result, text=text, content=({"type": "text", "text": text},))
