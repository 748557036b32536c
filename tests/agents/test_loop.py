"""The tool loop: rounds, concurrency, order, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from contextlib import aclosing

import pytest

from agents.events import (
    CallFinished,
    CallProgressed,
    CallStarted,
    ModelNamed,
    Outcome,
    ReasoningDelta,
    RoundCompleted,
    StatusChanged,
    TextDelta,
    UsageReported,
)
from agents.loop import Limits, run_loop
from agents.parts import (
    ArgumentsProgress,
    Artifact,
    Completion,
    Decision,
    ImageContent,
    ReasoningChunk,
    TokenUsage,
    ToolRequest,
    ToolResult,
    ToolStatus,
)
from tests.agents.loops import HI, collect, end, of, results, told
from tests.fakes.models import ScriptedModel, ScriptedToolbox, call


async def test_an_answer_without_calls_is_final():
    model = ScriptedModel(["Hel", "lo"])
    events = await collect(model)
    assert [event.text for event in of(TextDelta, events)] == ["Hel", "lo"]
    assert end(events).outcome is Outcome.COMPLETED
    assert len(model.requests) == 1


async def test_a_call_is_run_and_its_result_given_to_the_model():
    model = ScriptedModel(["Let me look.", call("clock", zone="UTC")], ["It is noon."])
    toolbox = ScriptedToolbox({"clock": "12:00"})
    events = await collect(model, toolbox)
    assert toolbox.called == [("clock", {"zone": "UTC"})]
    assistant, tool = model.requests[1].messages[len(HI) :]
    assert assistant.text == "Let me look."
    assert tool.tool_call_id == assistant.tool_calls[0].id
    assert tool.text == "12:00"
    assert end(events).outcome is Outcome.COMPLETED
    assert end(events).spent.rounds == end(events).spent.calls == 1


async def test_every_request_offers_the_tools_and_lets_the_model_choose():
    model = ScriptedModel([call("clock")], ["noon"])
    await collect(model, ScriptedToolbox({"clock": "12:00"}))
    assert [[tool.name for tool in request.tools] for request in model.requests] == [["clock"], ["clock"]]
    assert [request.tool_choice for request in model.requests] == ["auto", "auto"]


async def test_tools_that_are_found_during_a_turn_are_offered_from_the_next_round_on():
    toolbox = ScriptedToolbox({"search_tools": "found: clock"})
    model = ScriptedModel([call("search_tools")], ["ok"])

    def find(event, decisions):
        if isinstance(event, CallFinished):
            toolbox.tools = {**toolbox.tools, "clock": "12:00"}

    await collect(model, toolbox, react=find)
    assert [tool.name for tool in model.requests[1].tools] == ["search_tools", "clock"]


async def test_text_after_the_first_call_is_kept_and_returned_to_the_model_but_not_streamed():
    model = ScriptedModel(["Before.", call("clock"), "After."], ["done"])
    events = await collect(model, ScriptedToolbox({"clock": "12:00"}))
    assert "After." not in "".join(delta.text for delta in of(TextDelta, events))
    assert of(RoundCompleted, events)[0].trailing_text == "After."
    assert model.requests[1].messages[len(HI)].text == "Before.\n\nAfter."


async def test_reasoning_is_shown_and_goes_back_with_its_round():
    model = ScriptedModel([ReasoningChunk("hm"), call("clock")], ["noon"])
    events = await collect(model, ScriptedToolbox({"clock": "12:00"}))
    assert [delta.text for delta in of(ReasoningDelta, events)] == ["hm"]
    assert model.requests[1].messages[len(HI)].reasoning == "hm"


async def test_extra_fields_of_a_call_go_back_to_the_model_unchanged():
    signed = ToolRequest("f1", "clock", "{}", {"extra_content": {"google": {"thought_signature": "c2ln"}}})
    model = ScriptedModel([signed], ["noon"])
    await collect(model, ScriptedToolbox({"clock": "12:00"}))
    assert model.requests[1].messages[len(HI)].tool_calls[0].extra == signed.extra


@pytest.mark.parametrize("text", ["", "   ", "{broken", "[1]", '"x"'])
async def test_arguments_that_are_no_object_go_back_as_an_object(text):
    model = ScriptedModel([ToolRequest("c1", "clock", text)], ["noon"])
    await collect(model, ScriptedToolbox({"clock": "12:00"}))
    assert model.requests[1].messages[len(HI)].tool_calls[0].arguments == "{}"


async def test_what_was_understood_of_odd_arguments_is_what_goes_back():
    toolbox = ScriptedToolbox({"clock": "12:00"}, understood={"```{a:1}```": {"a": 1}})
    model = ScriptedModel([ToolRequest("c1", "clock", "```{a:1}```")], ["noon"])
    await collect(model, toolbox)
    assert model.requests[1].messages[len(HI)].tool_calls[0].arguments == '{"a": 1}'


async def test_two_calls_with_one_id_are_told_apart():
    model = ScriptedModel([call("a", id="x"), call("b", id="x"), call("c", id="")], ["ok"])
    await collect(model, ScriptedToolbox({"a": "1", "b": "2", "c": "3"}))
    assert told(model) == ["1", "2", "3"]


async def test_a_round_is_announced_before_any_of_its_calls_begins():
    toolbox = ScriptedToolbox({"clock": "12:00"})
    began = []

    def look(event, decisions):
        if isinstance(event, RoundCompleted | CallStarted):
            began.append((type(event), list(toolbox.called)))

    await collect(ScriptedModel([call("clock")], ["noon"]), toolbox, react=look)
    assert began == [(RoundCompleted, []), (CallStarted, [])]


async def test_calls_of_a_round_run_together_and_finish_in_their_own_order():
    slow, fast = asyncio.Event(), asyncio.Event()
    toolbox = ScriptedToolbox({"slow": slow, "fast": fast})
    model = ScriptedModel([call("slow"), call("fast")], ["ok"])

    def release(event, decisions):
        if isinstance(event, CallStarted) and event.call.tool == "fast":
            fast.set()
        if isinstance(event, CallFinished):
            slow.set()

    events = await collect(model, toolbox, react=release)
    assert toolbox.most_running == 2
    assert list(results(events)) == ["fast", "slow"]
    assert [message.tool_call_id for message in model.requests[1].messages[-2:]] == [
        request.id for request in model.requests[1].messages[len(HI)].tool_calls
    ]


async def test_tool_messages_go_back_in_call_order_whatever_finished_first():
    gate = asyncio.Event()

    async def last(arguments, progress):
        gate.set()
        return "F"

    model = ScriptedModel([call("slow"), call("fast")], ["ok"])
    await collect(model, ScriptedToolbox({"slow": gate, "fast": last}))
    assert told(model) == ["done", "F"]


async def test_all_that_may_run_begin_together():
    meeting = asyncio.Barrier(8)

    async def meet(arguments, progress):
        await meeting.wait()  # passes only when all eight are there
        return "met"

    toolbox = ScriptedToolbox({f"t{number}": meet for number in range(8)})
    events = await collect(ScriptedModel([call(name) for name in toolbox.tools], ["ok"]), toolbox)
    assert len(of(CallFinished, events)) == 8


async def test_no_more_than_the_allowed_number_of_calls_run_at_once_and_the_rest_follow():
    toolbox = ScriptedToolbox({f"t{number}": "ok" for number in range(7)})
    model = ScriptedModel([call(name) for name in toolbox.tools], ["ok"])
    events = await collect(model, toolbox, limits=Limits(max_parallel_calls=3))
    assert toolbox.most_running <= 3
    assert len(of(CallFinished, events)) == 7


async def test_a_waiting_call_starts_as_soon_as_a_slot_is_free_not_when_the_batch_is_over():
    gate = asyncio.Event()
    toolbox = ScriptedToolbox({"stuck": gate, "a": "1", "b": "2"})

    def release(event, decisions):
        if isinstance(event, CallStarted) and event.call.tool == "b":
            gate.set()

    model = ScriptedModel([call("stuck"), call("a"), call("b")], ["ok"])
    events = await collect(model, toolbox, react=release, limits=Limits(max_parallel_calls=2))
    assert list(results(events)) == ["a", "b", "stuck"] or list(results(events)) == ["a", "stuck", "b"]
    assert end(events).outcome is Outcome.COMPLETED


async def test_a_call_that_is_denied_or_faulty_has_its_result_at_once_while_its_siblings_run():
    gate = asyncio.Event()
    toolbox = ScriptedToolbox({"slow": gate, "forbidden": "never"}, {"forbidden": Decision.DENY})
    model = ScriptedModel([call("slow"), call("forbidden"), call("nonsense")], ["ok"])

    def release(event, decisions):
        if isinstance(event, CallFinished) and event.result.status is ToolStatus.ERROR:
            gate.set()

    events = await collect(model, toolbox, react=release)
    assert list(results(events)) == ["forbidden", "nonsense", "slow"]
    assert results(events)["forbidden"].status is ToolStatus.DENIED
    assert [started.call.tool for started in of(CallStarted, events)] == ["slow"]
    assert "slow" in results(events)["nonsense"].text  # the names that it may use


async def test_a_failing_call_never_stops_its_siblings_and_its_failure_goes_to_the_model(caplog):
    toolbox = ScriptedToolbox(
        {"bug": RuntimeError("kaboom"), "failed": ToolResult(ToolStatus.ERROR, "branch is locked"), "good": "fine"}
    )
    model = ScriptedModel([call("bug"), call("failed"), call("good")], ["ok"])
    with caplog.at_level(logging.ERROR):
        events = await collect(model, toolbox)
    assert results(events)["bug"].status is ToolStatus.ERROR
    assert "kaboom" not in results(events)["bug"].text
    assert told(model) == [
        "Error: internal error: the call could not be completed",
        "Error: branch is locked",
        "fine",
    ]
    assert "kaboom" in caplog.text  # with its traceback
    assert end(events).outcome is Outcome.COMPLETED


async def test_a_toolbox_that_raises_while_it_looks_at_a_call_costs_that_call_alone(caplog):
    class Faulty(ScriptedToolbox):
        async def prepare(self, request):
            if request.name == "bad":
                raise KeyError("bug")
            return await super().prepare(request)

    events = await collect(ScriptedModel([call("bad"), call("good")], ["ok"]), Faulty({"bad": "", "good": "fine"}))
    assert results(events)["bad"].status is ToolStatus.ERROR
    assert results(events)["good"].status is ToolStatus.OK


async def test_a_text_that_only_looks_like_an_error_stays_a_success():
    model = ScriptedModel([call("t")], ["ok"])
    events = await collect(model, ScriptedToolbox({"t": "Error: is the name of a film"}))
    assert results(events)["t"].status is ToolStatus.OK
    assert told(model) == ["Error: is the name of a film"]


async def test_a_result_without_text_is_told_as_such():
    model = ScriptedModel([call("t")], ["ok"])
    await collect(model, ScriptedToolbox({"t": ToolResult(ToolStatus.OK, "")}))
    assert told(model) == ["(no output)"]


@pytest.mark.parametrize("sees", [True, False])
async def test_images_of_a_result_go_to_a_model_that_sees(sees):
    picture = Artifact(b"png", "image/png", "chart.png")
    shown = ToolResult(ToolStatus.OK, "a chart", artifacts=[picture, Artifact(b"wav", "audio/wav", "a.wav")])
    model = ScriptedModel([call("draw")], ["nice"], images=sees)
    await collect(model, ScriptedToolbox({"draw": shown}))
    content = model.requests[1].messages[-1].content
    images = [part for part in content if isinstance(part, ImageContent)]
    assert images == ([ImageContent(b"png", "image/png", "chart.png")] if sees else [])


async def test_progress_is_told_as_it_comes():
    heard: asyncio.Queue[None] = asyncio.Queue()

    async def slow(arguments, progress):
        await progress(1, 2, "half")
        await heard.get()
        await progress(2, 2, "whole")
        await heard.get()
        return "done"

    def hear(event, decisions):
        if isinstance(event, CallProgressed):
            heard.put_nowait(None)

    events = await collect(ScriptedModel([call("slow")], ["ok"]), ScriptedToolbox({"slow": slow}), react=hear)
    reports = [(report.progress, report.total, report.message) for report in of(CallProgressed, events)]
    assert reports == [(1, 2, "half"), (2, 2, "whole")]


async def test_a_flood_of_progress_is_told_in_its_latest_state_not_queued_up():
    async def flood(arguments, progress):
        for number in range(1000):
            await progress(number, 1000, None)
        return "done"

    events = await collect(ScriptedModel([call("flood")], ["ok"]), ScriptedToolbox({"flood": flood}))
    assert len(of(CallProgressed, events)) <= 1
    assert results(events)["flood"].text == "done"


async def test_progress_that_comes_faster_than_a_person_sees_is_told_now_and_then_and_the_latest_in_the_end(
    monkeypatch, ahead
):
    monkeypatch.setattr("agents.rounds.PROGRESS_SECONDS", 60)
    told: asyncio.Queue[float] = asyncio.Queue()

    async def quick(arguments, progress):
        for number in range(1, 301):
            await progress(number, 300, None)
            await asyncio.sleep(0)  # the loop could tell each of them
            if number % 100 == 0:
                ahead(60)
        while await told.get() < 300:
            pass
        return "done"

    def hear(event, decisions):
        if isinstance(event, CallProgressed):
            told.put_nowait(event.progress)

    events = await collect(ScriptedModel([call("quick")], ["ok"]), ScriptedToolbox({"quick": quick}), react=hear)
    reports = [report.progress for report in of(CallProgressed, events)]
    assert reports[0] == 1
    assert reports[-1] == 300
    assert 2 < len(reports) < 6


async def test_progress_that_is_no_number_is_not_told_and_its_words_are_clean_and_short():
    heard: asyncio.Queue[None] = asyncio.Queue()

    async def odd(arguments, progress):
        for number in ("nan", "inf", "-inf"):
            await progress(float(number), 1, "odd")
        await progress(1, float("nan"), "a\0b\ud83d " + "x" * 10_000)
        await heard.get()
        return "done"

    def hear(event, decisions):
        if isinstance(event, CallProgressed):
            heard.put_nowait(None)

    events = await collect(ScriptedModel([call("odd")], ["ok"]), ScriptedToolbox({"odd": odd}), react=hear)
    (report,) = of(CallProgressed, events)
    assert (report.progress, report.total) == (1, None)
    assert report.message.startswith("a\ufffdb\ufffd xxx")
    assert len(report.message) <= 300


async def test_a_person_is_told_that_the_model_thinks_and_that_it_writes_a_call():
    model = ScriptedModel([ArgumentsProgress("clock", 400), call("clock")], ["noon"])
    events = await collect(model, ScriptedToolbox({"clock": "12:00"}))
    assert [status.code for status in of(StatusChanged, events)] == ["thinking", "writing_call", "thinking"]
    assert "clock" in of(StatusChanged, events)[1].label


async def test_the_model_is_named_once_and_its_usage_reported_for_each_round():
    events = await collect(ScriptedModel([call("clock")], ["noon"], name="Big"), ScriptedToolbox({"clock": "1"}))
    assert of(ModelNamed, events) == [ModelNamed("Big")]
    assert [report.usage for report in of(UsageReported, events)] == [TokenUsage(10, 5)] * 2


async def test_usage_that_the_endpoint_does_not_give_is_estimated_and_marked_so():
    events = await collect(ScriptedModel(["x" * 400], usage=None))
    (report,) = of(UsageReported, events)
    assert report.usage.estimated
    assert report.usage.output_tokens == 100
    assert report.usage.input_tokens > 0


# --- It leaves nothing behind -------------------------------------------------------------------------------------


async def test_closing_the_loop_while_a_call_runs_cancels_the_call():
    toolbox = ScriptedToolbox({"slow": asyncio.Event(), "other": asyncio.Event()})
    model = ScriptedModel([call("slow"), call("other")])
    consumer = asyncio.create_task(collect(model, toolbox))
    await toolbox.started["slow"].wait()
    await toolbox.started["other"].wait()
    consumer.cancel()
    await asyncio.wait({consumer})
    assert consumer.cancelled()
    assert sorted(toolbox.cancelled) == ["other", "slow"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_closing_the_loop_between_two_events_cancels_the_calls_too():
    toolbox = ScriptedToolbox({"slow": asyncio.Event(), "quick": "1"})
    async with aclosing(
        run_loop(ScriptedModel([call("slow"), call("quick")]), toolbox, HI, decisions=asyncio.Queue())
    ) as loop:
        async for event in loop:
            if isinstance(event, CallFinished):
                break
    assert toolbox.cancelled == ["slow"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_closing_the_loop_while_the_model_writes_closes_its_stream():
    model = ScriptedModel(["par", asyncio.Event(), "never"])
    async with aclosing(run_loop(model, ScriptedToolbox(), HI, decisions=asyncio.Queue())) as loop:
        async for event in loop:
            if isinstance(event, TextDelta):
                break
    assert model.open_streams == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelling_before_the_first_token_closes_the_stream():
    model = ScriptedModel([asyncio.Event(), "never"])
    consumer = asyncio.create_task(collect(model))
    await model.asked.wait()
    consumer.cancel()
    await asyncio.wait({consumer})
    assert consumer.cancelled()
    assert model.open_streams == 0


async def test_a_call_that_resists_being_cancelled_is_waited_for_only_briefly(monkeypatch, caplog):
    monkeypatch.setattr("agents.call_tasks.CLOSE_SECONDS", 0.01)
    let_go = asyncio.Event()

    async def stubborn(arguments, progress):
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    toolbox = ScriptedToolbox({"stubborn": stubborn})
    consumer = asyncio.create_task(collect(ScriptedModel([call("stubborn")]), toolbox))
    await toolbox.started["stubborn"].wait()
    consumer.cancel()
    await asyncio.wait({consumer})
    assert consumer.cancelled()
    assert "did not end" in caplog.text
    let_go.set()
    while len(asyncio.all_tasks()) > 1:
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})


async def test_after_the_end_no_task_is_left():
    toolbox = ScriptedToolbox({"a": "1", "ask": "2"}, {"ask": Decision.ASK})
    await collect(ScriptedModel([call("a"), call("ask")]), toolbox)
    await collect(ScriptedModel([call("a")], ["ok"]), toolbox)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_bug_of_the_model_ends_the_turn_as_failed_without_its_words(caplog):
    events = await collect(ScriptedModel(["par", ZeroDivisionError("secret")]))
    assert end(events).outcome is Outcome.FAILED
    assert end(events).code == "internal"
    assert "secret" not in end(events).message
    assert "secret" in caplog.text


async def test_a_model_that_ends_without_a_completion_is_a_bug(caplog):
    class Broken(ScriptedModel):
        async def _stream(self, answer):
            return
            yield

    assert end(await collect(Broken())).code == "internal"


async def test_the_loop_does_not_change_the_messages_that_it_was_given():
    messages = list(HI)
    await collect(ScriptedModel([call("clock")], ["noon"]), ScriptedToolbox({"clock": "1"}), messages=messages)
    assert messages == HI


def test_the_loop_is_pure_it_loads_neither_django_nor_channels_nor_mcp():
    loaded = (
        "import sys, agents.loop, agents.prompts; print([n for n in ('django', 'channels', 'mcp') if n in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


async def test_a_completion_that_names_its_own_refusal_is_kept_whole():
    events = await collect(ScriptedModel([Completion("", refusal=True)]))
    assert end(events).refusal
