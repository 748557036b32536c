"""What is measured inside a process of the product: calls, the offer, queries. Prints JSON on its last line.

    python -m benchmarks.inside WHAT …       with the settings of a site in the environment
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatui.settings")
django.setup()

from django.db import connections  # noqa: E402  # Django is set up first
from django.db.backends.signals import connection_created  # noqa: E402
from django.utils import timezone  # noqa: E402

from accounts.actors import Actor, find_actor  # noqa: E402
from accounts.models import ApiKey, Membership, Organization, User  # noqa: E402
from agents.models import Agent  # noqa: E402
from benchmarks.product import ORGANIZATION  # noqa: E402
from chatui.rows import in_rows  # noqa: E402
from conversations.models import Conversation, Message  # noqa: E402
from mcpservers.models import MCPServer, ServerGrant  # noqa: E402

SERVERS = 20


# --- Rows ---------------------------------------------------------------------------------------------------------


def make_people(count: int) -> list[str]:
    """Members of the organization, each with an API key; the keys."""
    organization = Organization.objects.get(slug=ORGANIZATION)
    keys = []
    for number in range(count):
        user = User.objects.create(username=f"person-{number}", email=f"person-{number}@example.org", password="!")
        Membership.objects.create(user=user, organization=organization)
        keys.append(ApiKey.issue(organization_id=organization.pk, user=user, name="benchmark")[1])
    return keys


def somebody() -> tuple[Actor, str]:
    """An actor and a key of theirs."""
    organization = Organization.objects.get(slug=ORGANIZATION)
    user = User.objects.filter(memberships__organization=organization).order_by("pk")[0]
    actor = find_actor(user.pk, organization.pk)
    assert actor is not None
    return actor, ApiKey.issue(organization_id=organization.pk, user=user, name="inside")[1]


def long_conversation(actor: Actor, messages: int) -> Conversation:
    """A conversation with so many messages, questions and answers in turn."""
    conversation = Conversation.objects.create(
        organization_id=actor.organization_id,
        owner_id=actor.user_id,
        agent=Agent.objects.as_system().get(slug="first"),
        title="Long",
        active_at=timezone.now(),
    )
    rows: list[Message] = []
    for number in range(messages):
        role = Message.Role.USER if number % 2 == 0 else Message.Role.ASSISTANT
        part = {"type": "text", "text": f"Message {number} of a long conversation."}
        parent = rows[-1] if rows else None
        rows.append(Message(conversation=conversation, parent=parent, role=role, parts=[part], search_text=part["text"]))
    Message.objects.bulk_create(rows)
    conversation.current_leaf = rows[-1] if rows else None
    conversation.save()
    return conversation


class Queries:
    """Every query of every thread, noted from the moment this is made."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        connection_created.connect(self._watch, weak=False)
        connections.close_all()

    def _watch(self, connection: Any, **_: Any) -> None:
        connection.execute_wrappers.append(self._note)

    def _note(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if not sql.startswith(("PRAGMA", "SAVEPOINT", "RELEASE")):
            self.noted.append(sql)
        return execute(sql, params, many, context)

    @contextmanager
    def taken(self) -> Iterator[list[str]]:
        """The queries of the block, in a list that is filled at its end."""
        before, found = len(self.noted), []
        yield found
        found.extend(self.noted[before:])


# --- Measures -----------------------------------------------------------------------------------------------------


async def timed(work: Callable[[], Awaitable[Any]], times: int) -> float:
    """Milliseconds of one of `times` in a row."""
    began = time.perf_counter()
    for _ in range(times):
        await work()
    return (time.perf_counter() - began) / times * 1000


async def calls(url: str) -> dict[str, float]:
    """Milliseconds of a call: through the product, with a bare warm client, with a client for each call."""
    from benchmarks import direct
    from mcpservers import connections as mcp_connections
    from mcpservers.calls import call_tool

    actor, _ = await in_rows(somebody)
    server = await in_rows(MCPServer.objects.as_system().get, slug="echo")

    async def progress(done: float, total: float | None, message: str | None) -> None:
        pass

    async def ours() -> None:
        outcome = await call_tool(actor, server.pk, "echo", {"text": "hello"}, turn_id=None, progress=progress)
        assert outcome.status == "ok", outcome
        assert outcome.text == "hello", outcome

    async def connecting() -> None:
        async with direct.mcp_client(url) as client:
            await direct.echoed(client, "hello")

    rounds: dict[str, list[float]] = {"ours": [], "bare": [], "connecting": []}
    async with direct.mcp_client(url) as client:
        for number in range(16):
            for name, work, times in (
                ("ours", ours, 25),
                ("bare", lambda: direct.echoed(client, "hello"), 25),
                ("connecting", connecting, 4),
            ):
                took = await timed(work, times)
                if number > 0:  # the first round warms up
                    rounds[name].append(took)
    await mcp_connections.aclose()
    return {name: sorted(took)[len(took) // 2] for name, took in rounds.items()} | {
        f"{name}_best": min(took) for name, took in rounds.items()
    }


def make_servers(url: str) -> list[MCPServer]:
    organization = Organization.objects.get(slug=ORGANIZATION)
    servers = []
    for number in range(SERVERS):
        server, made = MCPServer.objects.as_system().get_or_create(
            organization=organization,
            slug=f"many-{number}",
            defaults={"title": f"Server {number}", "transport": "streamable-http", "url": url},
        )
        if made:
            ServerGrant.objects.create(server=server, whole_organization=True)
        servers.append(server)
    return servers


async def offer(url: str) -> dict[str, float]:
    """Milliseconds to build what the model is offered from `SERVERS` servers, from memory and from the rows."""
    from mcpservers import catalogue
    from mcpservers import connections as mcp_connections

    actor, _ = await in_rows(somebody)
    servers = await in_rows(make_servers, url)
    for server in servers:
        report = await catalogue.refresh(server.pk)
        assert not report.error, report
    await mcp_connections.aclose()
    wanted = [catalogue.WantedServer(server.pk, ()) for server in servers]
    opened: list[Any] = []
    sys.addaudithook(lambda event, args: opened.append(args) if event == "socket.connect" else None)
    took, tools, queries = [], 0, Queries()
    with queries.taken() as noted:
        pass
    for _ in range(25):
        began = time.perf_counter()
        with queries.taken() as noted:
            found = await catalogue.offered_to(actor, wanted)
        took.append((time.perf_counter() - began) * 1000)
        tools = len(found.tools)
        assert not found.problems, found.problems
    assert not opened, opened
    return {"first": took[0], "median": sorted(took)[len(took) // 2], "best": min(took), "tools": tools,
            "queries": len(noted), "connects": len(opened)}


async def one_turn(key: str, **fields: Any) -> dict[str, Any]:
    """A turn from its beginning to its last frame, which is returned."""
    from accounts.doors import Door
    from conversations import beginning, feed
    from conversations.turns import NewTurn

    door = Door(ORGANIZATION, authorization=f"Bearer {key}")
    new = NewTurn(request_id=uuid4(), content=[{"type": "text", "text": "How are you?"}], **fields)
    begun = await beginning.begin(door, new)
    last = ""
    async for text in feed.current().follow(begun.turn_id, 0):
        last = text
    frame: dict[str, Any] = json.loads(last)
    assert frame["type"] == "turn.finished", frame
    assert frame["outcome"] == "completed", frame
    return frame


def open_conversation(key: str, conversation: Conversation) -> int:
    """Load it as the page does; the number of its messages."""
    from django.test import Client

    client = Client(headers={"Authorization": f"Bearer {key}"}, SERVER_NAME="127.0.0.1")
    answer = client.get(f"/api/v1/conversations/{conversation.pk}/messages")
    assert answer.status_code == 200, answer.content
    return len(answer.json()["messages"])


async def queries() -> dict[str, Any]:
    """Queries of a turn in a short and in a long conversation, and of opening one; the turn's SQL."""
    from chatui import lifecycle

    counted = Queries()
    actor, key = await in_rows(somebody)
    await one_turn(key, agent="first")  # the first use of everything
    found: dict[str, Any] = {}
    for messages in (2, 200):
        conversation = await in_rows(long_conversation, actor, messages)
        with counted.taken() as noted:
            await one_turn(key, conversation_id=conversation.pk)
        found[f"turn_{messages}"] = len(noted)
    with counted.taken() as noted:
        await one_turn(key, agent="first")
    found["turn_new"], found["sql"] = len(noted), list(noted)
    for messages in (10, 1000):
        conversation = await in_rows(long_conversation, actor, messages)
        began = time.perf_counter()
        with counted.taken() as noted:
            opened = await in_rows(open_conversation, key, conversation)
        assert opened == messages, opened
        found[f"open_{messages}"] = len(noted)
        found[f"open_{messages}_ms"] = (time.perf_counter() - began) * 1000
    await lifecycle.aclose()
    return found


def main(what: str, *arguments: str) -> Any:
    match what:
        case "people":
            return make_people(int(arguments[0]))
        case "calls":
            return asyncio.run(calls(*arguments))
        case "offer":
            return asyncio.run(offer(*arguments))
        case "queries":
            return asyncio.run(queries())
        case _:
            raise SystemExit(f"benchmarks.inside: there is no {what!r}")


if __name__ == "__main__":
    socket.setdefaulttimeout(30)
    print(json.dumps(main(*sys.argv[1:])))
