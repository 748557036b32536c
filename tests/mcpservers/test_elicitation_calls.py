"""Calls that ask a person on their way: in the stateless era between two requests, in a session during one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError

from accounts.actors import Actor
from accounts.models import Organization, User
from chatui.rows import in_rows
from mcpservers import connections, pool
from mcpservers.calls import ToolOutcome, call_tool
from mcpservers.elicitation import Answer
from mcpservers.health import troubles
from mcpservers.live_questions import Person
from mcpservers.models import MCPServer, ServerGrant
from tests import fakes
from tests.fakes.mcp_server import Exchange, FakeMCPServer, Handler

pytestmark = pytest.mark.django_db(transaction=True)

JSON = dict[str, Any]
SCHEMA: JSON = {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer", "default": 4}}}
FORM: JSON = {"mode": "form", "message": "What is it called?", "requestedSchema": SCHEMA}
ADA = Answer("accept", {"name": "Ada"})
HOTEL = str(Path(fakes.__file__).with_name("mcp_hotel.py"))
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


@pytest.fixture
async def fake() -> AsyncIterator[FakeMCPServer]:
    async with FakeMCPServer() as server:
        yield server


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    await connections.aclose()
    troubles.__init__()  # empty again


@pytest.fixture
def server(organization: Organization, fake: FakeMCPServer) -> MCPServer:
    """One that each user has a connection of their own to."""
    made = MCPServer.objects.create(
        organization=organization,
        slug="tickets",
        title="Tickets",
        url=fake.url,
        headers={"X-User": "{{user.id}}"},
        timeout=60,
        connect_timeout=60,
        rules=[{"tool": "*", "do": "allow"}],
    )
    ServerGrant.objects.create(server=made, whole_organization=True)
    return made


Call = Callable[..., Any]


@pytest.fixture
def call(server: MCPServer, bob: User, actor_of: Callable[[User], Actor]) -> Call:
    """Call `echo` as Bob."""
    actor = actor_of(bob)

    async def run(arguments: JSON | None = None, **options: Any) -> ToolOutcome:
        async def progress(*_: object) -> None: ...

        options = {"turn_id": uuid4(), "progress": progress, "person": Person()} | options
        return await call_tool(actor, server.pk, "echo", arguments or {"text": "hi"}, **options)

    return run


async def row(server: MCPServer, **fields: Any) -> MCPServer:
    def change() -> MCPServer:
        MCPServer.objects.as_system().filter(pk=server.pk).update(**fields)
        return MCPServer.objects.as_system().get(pk=server.pk)

    return await in_rows(change if fields else (lambda: MCPServer.objects.as_system().get(pk=server.pk)))


def question(params: JSON = FORM, method: str = "elicitation/create") -> JSON:
    return {"method": method, "params": params}


def asks(*rounds: JSON) -> Handler:
    """End a call with each of `rounds` in turn; afterwards answer it with what came with it."""
    left = list(rounds)

    async def answer(exchange: Exchange) -> None:
        if left:
            await exchange.result({"resultType": "input_required", **left.pop(0)})
        else:
            came = {key: exchange.params.get(key) for key in ("inputResponses", "requestState")}
            await exchange.result({"content": [{"type": "text", "text": "done"}], "structuredContent": came})

    return answer


def again(outcome: ToolOutcome, answer: Answer, **more: Any) -> JSON:
    """What a call is made again with."""
    assert outcome.asked is not None, outcome.text
    return {"person": Person(kept=outcome.asked.kept, answer=answer, **more)}


# --- Between two requests (the stateless era) -------------------------------------------------------------------------


@pytest.fixture
def stateless(fake: FakeMCPServer) -> FakeMCPServer:
    fake.era = "modern"
    return fake


async def test_a_question_ends_the_call_and_its_answer_makes_it_again(call: Call, stateless: FakeMCPServer) -> None:
    state = 'opaque "\\\u20ac\n '
    stateless.on("tools/call", asks({"inputRequests": {"q": question()}, "requestState": state}))
    outcome = await call()
    assert outcome.asked is not None
    card = dict(outcome.asked.card)
    assert (card["server"], card["title"], card["mode"], card["message"]) == (
        "tickets",
        "Tickets",
        "form",
        "What is it called?",
    )
    assert card["order"] == ["name", "size"]
    assert state not in str(card)
    done = await call(**again(outcome, ADA))
    assert (done.status, done.asked) == ("ok", None)
    first, second = stateless.exchanges_of("tools/call")
    assert second.params["requestState"] == state
    assert second.params["inputResponses"] == {"q": {"action": "accept", "content": {"name": "Ada", "size": 4}}}
    assert second.params["arguments"] == first.params["arguments"]
    assert second.message["id"] != first.message["id"]
    assert "requestState" not in first.params


async def test_another_process_goes_on_where_one_stopped(call: Call, stateless: FakeMCPServer) -> None:
    stateless.on("tools/call", asks({"inputRequests": {"q": question()}, "requestState": "s"}))
    outcome = await call()
    await connections.aclose()  # nothing of the first remains but what was kept
    assert (await call(**again(outcome, ADA))).status == "ok"
    assert stateless.exchanges_of("tools/call")[-1].params["requestState"] == "s"


async def test_a_state_that_is_missing_is_left_out(call: Call, stateless: FakeMCPServer) -> None:
    stateless.on("tools/call", asks({"inputRequests": {"q": question()}}))
    await call(**again(await call(), Answer("decline")))
    params = stateless.exchanges_of("tools/call")[-1].params
    assert params["inputResponses"] == {"q": {"action": "decline"}}
    assert "requestState" not in params


async def test_several_questions_are_asked_one_after_the_other_and_answered_together(
    call: Call, stateless: FakeMCPServer
) -> None:
    place = {"mode": "url", "message": "Pay.", "url": "https://pay.example/1"}
    stateless.on("tools/call", asks({"inputRequests": {"b": question(), "a": question(place)}, "requestState": "s"}))
    first = await call()
    second = await call(**again(first, ADA))
    assert [(outcome.asked.card["step"], outcome.asked.card["steps"]) for outcome in (first, second)] == [
        (1, 2),
        (2, 2),
    ]
    assert second.asked.card["host"] == "pay.example"
    assert stateless.count("tools/call") == 1
    await call(**again(second, Answer("accept")))
    answers = stateless.exchanges_of("tools/call")[-1].params["inputResponses"]
    assert answers == {"b": {"action": "accept", "content": {"name": "Ada", "size": 4}}, "a": {"action": "accept"}}


async def test_who_cancels_is_not_asked_the_rest(call: Call, stateless: FakeMCPServer) -> None:
    stateless.on("tools/call", asks({"inputRequests": {"a": question(), "b": question()}}))
    assert (await call(**again(await call(), Answer("cancel")))).status == "ok"
    answers = stateless.exchanges_of("tools/call")[-1].params["inputResponses"]
    assert answers == {"a": {"action": "cancel"}, "b": {"action": "cancel"}}


async def test_a_second_round_has_its_own_state(call: Call, stateless: FakeMCPServer) -> None:
    stateless.on(
        "tools/call",
        asks({"inputRequests": {"a": question()}, "requestState": "one"}, {"inputRequests": {"b": question()}}),
    )
    second = await call(**again(await call(), ADA))
    await call(**again(second, ADA))
    params = stateless.exchanges_of("tools/call")[-1].params
    assert params["inputResponses"].keys() == {"b"}
    assert "requestState" not in params


async def test_a_result_with_a_state_alone_is_asked_for_again(
    call: Call, stateless: FakeMCPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpservers.calls.AGAIN_SECONDS", 0)
    stateless.on("tools/call", asks({"requestState": "later"}))
    assert (await call()).status == "ok"
    params = stateless.exchanges_of("tools/call")[-1].params
    assert params["requestState"] == "later"
    assert "inputResponses" not in params


async def test_a_server_that_never_stops_asking_is_stopped(
    call: Call, stateless: FakeMCPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpservers.calls.AGAIN_SECONDS", 0)
    stateless.on("tools/call", asks(*[{"requestState": "later"}] * 20))
    outcome = await call()
    assert (outcome.status, stateless.count("tools/call")) == ("error", 11)
    assert "asks again" in outcome.text


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"inputRequests": {"q": question({}, "sampling/createMessage")}}, "a model's answer"),
        ({"inputRequests": {"q": {"method": "roots/list"}}}, "directories"),
        ({"inputRequests": {"q": "?"}}, "something"),
        ({"inputRequests": [question()]}, "protocol"),
        ({"inputRequests": {"q": question()}, "requestState": 7}, "protocol"),
        ({}, "does not say"),
        ({"inputRequests": {f"q{number}": question() for number in range(11)}}, "too much"),
    ],
)
async def test_what_is_not_given_to_servers_is_refused_in_words(
    call: Call, stateless: FakeMCPServer, result: JSON, words: str
) -> None:
    stateless.on("tools/call", asks(result))
    outcome = await call()
    assert (outcome.status, outcome.asked) == ("error", None)
    assert words in outcome.text


async def test_a_question_that_cannot_be_shown_is_declined_and_said(call: Call, stateless: FakeMCPServer) -> None:
    secret = {"message": "m", "requestedSchema": {"type": "object", "properties": {"password": {"type": "string"}}}}
    stateless.on("tools/call", asks({"inputRequests": {"q": question(secret)}}))
    outcome = await call()
    assert outcome.status == "ok"
    assert "asks for a password" in outcome.text
    assert "asks for a password" in outcome.content[-1]["text"]
    assert stateless.exchanges_of("tools/call")[-1].params["inputResponses"] == {"q": {"action": "decline"}}


async def test_an_answer_goes_to_no_other_call(call: Call, server: MCPServer, stateless: FakeMCPServer) -> None:
    stateless.on("tools/call", asks({"inputRequests": {"q": question()}, "requestState": "s"}))
    outcome = await call()
    other = await call({"text": "other"}, **again(outcome, ADA))
    assert (other.status, stateless.count("tools/call")) == ("error", 1)
    assert "changed while its question was open" in other.text
    await row(server, headers={"X-User": "{{user.id}}", "X-New": "1"})
    assert "changed" in (await call(**again(outcome, ADA))).text


async def test_without_anybody_a_question_is_an_error_and_none_is_announced(
    call: Call, stateless: FakeMCPServer
) -> None:
    stateless.on("tools/call", asks({"inputRequests": {"q": question()}}))
    outcome = await call(person=None)
    assert (outcome.status, outcome.asked, stateless.count("tools/call")) == ("error", None, 1)
    assert "nobody is present" in outcome.text
    await call()
    announced = [exchange.params["_meta"][CAPABILITIES] for exchange in stateless.exchanges_of("tools/call")]
    assert "elicitation" not in announced[0]
    assert announced[1]["elicitation"] == {"form": {}, "url": {}}


# --- During a call (the session era) ----------------------------------------------------------------------------------


class Asked:
    """A person who answers as told, and what was shown."""

    def __init__(self, *answers: Answer) -> None:
        self.cards: list[JSON] = []
        self.answers = list(answers)
        self.shown, self.given_up = asyncio.Event(), asyncio.Event()

    async def ask(self, card: JSON) -> Answer:
        self.cards.append(card)
        self.shown.set()
        if self.answers:
            return self.answers.pop(0)
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up.set()
        raise AssertionError

    @property
    def present(self) -> JSON:
        return {"person": Person(self.ask)}


def asking(*questions: JSON) -> Handler:
    """Ask during the call, then tell what was answered."""

    async def answer(exchange: Exchange) -> None:
        answers = [await exchange.ask(params) for params in questions]
        told = [reply.get("result") or reply["error"]["message"] for reply in answers]
        await exchange.result({"content": [], "structuredContent": {"answers": told}})

    return answer


def told(outcome: ToolOutcome) -> list[Any]:
    found: list[Any] = next(part["value"]["answers"] for part in outcome.content if part["type"] == "json")
    return found


async def test_a_session_asks_during_the_call(call: Call, server: MCPServer, fake: FakeMCPServer) -> None:
    fake.on("tools/call", asking(FORM))
    person = Asked(ADA)
    outcome = await call(**person.present)
    assert told(outcome) == [{"action": "accept", "content": {"name": "Ada", "size": 4}}]
    assert person.cards[0]["message"] == "What is it called?"
    assert (await row(server)).asks_people
    initialize = fake.exchanges_of("initialize")[0].params
    assert initialize["capabilities"]["elicitation"] == {"form": {}, "url": {}}


async def test_that_it_asks_is_remembered_of_the_place_alone(
    call: Call, server: MCPServer, fake: FakeMCPServer
) -> None:
    fake.on("tools/call", asking(FORM))
    await call(**Asked(ADA).present)
    assert (await row(server, title="Another title", headers={"X-User": "{{user.name}}"})).asks_people
    moved = await row(server, url=f"{fake.url}?elsewhere=1")
    assert not moved.asks_people, "what is elsewhere has asked nobody"
    assert not (await row(server, url=fake.url, transport="sse")).asks_people
    assert (await row(server, transport="http")).asks_people, "and what came back has"


async def test_what_is_learnt_of_a_place_that_was_left_meanwhile_is_forgotten(
    call: Call, server: MCPServer, fake: FakeMCPServer
) -> None:
    moved = asyncio.Event()

    async def ask(exchange: Exchange) -> None:
        await moved.wait()
        await asking(FORM)(exchange)

    fake.on("tools/call", ask)
    running = asyncio.create_task(call(**Asked(ADA).present))
    await fake.heard("tools/call")
    there = await row(server, url=f"{fake.url}?elsewhere=1")
    moved.set()
    assert (await running).status == "ok"
    assert (await row(server)).asked_at == there.asked_at == ""


async def test_a_question_is_asked_though_it_cannot_be_remembered(
    call: Call, server: MCPServer, fake: FakeMCPServer, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    def away(*_: object) -> None:
        raise OperationalError("the database is away")

    monkeypatch.setattr(pool, "record_asking", away)
    fake.on("tools/call", asking(FORM))
    outcome = await call(**Asked(ADA).present)
    assert told(outcome) == [{"action": "accept", "content": {"name": "Ada", "size": 4}}]
    assert "could not be stored" in caplog.text


async def test_questions_of_one_call_come_one_after_the_other(call: Call, fake: FakeMCPServer) -> None:
    fake.on("tools/call", asking(FORM, FORM))
    outcome = await call(**Asked(ADA, Answer("decline")).present)
    assert [answer["action"] for answer in told(outcome)] == ["accept", "decline"]


async def test_the_time_that_a_person_takes_is_not_the_calls(
    call: Call, fake: FakeMCPServer, ahead: Callable[[float], None]
) -> None:
    shown, release = asyncio.Event(), asyncio.Event()

    async def later(card: JSON) -> Answer:
        shown.set()
        await release.wait()
        return ADA

    fake.on("tools/call", asking(FORM))
    running = asyncio.create_task(call(person=Person(later)))
    await shown.wait()
    ahead(2000)  # longer than both deadlines
    for _ in range(5):
        await asyncio.sleep(0)
    assert not running.done()
    release.set()
    assert (await running).status == "ok"


async def test_on_a_shared_connection_nobody_is_asked_and_the_admin_is_told(
    call: Call, server: MCPServer, fake: FakeMCPServer
) -> None:
    await row(server, headers={})
    fake.on("tools/call", asking(FORM))
    outcome = await call(**Asked(ADA).present)
    assert "share" in told(outcome)[0]
    assert "shared connection" in outcome.text or "users share" in outcome.text
    assert [(trouble.kind, "user scope" in trouble.message) for trouble in troubles.of(server.pk)] == [
        ("needs_user_scope", True)
    ]
    assert "elicitation" not in fake.exchanges_of("initialize")[0].params["capabilities"]
    assert not (await row(server)).asks_people


async def test_calls_of_a_server_that_has_asked_go_one_at_a_time(
    call: Call, server: MCPServer, fake: FakeMCPServer
) -> None:
    await row(server, asked_at=server.place())
    fake.on("tools/call", asking(FORM))
    first, second = Asked(), Asked(ADA)
    one = asyncio.create_task(call(**first.present))
    await first.shown.wait()
    two = asyncio.create_task(call({"text": "second"}, **second.present))
    await asyncio.wait({two}, timeout=0.3)
    assert (fake.count("tools/call"), second.cards) == (1, [])
    one.cancel()
    assert told(await two)[0]["action"] == "accept"
    await first.given_up.wait()


async def test_a_first_question_among_several_calls_is_cancelled_and_said(call: Call, fake: FakeMCPServer) -> None:
    both, begun = asyncio.Event(), list[Exchange]()

    async def answer(exchange: Exchange) -> None:
        begun.append(exchange)
        if len(begun) == 1:
            await both.wait()
            await asking(FORM)(exchange)
        else:
            both.set()
            await fake.until(lambda: bool(fake.answers))
            await fake.usual(exchange)

    fake.on("tools/call", answer)
    person = Asked(ADA)
    one, two = await asyncio.gather(call(**person.present), call(**person.present))
    asked = next(outcome for outcome in (one, two) if "answers" in str(outcome.content))
    assert told(asked) == [{"action": "cancel"}]
    assert "which of several calls" in asked.text
    assert person.cards == []


async def test_a_call_that_is_cancelled_gives_its_question_up(call: Call, fake: FakeMCPServer) -> None:
    fake.on("tools/call", asking(FORM))
    person = Asked()
    running = asyncio.create_task(call(**person.present))
    await person.shown.wait()
    running.cancel()
    await person.given_up.wait()
    await fake.until(lambda: bool(fake.cancelled))


async def test_a_question_that_the_server_takes_back_is_given_up(call: Call, fake: FakeMCPServer) -> None:
    person = Asked()

    async def answer(exchange: Exchange) -> None:
        waiting = asyncio.ensure_future(exchange.ask(FORM))
        await person.shown.wait()
        await exchange.take_back(fake.asked[0])
        await person.given_up.wait()
        waiting.cancel()
        await fake.usual(exchange)

    fake.on("tools/call", answer)
    assert (await call(**person.present)).status == "ok"


async def test_without_anybody_a_question_ends_the_call_at_once(call: Call, fake: FakeMCPServer) -> None:
    fake.on("tools/call", asking(FORM))
    outcome = await call(person=None)
    assert outcome.status == "error"
    assert "nobody is present" in outcome.text
    await fake.until(lambda: bool(fake.cancelled))


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (
            {"message": "m", "requestedSchema": {"type": "object", "properties": {"password": {"type": "string"}}}},
            "pass",
        ),
        (
            {"mode": "url", "message": "m", "url": "javascript:alert(1)", "elicitationId": "e"},
            "does not begin with https",
        ),
    ],
)
async def test_what_cannot_be_shown_is_declined_during_the_call(
    call: Call, fake: FakeMCPServer, params: JSON, words: str
) -> None:
    fake.on("tools/call", asking(params))
    person = Asked(ADA)
    outcome = await call(**person.present)
    assert told(outcome) == [{"action": "decline"}]
    assert words in outcome.text
    assert person.cards == []


async def test_sampling_is_not_given_and_costs_nothing(call: Call, fake: FakeMCPServer) -> None:
    async def answer(exchange: Exchange) -> None:
        reply = await exchange.ask({"messages": [], "maxTokens": 5}, "sampling/createMessage")
        await exchange.result({"content": [{"type": "text", "text": reply["error"]["message"]}]})

    fake.on("tools/call", answer)
    assert "not supported" in (await call(**Asked().present)).text.lower()


# --- Addresses that are to be opened first ----------------------------------------------------------------------------


def refusing(*urls: str, times: int = 1) -> Handler:
    async def answer(exchange: Exchange) -> None:
        if exchange.server.count("tools/call") > times:
            await exchange.server.usual(exchange)
            return
        found = [{"mode": "url", "message": "Sign.", "url": url, "elicitationId": url[-1]} for url in urls]
        await exchange.error(-32042, "URL elicitation required", {"elicitations": found})

    return answer


async def test_addresses_that_an_error_names_are_opened_one_by_one_and_the_call_made_again(
    call: Call, fake: FakeMCPServer
) -> None:
    fake.on("tools/call", refusing("https://a.example/1", "https://a.example/2"))
    first = await call()
    second = await call(**again(first, Answer("accept")))
    assert [outcome.asked.card["url"][-1] for outcome in (first, second)] == ["1", "2"]
    assert first.asked.card["elicitation"] == "1"
    assert (await call(**again(second, Answer("accept")))).text == "hi"
    assert fake.exchanges_of("tools/call")[-1].params.keys() == fake.exchanges_of("tools/call")[0].params.keys()


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_an_address_that_is_declined_ends_the_call(call: Call, fake: FakeMCPServer, action: Any) -> None:
    fake.on("tools/call", refusing("https://a.example/1", "https://a.example/2"))
    outcome = await call(**again(await call(), Answer(action)))
    assert (outcome.status, fake.count("tools/call")) == ("error", 1)
    assert "declined" in outcome.text


async def test_an_address_that_is_none_ends_the_call_and_says_why(call: Call, fake: FakeMCPServer) -> None:
    fake.on("tools/call", refusing("javascript:1"))
    outcome = await call()
    assert (outcome.status, outcome.asked) == ("error", None)
    assert "https" in outcome.text


async def test_an_address_that_is_never_dealt_with_is_not_asked_for_for_ever(call: Call, fake: FakeMCPServer) -> None:
    fake.on("tools/call", refusing("https://a.example/1", times=100))
    outcome = await call()
    for _ in range(9):
        outcome = await call(**again(outcome, Answer("accept")))
    outcome = await call(**again(outcome, Answer("accept")))
    assert "asks again" in outcome.text


async def test_what_was_dealt_with_is_heard(call: Call, server: MCPServer, fake: FakeMCPServer) -> None:
    heard: asyncio.Queue[Any] = asyncio.Queue()

    async def completed(target: Any, elicitation: str) -> None:
        heard.put_nowait((target.server_id, target.user_id, elicitation))

    connections.manager().on_completed.append(completed)
    fake.on("tools/call", refusing("https://a.example/1"))
    await call()
    await fake.until(lambda: bool(fake.open_streams))
    await fake.notify("notifications/elicitation/complete", {"elicitationId": "1"})
    server_id, user_id, elicitation = await heard.get()
    assert (server_id, elicitation) == (server.pk, "1")
    assert user_id is not None


# --- A server of the official SDK -------------------------------------------------------------------------------------


@pytest.fixture
def hotel(server: MCPServer) -> MCPServer:
    server.transport, server.url, server.headers = "stdio", "", {}
    server.command, server.args = sys.executable, [HOTEL]
    server.timeout = server.connect_timeout = 60
    server.save()
    return server


async def test_a_server_of_the_official_sdk_asks_and_gets_its_answer(
    hotel: MCPServer, bob: User, actor_of: Callable[[User], Actor]
) -> None:
    actor = await in_rows(actor_of, bob)

    async def progress(*_: object) -> None: ...

    async def book(person: Person) -> ToolOutcome:
        return await call_tool(
            actor, hotel.pk, "book", {"city": "Rome"}, turn_id=uuid4(), progress=progress, person=person
        )

    first = await book(Person())
    assert first.asked is not None, first.text
    assert first.asked.card["message"] == "Who stays in Rome?"
    assert first.asked.card["schema"]["properties"]["name"]["title"] == "Your name"
    done = await book(**again(first, Answer("accept", {"name": "Ada"})))
    assert (done.status, done.text.startswith("Ada stays 2 nights in Rome")) == ("ok", True)
    declined = await book(**again(await book(Person()), Answer("decline")))
    assert (declined.status, declined.asked) == ("error", None)
