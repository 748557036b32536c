"""A scripted chat model and a scripted toolbox: the two protocols of the loop without network, server or rows."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agents.parts import (
    ArgumentsProgress,
    Completion,
    Decision,
    Finish,
    ModelEvent,
    ModelMessage,
    PersonNeeded,
    PreparedCall,
    ReasoningChunk,
    Resumed,
    TextChunk,
    TokenUsage,
    ToolRequest,
    ToolResult,
    ToolSpec,
    ToolStatus,
)
from agents.providers.chat_model import Capabilities
from agents.toolbox import AskCallback, ProgressCallback

Step = str | ReasoningChunk | ArgumentsProgress | ToolRequest | Finish | Completion | asyncio.Event | Exception
Answer = Sequence[Step]
USAGE = TokenUsage(10, 5)


def call(name: str, id: str = "", *, complete: bool = True, **arguments: Any) -> ToolRequest:
    """A request of `name` with `arguments`; its id is made of both unless it is given."""
    text = json.dumps(arguments)
    return ToolRequest(id or f"call_{name}_{zlib.crc32(text.encode())}", name, text, complete=complete)


@dataclass
class Request:
    """What the model was asked."""

    messages: list[ModelMessage]
    tools: list[ToolSpec]
    tool_choice: str


class ScriptedModel:
    """Answers the n-th request with the n-th answer, a list of steps; the last one is repeated for ever.

    A text is streamed (after a tool call it is kept as trailing text), an event is waited for, an exception raised, a
    `Finish` says how the completion ends, a `Completion` is sent as it stands. `requests` are what it was asked,
    `faults` what a strict endpoint would have refused in them, `open_streams` how many are not closed.
    """

    def __init__(
        self,
        *answers: Answer | Callable[[Sequence[ModelMessage]], Answer],
        name: str = "scripted",
        usage: TokenUsage | None = USAGE,
        **capabilities: Any,
    ) -> None:
        self.answers = list(answers) or [["Hello."]]
        self.name, self.usage, self.capabilities = name, usage, Capabilities(**capabilities)
        self.requests: list[Request] = []
        self.faults: list[str] = []
        self.open_streams = 0
        self.asked = asyncio.Event()  # a request has come

    def stream(
        self,
        messages: Sequence[ModelMessage],
        tools: Sequence[ToolSpec] = (),
        *,
        tool_choice: Literal["auto", "none"] = "auto",
    ) -> AsyncGenerator[ModelEvent, None]:
        answer = self.answers[min(len(self.requests), len(self.answers) - 1)]
        self.requests.append(Request(list(messages), list(tools), tool_choice))
        self.faults += faults(messages)
        return self._stream(answer(messages) if callable(answer) else answer)

    async def _stream(self, answer: Answer) -> AsyncGenerator[ModelEvent, None]:
        text, reasoning, trailing = "", "", ""
        requests: list[ToolRequest] = []
        finish: Finish | None = None
        self.open_streams += 1
        self.asked.set()
        try:
            for step in answer:
                match step:
                    case Finish():  # first: it is a str too
                        finish = step
                    case str() if requests:
                        trailing += step
                    case str():
                        text += step
                        yield TextChunk(step)
                    case ReasoningChunk():
                        reasoning += step.text
                        yield step
                    case ArgumentsProgress():
                        yield step
                    case ToolRequest():
                        requests.append(step)
                    case asyncio.Event():
                        await step.wait()
                    case Completion():
                        yield step
                        return
                    case Exception():
                        raise step
            finish = finish or (Finish.TOOL_CALLS if requests else Finish.STOP)
            yield Completion(text, reasoning, requests, trailing, finish, usage=self.usage, model=self.name)
        finally:
            self.open_streams -= 1


def faults(messages: Sequence[ModelMessage]) -> list[str]:
    """What a strict endpoint refuses in `messages`, in words."""
    found = []
    open_ids: list[str] = []
    for position, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in open_ids:
                found.append(f"{position}: a tool message that answers nothing")
            else:
                if message.tool_call_id != open_ids[0]:
                    found.append(f"{position}: tool messages out of order")
                open_ids.remove(message.tool_call_id)
            if not message.text:
                found.append(f"{position}: an empty tool message")
            continue
        if open_ids:
            found.append(f"{position}: calls without a result: {open_ids}")
        open_ids = [request.id for request in message.tool_calls]
        if len(set(open_ids)) != len(open_ids):
            found.append(f"{position}: two calls with one id")
        found += [
            f"{position}: arguments that are not a JSON object"
            for request in message.tool_calls
            if not isinstance(_loaded(request.arguments), dict)
        ]
        if message.role != "assistant" and message.tool_calls:
            found.append(f"{position}: calls of a {message.role}")
        if not message.content and not message.tool_calls:
            found.append(f"{position}: an empty {message.role} message")
        if message.role == "system" and position:
            found.append(f"{position}: a system message that is not the first")
    if open_ids:
        found.append(f"end: calls without a result: {open_ids}")
    return found


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


# --- Tools --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asking:
    """A tool that asks a person while it runs."""

    needed: PersonNeeded


@dataclass(frozen=True)
class TakenBack:
    """A tool that asks a person while it runs, and does not wait for the answer."""

    needed: PersonNeeded


Behaviour = (
    str
    | ToolResult
    | Exception
    | asyncio.Event
    | PersonNeeded
    | Asking
    | TakenBack
    | Callable[[dict[str, Any], ProgressCallback], Awaitable[ToolResult | str]]
)


@dataclass
class ScriptedToolbox:
    """Tools by name. A behaviour is a text (the result), a result, an exception to raise, an event to wait for (then
    `done`), an async function of arguments and progress, what a person is needed for (made again, it tells the
    answer), or that asked while it runs. `decisions` are by name, `allow` where absent.

    `called` lists what ran, in the order in which it began; `started[name]` is set when a call of it begins;
    `cancelled` lists the calls that were cancelled; `running` how many run now, `most_running` ever did.
    """

    tools: Mapping[str, Behaviour] = field(default_factory=dict)
    decisions: dict[str, Decision] = field(default_factory=dict)
    understood: dict[str, dict[str, Any]] = field(default_factory=dict)  # argument texts that are repaired
    called: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    prepared: list[ToolRequest] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    resumed: list[Resumed | None] = field(default_factory=list)
    running: int = 0
    most_running: int = 0

    def __post_init__(self) -> None:
        self.started = {name: asyncio.Event() for name in self.tools}

    def specs(self) -> list[ToolSpec]:
        return [ToolSpec(name, f"The tool {name}.", {"type": "object", "properties": {}}) for name in self.tools]

    async def prepare(self, request: ToolRequest) -> PreparedCall:
        self.prepared.append(request)
        if request.name not in self.tools:
            result = ToolResult(ToolStatus.ERROR, f"unknown tool {request.name}; there are: {', '.join(self.tools)}")
            return PreparedCall(request, Decision.DENY, "unknown tool", result=result)
        arguments = self.understood.get(request.arguments) or _loaded(request.arguments.strip() or "{}")
        if not isinstance(arguments, dict):
            result = ToolResult(ToolStatus.ERROR, "the arguments are not a JSON object")
            return PreparedCall(request, Decision.DENY, "bad arguments", result=result)
        decision = self.decisions.get(request.name, Decision.ALLOW)
        return PreparedCall(request, decision, f"rule: {decision}", arguments, server="scripted", tool=request.name)

    async def call(
        self, call: PreparedCall, progress: ProgressCallback, ask: AskCallback | None = None
    ) -> ToolResult | PersonNeeded:
        arguments = call.arguments or {}
        self.called.append((call.tool, arguments))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.started[call.tool].set()
        try:
            self.resumed.append(call.resumed)
            return await self._behave(self.tools[call.tool], arguments, progress, ask)
        except asyncio.CancelledError:
            self.cancelled.append(call.tool)
            raise
        finally:
            self.running -= 1

    async def _behave(
        self, behaviour: Behaviour, arguments: dict[str, Any], progress: ProgressCallback, ask: AskCallback | None
    ) -> ToolResult | PersonNeeded:
        match behaviour:
            case PersonNeeded():
                resumed = self.resumed[-1]
                if resumed is None:
                    return behaviour
                return ToolResult(ToolStatus.OK, f"{resumed.answer.action} {json.dumps(resumed.answer.content)}")
            case TakenBack():
                assert ask is not None
                asking = asyncio.ensure_future(ask(behaviour.needed))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                asking.cancel()
                await asyncio.wait({asking})
                return ToolResult(ToolStatus.OK, "went on alone")
            case Asking():
                assert ask is not None
                answer = await ask(behaviour.needed)
                return ToolResult(ToolStatus.OK, f"{answer.action} {json.dumps(answer.content)}")
            case str():
                return ToolResult(ToolStatus.OK, behaviour)
            case ToolResult():
                return behaviour
            case Exception():
                raise behaviour
            case asyncio.Event():
                await behaviour.wait()
                return ToolResult(ToolStatus.OK, "done")
        result = await behaviour(arguments, progress)
        return ToolResult(ToolStatus.OK, result) if isinstance(result, str) else result

    async def aclose(self) -> None:
        pass
