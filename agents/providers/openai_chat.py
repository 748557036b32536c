"""Chat models at OpenAI-compatible endpoints: the request, its retries, and the events of its answer."""

from __future__ import annotations

import asyncio
import importlib
import random
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from agents.parts import Completion, ModelEvent, ModelMessage, ToolSpec
from agents.providers import failures
from agents.providers.assembler import Assembler, StreamError
from agents.providers.chat_model import (
    Capabilities,
    EndpointError,
    EndpointTimeoutError,
    EndpointUnavailableError,
    EndpointUnreachableError,
)
from agents.providers.dialects import request_body
from agents.providers.settings import ModelSettings
from agents.providers.sse import DONE, MALFORMED
from agents.providers.usage import estimate_usage
from chatui.jsontext import encoded

if TYPE_CHECKING:
    from types import ModuleType

    from agents.providers.exchange import Exchange

MAX_RETRY_AFTER = 30.0  # seconds; an endpoint that asks for more is not retried, the person is told
BACKOFF_SECONDS = 0.5
_RETRIED = frozenset({408, 409, 429})
_BUSY_READ = 4096  # bytes; after a read this large the loop is given back
# Models that send only the closing tag of their reasoning, learnt from their first answer in this process.
_begin_inside: set[tuple[str, str]] = set()


async def preload() -> None:
    """Import the `openai` package in a thread: it takes a second that the first chat need not wait for."""
    await _module("exchange")


async def aclose_clients() -> None:
    """Close the HTTP clients that this event loop has open."""
    if "agents.providers.clients" in sys.modules:
        await (await _module("clients")).aclose()


async def _module(name: str) -> ModuleType:
    path = f"agents.providers.{name}"
    if path not in sys.modules:
        return await asyncio.to_thread(importlib.import_module, path)
    return importlib.import_module(path)


class OpenAIChatModel:
    """A `ChatModel` over the Chat Completions API.

    `asked`: the endpoint has the prompt of the stream that runs, or of the last one, and has neither refused it nor
    failed before its first word; so it has its cost, whatever cuts it. `when_asked` is called when that begins.
    """

    def __init__(self, settings: ModelSettings, when_asked: Callable[[], None] | None = None) -> None:
        self.settings = settings
        self.asked = False
        self._when_asked = when_asked

    @property
    def name(self) -> str:
        return self.settings.title or self.settings.model

    @property
    def capabilities(self) -> Capabilities:
        return self.settings.capabilities

    async def stream(
        self,
        messages: Sequence[ModelMessage],
        tools: Sequence[ToolSpec] = (),
        *,
        tool_choice: Literal["auto", "none"] = "auto",
    ) -> AsyncGenerator[ModelEvent, None]:
        """See `ChatModel.stream`. Retried only before the first chunk, and only where that can help."""
        body = request_body(self.settings, messages, tools, tool_choice=tool_choice)
        callable_names = [tool.name for tool in tools] if tool_choice == "auto" and "tools" in body else []
        payload = encoded(body)
        exchange = await _module("exchange")
        begun = False
        for attempt in range(self.settings.retries + 1):
            self.asked = False
            run = _Attempt(self.settings, callable_names, messages)
            deadline = asyncio.get_running_loop().time() + self.settings.first_token_timeout
            try:
                async with exchange.opened(self.settings, payload, deadline, self._sent) as answer:
                    while (events := await run.next_events(answer)) is not None:
                        for event in events:
                            begun = True
                            yield event
            except EndpointError as error:
                self.asked = self.asked and (begun or isinstance(error, EndpointTimeoutError))
                if run.started or attempt == self.settings.retries or not _may_retry(error):
                    raise
                await _pause(_delay(error, attempt))
            else:
                self.asked = run.answered
                for event in run.last_events():
                    yield event
                return

    def _sent(self) -> None:
        if not self.asked:
            self.asked = True
            if self._when_asked is not None:
                self._when_asked()


async def _pause(seconds: float) -> None:
    await asyncio.sleep(seconds)


def _may_retry(error: EndpointError) -> bool:
    if (error.retry_after or 0) > MAX_RETRY_AFTER:
        return False
    if error.http_status is None:  # no connection, or one that broke
        return isinstance(error, EndpointUnreachableError | EndpointUnavailableError)
    return error.http_status in _RETRIED or error.http_status >= 500


def _delay(error: EndpointError, attempt: int) -> float:
    if error.retry_after is not None:
        return error.retry_after
    return float(BACKOFF_SECONDS * 2**attempt * (1 - 0.25 * random.random()))


class _Attempt:
    """One request; `started` is True from the first chunk on."""

    def __init__(self, settings: ModelSettings, names: Sequence[str], messages: Sequence[ModelMessage]) -> None:
        self._settings, self._messages = settings, messages
        self._key = (settings.base_url, settings.model)
        self._inside = self._key in _begin_inside
        self._assembler = Assembler(names, inside=self._inside)
        self._done = False
        self._size = 0  # of the answer before the last read
        self._failure: EndpointError | None = None
        self.started = False

    @property
    def answered(self) -> bool:
        return self._assembler.answered

    async def next_events(self, answer: Exchange) -> list[ModelEvent] | None:
        """What the next read of the answer brings to be shown; None when the answer is whole.

        Raises `EndpointError` when it broke, after everything that had come was given out.
        """
        if self._failure is not None:
            raise self._failure
        if self._done:
            await answer.drain()
            return None
        if answer.size - self._size > _BUSY_READ:
            await asyncio.sleep(0)  # a fast endpoint never lets a read wait, and others must have their turn
        self._size = answer.size
        try:
            found = await answer.read()
            if found is None:
                return None
            for document in found:
                self._take(document)
        except StreamError as error:
            return self._broke(failures.stream_error(error, answer.secrets))
        except EndpointError as error:
            # Whole before it broke: only what follows the answer is missing.
            return None if self._assembler.whole else self._broke(error)
        answer.ending = self._assembler.whole
        return self._assembler.drain()

    def _broke(self, error: EndpointError) -> list[ModelEvent]:
        self._failure = error
        return self._assembler.abandon()

    def _take(self, document: Any) -> None:
        if document is DONE:
            self._done = True
        elif document is MALFORMED:
            raise StreamError("A part of the answer is not valid JSON.")
        elif not self._done:
            self.started = True
            self._assembler.feed(document)

    def last_events(self) -> list[ModelEvent]:
        """The end of a whole answer: what was held back, and the completion. Raises if there was no answer in it."""
        assembler = self._assembler
        if not assembler.answered:
            detail = "It ended without an answer."
            raise EndpointUnavailableError("no choice in the answer", detail=detail, http_status=200)
        events, completion = assembler.finish(done=self._done)
        if assembler.lone_close:
            _begin_inside.add(self._key)
        elif self._inside and not assembler.closed:
            _begin_inside.discard(self._key)
        return [*events, self._with_usage(completion)]

    def _with_usage(self, completion: Completion) -> Completion:
        if completion.usage is not None:
            return completion
        return replace(completion, usage=estimate_usage(self._messages, completion))
