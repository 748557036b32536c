"""When a server is left alone, for whom, for how long, and what ends it."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpservers import breaker as module
from mcpservers.breaker import Breaker, Circuit
from mcpservers.errors import ServerUnavailableError, ThrottledError
from mcpservers.requests import RequestContext
from mcpservers.transports import target_of
from tests.fakes.mcp_server import FakeMCPServer, die, once, status
from tests.fakes.mcp_targets import GLOBEX, actor, definition, managed
from tests.mcpservers.test_connections import TOKEN, call

ALICE, BOB = UUID(int=1), UUID(int=2)
SERVER = UUID(int=9)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock)


def circuit(user: UUID | None = None, credential: str = "a") -> Circuit:
    return Circuit(UUID(int=8), SERVER, user, credential)


def fail(breaker: Breaker, where: Circuit, times: int = 3) -> None:
    for _ in range(times):
        breaker.failed(where, "It is down.")


def seconds_left(breaker: Breaker, clock: Clock, where: Circuit) -> float:
    """How long the server is left alone from now on, found by waiting."""
    before = clock.now
    while breaker.refusal(where) is not None:
        clock.now += 1
    left, clock.now = clock.now - before, before
    return left


def test_the_third_failure_in_the_window_makes_a_pause(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, circuit(), 2)
    breaker.check(circuit())
    fail(breaker, circuit(), 1)
    with pytest.raises(ThrottledError, match=r"It is down\. It is not tried again before \d\d:\d\d:\d\d UTC") as caught:
        breaker.check(circuit())
    assert caught.value.retry_at.tzinfo is not None
    assert seconds_left(breaker, clock, circuit()) == 30


def test_failures_that_are_far_apart_make_none(breaker: Breaker, clock: Clock) -> None:
    for _ in range(10):
        fail(breaker, circuit(), 1)
        clock.now += 61
    breaker.check(circuit())


def test_each_further_failure_doubles_the_pause_up_to_the_longest(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, circuit())
    pauses = []
    for _ in range(6):
        pauses.append(seconds_left(breaker, clock, circuit()))
        clock.now += pauses[-1]
        breaker.check(circuit())
        fail(breaker, circuit(), 1)
    assert pauses == [30, 60, 120, 240, 300, 300]


def test_a_failure_of_an_attempt_that_began_before_the_pause_does_not_lengthen_it(
    breaker: Breaker, clock: Clock
) -> None:
    fail(breaker, circuit(), 9)
    assert seconds_left(breaker, clock, circuit()) == 30


def test_a_long_quiet_time_is_a_new_beginning(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, circuit())
    clock.now += 30 + 121
    fail(breaker, circuit(), 2)
    breaker.check(circuit())


def test_an_answer_forgives_everything(breaker: Breaker) -> None:
    fail(breaker, circuit(), 2)
    breaker.succeeded(circuit())
    fail(breaker, circuit(), 2)
    breaker.check(circuit())


def test_a_reset_is_of_one_user_or_of_all(breaker: Breaker) -> None:
    for user in (ALICE, BOB):
        fail(breaker, circuit(user))
    breaker.reset(SERVER, user_id=ALICE)
    assert [found.user_id for found, _ in breaker.all_refusals()] == [BOB]
    breaker.reset(SERVER)
    assert breaker.all_refusals() == []


def test_the_memory_is_bounded(breaker: Breaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CIRCUITS", 5)
    for _ in range(20):
        fail(breaker, circuit(uuid4()))
    assert len(breaker._records) == 5


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["fail", "succeed", "wait"])), max_size=60))
def test_what_one_credential_does_never_throttles_another(steps: list[tuple[str, str]]) -> None:
    clock = Clock()
    shared, alone = Breaker(clock), {name: Breaker(clock) for name in "abc"}
    for name, step in steps:
        for each in (shared, alone[name]):
            if step == "fail":
                each.failed(circuit(credential=name), "x")
            elif step == "succeed":
                each.succeeded(circuit(credential=name))
        clock.now += 10 if step == "wait" else 0
    for name, own in alone.items():
        where = circuit(credential=name)
        assert (shared.refusal(where) is None) == (own.refusal(where) is None)


# --- Over real connections ----------------------------------------------------------------------------------------


async def failed(manager: Any, where: Any, times: int = 3) -> None:
    for _ in range(times):
        with pytest.raises(ServerUnavailableError) as caught:
            await call(manager, where)
        assert not isinstance(caught.value, ThrottledError)


async def test_a_server_that_refuses_connections_is_not_asked_again_for_a_while() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        server.on("POST", status(503))
        where = target_of(definition(server.url), actor(), {})
        await failed(manager, where)
        asked = server.count("POST")
        with pytest.raises(ThrottledError, match=r"HTTP 503.*not tried again before"):
            await call(manager, where)
        assert server.count("POST") == asked
        server.on("POST", None)
        manager.drop(where.server_id)  # what *Reconnect* does
        assert await call(manager, where) == "hi"


async def test_one_users_failures_throttle_neither_another_nor_another_organization_nor_other_values() -> None:
    async with FakeMCPServer() as server, managed() as manager:

        async def picky(exchange: Any) -> None:
            if exchange.headers["authorization"] == "Bearer wrong-one":
                await exchange.respond(401)
            else:
                await server.usual(exchange)

        server.on("POST", picky)
        one = definition(server.url, **TOKEN)
        alice = target_of(one, actor("alice"), {"TOKEN": "wrong-one"})
        await failed(manager, alice)
        with pytest.raises(ThrottledError):
            await call(manager, alice)
        assert await call(manager, target_of(one, actor("bob"), {"TOKEN": "right-one"})) == "hi"
        assert await call(manager, target_of(one, actor("alice"), {"TOKEN": "right-one"})) == "hi"
        one.organization_id = GLOBEX
        assert await call(manager, target_of(one, actor("alice", GLOBEX), {"TOKEN": "right-one"})) == "hi"


async def test_an_edit_of_the_definition_is_tried_at_once() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        server.on("POST", status(503))
        one = definition(server.url)
        await failed(manager, target_of(one, actor(), {}))
        server.on("POST", None)
        one.headers = {"X-New": "1"}
        assert await call(manager, target_of(one, actor(), {})) == "hi"


async def test_a_server_that_accepts_and_then_breaks_off_every_time_is_left_alone_too() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        server.on("tools/call", die)
        where = target_of(definition(server.url), actor(), {})
        await failed(manager, where)
        with pytest.raises(ThrottledError, match="broke off before it answered"):
            await call(manager, where)


async def test_a_crash_after_an_answer_is_no_reason_to_leave_a_server_alone() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        where = target_of(definition(server.url), actor(), {})
        for _ in range(5):
            assert await call(manager, where) == "hi"
            server.on("tools/call", once(die))
            await failed(manager, where, 1)
            server.on("tools/call", None)
        assert await call(manager, where) == "hi"


async def test_a_connection_of_each_turn_is_never_throttled_but_a_failing_one_is() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        one = definition(server.url, headers={"X-Turn": "{{request.turn_id}}"})
        for _ in range(10):
            request = RequestContext.of_trial()
            manager.open_run(request.run)
            assert await call(manager, target_of(one, actor(), {}, request=request)) == "hi"
            manager.close_run(request.run)
        server.on("POST", status(503))
        for _ in range(3):
            request = RequestContext.of_trial()
            manager.open_run(request.run)
            await failed(manager, target_of(one, actor(), {}, request=request), 1)
        request = RequestContext.of_trial()
        manager.open_run(request.run)
        with pytest.raises(ThrottledError):
            await call(manager, target_of(one, actor(), {}, request=request))
