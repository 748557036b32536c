"""When a call asks for a sign-in, and when it does not ask again."""

from __future__ import annotations

from uuid import UUID

from accounts.actors import Actor
from accounts.models import Role
from agents.parts import (
    Decision,
    PersonAnswer,
    PersonNeeded,
    PreparedCall,
    Resumed,
    ToolRequest,
    ToolResult,
    ToolStatus,
)
from agents.signing_in import CARDS, sign_in_first
from mcpservers.errors import SignInReason, SignInRequiredError

ACTOR = Actor(UUID(int=1), UUID(int=2), Role.MEMBER, organization_slug="acme")
CALL = PreparedCall(ToolRequest("1", "notes__whoami", "{}"), Decision.ALLOW)
RESULT = ToolResult(ToolStatus.UNAVAILABLE, "The call was not made.")


def needed(*scopes: str, reason: SignInReason = "none") -> SignInRequiredError:
    return SignInRequiredError(
        UUID(int=7),
        "notes",
        "Notes",
        reason=reason,
        scopes=scopes,
        account="Ada",
        account_id=UUID(int=9),
        host="login.example.org",
    )


def after(first: ToolResult | PersonNeeded, account: str = "Ada") -> PreparedCall:
    """The same call, made again after a sign-in."""
    assert isinstance(first, PersonNeeded)
    answer = PersonAnswer("accept", {"account": account})
    return PreparedCall(CALL.request, Decision.ALLOW, resumed=Resumed(first, answer))


def asked(call: PreparedCall, error: SignInRequiredError, *, present: bool = True) -> ToolResult | PersonNeeded:
    return sign_in_first(ACTOR, call, error, RESULT, present=present)


def test_the_card_says_where_as_whom_and_for_what() -> None:
    card = asked(CALL, needed("read", "write notes"))
    assert isinstance(card, PersonNeeded)
    assert card.kind == "authorization"
    assert card.card == {
        "server": "notes",
        "title": "Notes",
        "url": f"/o/acme/connections/notes/begin?account={UUID(int=9)}&scopes=read+write+notes",
        "scopes": ["read", "write notes"],
        "new_scopes": [],
        "account": "Ada",
        "host": "login.example.org",
    }


def test_where_nobody_is_present_the_result_says_what_to_do() -> None:
    result = asked(CALL, needed(), present=False)
    assert isinstance(result, ToolResult)
    assert result.status is ToolStatus.UNAVAILABLE
    assert "Nobody is present" in result.text
    assert result.content == ({"type": "text", "text": result.text},)


def test_after_a_sign_in_it_is_not_asked_for_again() -> None:
    first = asked(CALL, needed("read"))
    for reason in ("none", "expired", "refused", "insufficient_scope"):
        again = asked(after(first), needed("read", reason=reason))
        assert isinstance(again, ToolResult)
        assert "nobody is asked again" in again.text


def test_who_signed_in_with_another_account_is_told_which_one_is_in_use() -> None:
    first = asked(CALL, needed("write", reason="insufficient_scope"))
    again = asked(after(first, "Grace"), needed("write", reason="insufficient_scope"))
    assert isinstance(again, ToolResult)
    assert "signed in as “Grace”, but this chat uses “Ada”" in again.text


def test_more_access_is_asked_for_while_it_is_more_and_three_times_at_most() -> None:
    card = asked(CALL, needed("a"))
    for number in range(1, CARDS):
        card = asked(after(card), needed(f"more{number}", reason="insufficient_scope"))
        assert isinstance(card, PersonNeeded)
    assert isinstance(asked(after(card), needed("yet another", reason="insufficient_scope")), ToolResult)
