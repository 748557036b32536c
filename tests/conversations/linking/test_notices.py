"""What an answer says of servers that it goes on without, where its person can help."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

from accounts.models import Organization, User
from agents.models import Agent, AgentServer
from chatui.rows import in_rows
from conversations.briefing import problem_notices
from conversations.plans import TurnPlan
from mcpservers.models import MCPServer
from mcpservers.offers import ServerProblem
from tests.conversations.chat import Chat
from tests.conversations.conftest import agent, owner
from tests.fakes.endpoint import Endpoint, text

__all__ = ["agent", "owner"]


def notices(*problems: tuple[str, str], rounds: int = 0) -> list[tuple[str, str, str]]:
    found = [ServerProblem(uuid4(), slug, slug.title(), cast(Any, code), "Why.") for slug, code in problems]
    plan = cast(TurnPlan, SimpleNamespace(turn=SimpleNamespace(rounds=rounds)))
    told = problem_notices(plan, cast(Any, SimpleNamespace(problems=found, offered={})))
    return [(notice.code, notice.message, notice.detail) for notice in told]


def test_each_server_that_wants_something_of_its_person_has_a_notice_of_its_own() -> None:
    told = notices(("notes", "needs_sign_in"), ("tickets", "not_ready"), ("wiki", "unavailable"))
    assert told == [
        ("needs_sign_in", "Notes: Why.", "notes"),
        ("needs_setup", "Tickets: Why.", "tickets"),
        ("tools_unavailable", "No tools are available: Wiki.", "Wiki: Why."),
    ]


def test_a_server_that_is_named_in_the_reason_is_not_named_twice() -> None:
    problem = ServerProblem(uuid4(), "notes", "Notes", "needs_sign_in", "“Notes” needs an account of yours.")
    plan = cast(TurnPlan, SimpleNamespace(turn=SimpleNamespace(rounds=0)))
    told = problem_notices(plan, cast(Any, SimpleNamespace(problems=[problem], offered={})))
    assert told[0].message == "“Notes” needs an account of yours."


def test_nothing_is_said_twice_in_one_turn() -> None:
    assert notices(("notes", "needs_sign_in"), rounds=1) == []


async def test_a_server_that_is_not_set_up_is_named_with_the_way_to_do_so(
    owner: User,
    agent: Agent,
    organization: Organization,
    endpoint: Endpoint,
    make_server: Callable[..., MCPServer],
) -> None:
    def prepare() -> None:
        variables = {"KEY": {"title": "Your key"}}
        server = make_server(organization, "tickets", oauth=None, headers={"X": "{{KEY}}"}, variables=variables)
        AgentServer.objects.create(agent=agent, server=server)

    await in_rows(prepare)
    endpoint.script(text("Without it."))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
    notice = finished["message"]["parts"][0]
    assert (notice["type"], notice["code"], notice["detail"]) == ("notice", "needs_setup", "tickets")
    assert "Your key" in notice["message"]
