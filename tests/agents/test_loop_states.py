"""Whatever models ask, tools do and people answer: the loop ends, and every call is answered exactly once."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.events import (
    CallAsked,
    CallFinished,
    CallStarted,
    LoopEnded,
    Outcome,
    ReasoningDelta,
    RoundCompleted,
    TextDelta,
)
from agents.loop import CallCancelled, Decided, Limits, OpenCall, OpenRound, Spent, run_loop
from agents.parts import Decision, Finish, ReasoningChunk, ToolRequest, ToolResult, ToolStatus
from tests.agents.loops import HI
from tests.fakes.models import ScriptedModel, ScriptedToolbox

NAMES = ["good", "failed", "bug", "hangs", "forbidden", "ask", "ask_hangs", "unknown"]
ANSWERS = ["allow", "edit", "deny", "cancel", "later"]

requests = st.tuples(st.sampled_from(NAMES), st.sampled_from(["{}", '{"a": 1}', "", "[1]", "{cut"]), st.booleans())
steps = st.one_of(
    st.sampled_from(["text ", "", " "]),
    st.just(ReasoningChunk("hm")),
    st.sampled_from(list(Finish)),
    requests,
    requests,
)
scripts = st.lists(st.lists(steps, max_size=6), min_size=1, max_size=5)
limits = st.builds(
    Limits,
    max_rounds=st.integers(1, 5),
    max_calls=st.integers(1, 12),
    max_parallel_calls=st.integers(1, 4),
    max_repeated_failures=st.integers(1, 4),
)


def model_of(script) -> ScriptedModel:
    def answer(steps):
        return [
            ToolRequest(f"c{number}", step[0], step[1], complete=not (step[2] and step[1] == "{cut"))
            if isinstance(step, tuple)
            else step
            for number, step in enumerate(steps)
        ]

    return ScriptedModel(*[answer(steps) for steps in script], ["done"])


def toolbox() -> ScriptedToolbox:
    never = asyncio.Event()
    tools = {
        "good": "fine",
        "failed": ToolResult(ToolStatus.ERROR, "no"),
        "bug": RuntimeError("bug"),
        "hangs": never,
        "forbidden": "never",
        "ask": "asked",
        "ask_hangs": never,
    }
    asks = {"ask": Decision.ASK, "ask_hangs": Decision.ASK, "forbidden": Decision.DENY}
    return ScriptedToolbox(tools, asks)


@dataclass
class Stored:
    """What a consumer stores: the calls of the last round, and how often each was finished."""

    text: str = ""
    number: int = 0
    calls: dict[UUID, ToolRequest] = field(default_factory=dict)
    states: dict[UUID, str] = field(default_factory=dict)
    results: dict[UUID, ToolResult] = field(default_factory=dict)
    finished: Counter[UUID] = field(default_factory=Counter)
    started: Counter[UUID] = field(default_factory=Counter)
    seen: set[UUID] = field(default_factory=set)

    def take(self, event) -> None:
        match event:
            case TextDelta(text) | ReasoningDelta(text):
                assert text
                self.text += text
            case RoundCompleted(number, calls):
                assert number == self.number + 1
                assert all(state == "finished" for state in self.states.values())
                self.number = number
                self.calls = {id: call.request for id, call in calls}
                self.states = {id: "pending" for id, _ in calls}
                self.seen |= set(self.calls)
            case CallStarted(id):
                assert self.states[id] in ("pending", "waiting", "allowed")
                self.states[id] = "running"
                self.started[id] += 1
            case CallAsked(id):
                assert self.states[id] == "pending"
                self.states[id] = "waiting"
            case CallFinished(id, result):
                assert self.states[id] != "finished"
                assert result.text
                self.states[id], self.results[id] = "finished", result
                self.finished[id] += 1


def react(event, answers, decisions, stored) -> None:
    match event:
        case CallAsked(id):
            match next(answers):
                case "allow":
                    decisions.put_nowait(Decided(id, allowed=True))
                case "edit":
                    decisions.put_nowait(Decided(id, allowed=True, arguments={"edited": True}))
                case "deny":
                    decisions.put_nowait(Decided(id, allowed=False, note="no"))
                case "cancel":
                    decisions.put_nowait(CallCancelled(id))
        case CallStarted(id) if "hangs" in stored.calls[id].name:
            decisions.put_nowait(CallCancelled(id))  # nothing else would end it


def parked(stored, answers) -> OpenRound:
    calls = []
    for id, request in stored.calls.items():
        state, note, arguments = stored.states[id], "", None
        if state == "waiting":
            answer = next(answers)
            state = {"allow": "allowed", "edit": "allowed", "deny": "denied", "cancel": "expired"}.get(answer, state)
            arguments = {"edited": True} if answer == "edit" else None
        stored.states[id] = state
        calls.append(OpenCall(id, request, state, note, stored.results.get(id), arguments))
    return OpenRound(calls=calls, number=stored.number)


async def play(script, drawn, limits, stop_after=None) -> tuple[Stored, LoopEnded | None, ScriptedModel]:
    answers = iter(drawn + ["allow"] * 1000)
    model, tools, stored = model_of(script), toolbox(), Stored()
    open_round, spent, count = None, Spent(), 0
    ended: LoopEnded | None = None
    while ended is None or ended.outcome is Outcome.PARKED:
        decisions: asyncio.Queue = asyncio.Queue()
        events = run_loop(model, tools, HI, limits=limits, spent=spent, open_round=open_round, decisions=decisions)
        ended = None
        async with aclosing(events):
            async for event in events:
                assert ended is None, "nothing comes after the end"
                count += 1
                if stop_after is not None and count > stop_after:
                    break
                if isinstance(event, LoopEnded):
                    ended = event
                    continue
                stored.take(event)
                react(event, answers, decisions, stored)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not model.open_streams
        assert not tools.running
        if ended is None:
            return stored, None, model
        if ended.outcome is Outcome.PARKED:
            assert "waiting" in stored.states.values()
            assert set(stored.states.values()) <= {"waiting", "finished"}
            open_round, spent = parked(stored, answers), ended.spent
    return stored, ended, model


def run(coroutine):
    async def bounded():
        async with asyncio.timeout(60):
            return await coroutine

    return asyncio.run(bounded())


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scripts, st.lists(st.sampled_from(ANSWERS), max_size=30), limits)
def test_every_turn_ends_and_every_call_is_answered_once(script, answers, limits):
    stored, ended, model = run(play(script, answers, limits))
    assert ended is not None
    assert ended.outcome in (Outcome.COMPLETED, Outcome.TRUNCATED, Outcome.FAILED, Outcome.EXHAUSTED)
    assert set(stored.finished) == stored.seen
    assert set(stored.finished.values()) <= {1}
    assert set(stored.started.values()) <= {1}
    assert ended.spent.rounds == stored.number <= limits.max_rounds
    assert ended.spent.calls == len(stored.seen)
    assert not model.faults, model.faults


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scripts, st.lists(st.sampled_from(ANSWERS), max_size=30), limits, st.integers(0, 40))
def test_a_turn_that_is_stopped_anywhere_leaves_nothing_running(script, answers, limits, stop_after):
    stored, _, model = run(play(script, answers, limits, stop_after))
    assert set(stored.finished.values()) <= {1}
    assert not model.faults, model.faults
