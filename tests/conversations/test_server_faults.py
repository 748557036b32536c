"""MCP servers that are down, hang, die, list without end or say too much: told where the person looks, in plain words.

Whatever a server does, the turn ends well, nothing that was shown is lost, and the next message works.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from accounts.models import User
from agents.models import Agent
from mcpservers.models import MCPServer, ServerGrant
from tests.conversations.chat import Chat, Frame, gapless
from tests.fakes.anew import served_anew
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_server import Exchange, FakeMCPServer, big, die, hang, status
from tests.fakes.mcp_targets import STDIO_FAKE


@pytest.fixture
async def fake(house: Any) -> AsyncIterator[FakeMCPServer]:
    async with served_anew() as server:
        yield server


@pytest.fixture
def server(transactional_db: None, organization: Any, fake: FakeMCPServer) -> MCPServer:
    server = MCPServer.objects.create(
        organization=organization,
        slug="odd",
        title="Odd",
        url=fake.url,
        timeout=60,
        rules=[{"tool": "*", "do": "allow"}],
    )
    ServerGrant.objects.create(server=server, whole_organization=True)
    return server


@pytest.fixture
def agent(organization: Any, endpoint: Endpoint, server: MCPServer, make_agent: Callable[..., Agent]) -> Agent:
    return make_agent(organization, base_url=endpoint.base_url, servers=[server])


def of(finished: Frame, kind: str) -> list[Frame]:
    return [part for part in finished["message"]["parts"] if part["type"] == kind]


def in_plain_words(chat: Chat) -> bool:
    shown = json.dumps(chat.seen)
    return "Traceback" not in shown and "Error(" not in shown and "('" not in shown


async def ends_well(chat: Chat, finished: Frame) -> bool:
    """Whether the turn ended as it should and the next message is answered."""
    conversation = next(frame for frame in chat.seen if frame["type"] == "turn.started")["conversation_id"]
    again = await chat.ask("and now?", conversation_id=conversation)
    whole = gapless(chat.frames(finished["turn_id"])) and chat.text(again["turn_id"]) == "still here"
    return whole and finished["outcome"] == again["outcome"] == "completed" and in_plain_words(chat)


@pytest.mark.parametrize(
    ("fault", "ends", "told"),
    [
        (hang, "timeout", "gave no answer within 1 s"),
        (die, "error", "lost"),
        (status(500), "error", "500"),
        (big(17 * 2**20), "error", "larger than"),
    ],
    ids=["hangs", "dies", "fails", "says too much"],
)
async def test_a_call_that_its_server_does_not_answer_is_an_error_that_says_so(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer, fault: Any, ends: str, told: str
) -> None:
    fake.on("tools/call", fault)
    if fault is hang:
        await MCPServer.objects.as_system().aupdate(timeout=1)
    endpoint.script(calls(("odd__echo", {"text": "x"}), text="Let me see. "), text("It failed."), text("still here"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        (call,) = of(finished, "call")
        assert call["status"] == ends
        assert told in call["content"][0]["text"]
        assert told in endpoint.last.messages[-1]["content"]
        assert chat.text(finished["turn_id"]) == "Let me see. It failed."
        assert await ends_well(chat, finished)


async def test_a_server_that_is_down_is_a_notice_and_the_answer_comes_without_it(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer
) -> None:
    await fake.stop()
    endpoint.script(text("without it"), text("still here"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        (notice, *_) = of(finished, "notice")
        assert notice["detail"] == "Odd: “Odd” cannot be reached: 127.0.0.1: the connection was refused."
        assert chat.text(finished["turn_id"]) == "without it"
        assert not endpoint.requests[0].tools
        assert await ends_well(chat, finished)


async def test_a_list_without_end_offers_what_came_within_the_bound(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer, settings: Any
) -> None:
    settings.MCP = {**settings.MCP, "LIST_MAX_PAGES": 3}

    async def endless(exchange: Exchange) -> None:
        number = int(exchange.params.get("cursor", "0"))
        tool = {"name": f"t{number}", "inputSchema": {"type": "object"}}
        await exchange.result({"tools": [tool], "nextCursor": str(number + 1)})

    fake.on("tools/list", endless)
    endpoint.script(text("ok"), text("still here"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        assert endpoint.requests[0].tools == ["odd__t0", "odd__t1", "odd__t2"]
        assert await ends_well(chat, finished)
    assert fake.count("tools/list") == 3


@pytest.mark.parametrize(
    ("flags", "ends"),
    [(["--banner", "--noise"], "ok"), (["--die-in-call"], "error"), (["--malformed"], "error")],
    ids=["prints rubbish", "crashes", "answers rubbish"],
)
async def test_a_local_server_that_crashes_or_prints_rubbish_costs_its_call_at_most(
    owner: User, endpoint: Endpoint, server: MCPServer, flags: list[str], ends: str, settings: Any, tmp_path: Any
) -> None:
    settings.VAR_DIR = tmp_path
    await (
        MCPServer.objects.as_system()
        .filter(pk=server.pk)
        .aupdate(transport="stdio", command=sys.executable, args=[STDIO_FAKE, *flags], url="", timeout=60)
    )
    endpoint.script(calls(("odd__environment", {})), text("done"), text("still here"))
    async with await Chat.of(owner) as chat:
        finished = await chat.ask()
        (call,) = of(finished, "call")
        assert call["status"] == ends
        assert call["content"]
        assert await ends_well(chat, finished)
