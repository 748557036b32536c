"""Chunks of a streamed completion, with all their oddities, to clean model events. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, Literal
from uuid import uuid4

from agents.parts import (
    ArgumentsProgress,
    Completion,
    Finish,
    ModelEvent,
    ReasoningChunk,
    TextChunk,
    TokenUsage,
    ToolRequest,
)
from agents.providers.call_fragments import CallFragments
from agents.providers.text_calls import TextCalls
from agents.providers.think_tags import ThinkTags
from chatui.text import clean

PROGRESS_SECONDS = 1.0
_FINISHES = {
    "tool_calls": Finish.TOOL_CALLS,
    "function_call": Finish.TOOL_CALLS,
    "length": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "model_length": Finish.LENGTH,
    "content_filter": Finish.CONTENT_FILTER,
    "safety": Finish.CONTENT_FILTER,
}
_BROKEN = frozenset({"error", "network_error", "insufficient_system_resource"})
_PLAIN = frozenset({"content", "role"})


class StreamError(Exception):
    """The endpoint reported an error inside the answer. `message` is its own words, `code` its number (0: none)."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.message, self.code = message, code


class Assembler:
    """Feed it the decoded chunks of one completion, drain what is to be shown, and finish it.

    `tools` are the names that are offered. With `inside` the answer is known to begin within its reasoning (only the
    closing tag is ever sent); `lone_close` tells that it did so without being known.
    """

    def __init__(
        self, tools: Collection[str] = (), *, inside: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._calls = CallFragments(tools)
        self._gate = TextCalls(self._show, tools)
        self._tags = ThinkTags(self._gate.feed, self._reason, self._lone_close, inside=inside)
        self._clock, self._progressed = clock, -PROGRESS_SECONDS
        self._runs: list[tuple[Literal["text", "reasoning"], list[str]] | ArgumentsProgress] = []
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._trailing: list[str] = []
        self._shown = False  # text has been drained, so it cannot become reasoning any more
        self._high = ""  # the first half of a surrogate pair whose second half comes with the next chunk
        self._refused = False
        self._choice: int | None = None
        self._early = False  # more came after a finish: some put one on every chunk
        self.finish_reason: str | None = None
        self.lone_close = False
        self.answered = False  # there was a choice
        self.usage: TokenUsage | None = None
        self.model = ""

    # --- What comes in --------------------------------------------------------------------------------------------

    def feed(self, chunk: Any) -> None:
        """Take one decoded chunk (or a whole completion). Raises `StreamError`; what came before stays."""
        if not isinstance(chunk, dict):
            return
        if chunk.get("error") or chunk.get("object") == "error":
            raise _stream_error(chunk)
        if not self.model and isinstance(chunk.get("model"), str):
            self.model = clean(chunk["model"])
        usage = chunk.get("usage")
        if usage is not None:
            self._count(usage)
        choices = chunk.get("choices")
        if isinstance(choices, list):
            for choice in choices:
                if isinstance(choice, dict):
                    self._take(choice)

    @property
    def whole(self) -> bool:
        """Whether nothing but usage and the end is still to come."""
        return self.finish_reason is not None and not self._early

    @property
    def closed(self) -> bool:
        """False while an answer that began within its reasoning is still in it."""
        return not self._tags.inside

    def _take(self, choice: dict[str, Any]) -> None:
        self.answered = True
        index = choice.get("index")
        if self._choice is None:
            self._choice = index if isinstance(index, int) else 0
        elif isinstance(index, int) and index != self._choice:
            return  # only one answer was asked for
        delta = choice.get("delta")
        if delta is None and "delta" not in choice and not self._received:
            delta = _numbered(choice.get("message"))
        if isinstance(delta, dict):
            if self.finish_reason is not None and any(value for key, value in delta.items() if key != "role"):
                self._early = True
            content = delta.get("content")
            if isinstance(content, str) and _PLAIN.issuperset(delta):
                if content:
                    self._write(content)
            else:
                self._take_delta(delta)
        reason = choice.get("finish_reason")
        if reason is not None and reason != "":
            self.finish_reason = str(reason).lower()
            if self.finish_reason in _BROKEN:
                raise StreamError(f"The answer ended with “{self.finish_reason}”.")

    def _take_delta(self, delta: dict[str, Any]) -> None:
        reasoning = _reasoning_of(delta)
        if reasoning:
            self._tags.settle()
            self._reason(clean(reasoning))
        content = delta.get("content")
        if isinstance(content, str):
            self._write(content)
        elif content is not None:
            self._write_parts(content)
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refuse(refusal)
        calls = delta.get("tool_calls")
        if isinstance(calls, dict):
            calls = [calls]
        if isinstance(delta.get("function_call"), dict) and not calls:
            calls = [{"index": 0, "function": delta["function_call"]}]
        if isinstance(calls, list) and calls:
            self._take_calls(calls)

    def _take_calls(self, calls: list[Any]) -> None:
        if not self._calls:
            self._flush()  # the text before the first call is whole
            self._gate.release()
        for call in calls:
            self._calls.add(call)
        now = self._clock()
        if self._calls and now - self._progressed >= PROGRESS_SECONDS:
            self._progressed = now
            self._runs.append(ArgumentsProgress(*self._calls.last))

    def _write_parts(self, content: Any) -> None:
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, str):
                self._write(part)
            elif isinstance(part, dict):
                kind = part.get("type")
                if kind in ("thinking", "reasoning"):
                    self._tags.settle()
                    self._reason(clean(_flat(part.get("thinking") or part.get("reasoning") or part.get("text"))))
                elif kind == "refusal":
                    self._refuse(_flat(part.get("refusal")))
                else:
                    self._write(_flat(part.get("text")))

    def _write(self, content: str) -> None:
        if self._high:
            content, self._high = self._high + content, ""
        if content and "\ud800" <= content[-1] <= "\udbff":
            content, self._high = content[:-1], content[-1]
        if content:
            self._tags.feed(clean(content))

    def _refuse(self, text: str) -> None:
        if text:
            self._refused = True
            self._flush()
            self._gate.release()
            self._show(clean(text))

    def _count(self, usage: Any) -> None:
        """The last one counts: where each chunk has one, it is cumulative."""
        if isinstance(usage, dict):
            given, made = _number(usage.get("prompt_tokens")), _number(usage.get("completion_tokens"))
            if given or made:
                self.usage = TokenUsage(given, made)

    # --- What goes out --------------------------------------------------------------------------------------------

    @property
    def _received(self) -> bool:
        return bool(self._text or self._reasoning or self._calls)

    def _show(self, text: str) -> None:
        if self._calls:
            self._trailing.append(text)
        else:
            self._text.append(text)
            self._run("text").append(text)

    def _reason(self, text: str) -> None:
        if text:
            self._reasoning.append(text)
            self._run("reasoning").append(text)

    def _run(self, kind: Literal["text", "reasoning"]) -> list[str]:
        last = self._runs[-1] if self._runs else None
        if isinstance(last, tuple) and last[0] == kind:
            return last[1]
        pieces: list[str] = []
        self._runs.append((kind, pieces))
        return pieces

    def _lone_close(self) -> None:
        self.lone_close = True
        self._gate.release()
        if not self._shown and not self._calls:
            self._reasoning += self._text
            self._text.clear()
            pieces = [piece for run in self._runs if isinstance(run, tuple) for piece in run[1]]
            self._runs = [("reasoning", pieces)] if pieces else []
        if not self._calls:
            self._gate.restart()

    def drain(self) -> list[ModelEvent]:
        """What is to be shown since the last time; what came together is one event."""
        events: list[ModelEvent] = []
        for run in self._runs:
            if isinstance(run, ArgumentsProgress):
                events.append(run)
            elif run[0] == "text":
                self._shown = True
                events.append(TextChunk("".join(run[1])))
            else:
                events.append(ReasoningChunk("".join(run[1])))
        self._runs = []
        return events

    def _flush(self) -> None:
        if self._high:
            self._tags.feed(clean(self._high))
            self._high = ""
        self._tags.flush()

    def abandon(self) -> list[ModelEvent]:
        """The stream broke: everything that was held back, to be shown."""
        self._flush()
        self._gate.release()
        return self.drain()

    def finish(self, *, done: bool = False) -> tuple[list[ModelEvent], Completion]:
        """The end of the stream (`done`: with `[DONE]`): what is still to be shown, and the completion."""
        self._flush()
        finish = self._finish(done)
        cut = finish in (Finish.LENGTH, Finish.CUT)
        requests = self._calls.requests(cut=cut)
        if not requests and not cut:
            requests = [ToolRequest(f"call_{uuid4().hex[:24]}", *call) for call in self._gate.take()]
        self._gate.release()
        if self._tags.inside and not self._text and not requests:
            self._show("".join(self._reasoning))  # it never closed: this was the answer after all
        if finish in (Finish.STOP, Finish.TOOL_CALLS):
            finish = Finish.TOOL_CALLS if requests else Finish.STOP
        trailing = "".join(self._trailing)
        return self.drain(), Completion(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            requests=requests,
            trailing_text=trailing if trailing.strip() else "",
            finish=finish,
            refusal=self._refused,
            usage=self.usage,
            model=self.model,
        )

    def _finish(self, done: bool) -> Finish:
        if self.finish_reason is None:
            return Finish.STOP if done else Finish.CUT
        return _FINISHES.get(self.finish_reason, Finish.STOP)


def _numbered(message: Any) -> Any:
    """A whole message, whose tool calls have no index: their place is their index."""
    if not isinstance(message, dict) or not isinstance(message.get("tool_calls"), list):
        return message
    calls = [{**call, "index": n} for n, call in enumerate(message["tool_calls"]) if isinstance(call, dict)]
    return {**message, "tool_calls": calls}


def _reasoning_of(delta: dict[str, Any]) -> str:
    """The reasoning, once: some send the same text under two names."""
    for key in ("reasoning_content", "reasoning", "thinking"):
        value = delta.get(key)
        if value:
            return _flat(value)
    details = delta.get("reasoning_details")
    return _flat(details) if isinstance(details, list) else ""


def _flat(value: Any) -> str:
    """The text of a string, of a part, or of a list of them."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return _flat(value.get("text") or value.get("content") or value.get("summary"))
    return "".join(map(_flat, value)) if isinstance(value, list) else ""


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def _stream_error(chunk: dict[str, Any]) -> StreamError:
    error = chunk["error"] if chunk.get("error") else chunk
    if not isinstance(error, dict):
        return StreamError(str(error))
    message = error.get("message") or error.get("detail") or error.get("type") or "an error without a message"
    code = error.get("code") or error.get("status") or 0
    return StreamError(str(message), int(code) if str(code).isdigit() else 0)
