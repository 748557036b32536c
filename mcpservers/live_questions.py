"""Questions that a server of the session era asks during a call: to which call one belongs, who answers, who cannot.

A session carries nothing that links a question to its call. So a question belongs to the only call that runs on the
connection; once a server has asked, its calls go one at a time; and on a connection that users share nobody is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcpservers.elicitation import Answer, InvalidAnswerError, UnaskableError, read
from mcpservers.health import troubles
from mcpservers.scope import Scope

if TYPE_CHECKING:
    from mcpservers.transports import ConnectionTarget

JSONObject = dict[str, Any]
Ask = Callable[[JSONObject], Awaitable[Answer]]  # shows a card; cancelled when the question is given up

CANCEL: JSONObject = {"action": "cancel"}
NEEDS_USER_SCOPE = (
    "It asked a person during a call, on a connection that all users share, and was refused: it needs user scope. "
    "With {{user.id}} in a header, its address or its environment each user has a connection of their own."
)
SHARED = (
    "A question of the server was refused: it is asked on a connection that all users share. An admin can change that."
)
AMBIGUOUS = (
    "A question of the server was cancelled, since it cannot be told during which of several calls it was asked."
)


class RefusedError(Exception):
    """The server is told that nobody is asked; the text is for it."""


@dataclass(slots=True)
class Person:
    """Somebody who can be asked during a call.

    `ask` keeps the call open meanwhile. `kept` and `answer` are of a question that an earlier attempt of the same call
    ended with. `notes` gathers what people and the model should know of questions that nobody saw.
    """

    ask: Ask | None = None
    kept: Mapping[str, Any] | None = None
    answer: Answer | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class RunningCall:
    """A call in hand: `paused` stops its deadlines, `abandon` ends it at once."""

    person: Person | None
    paused: Callable[[], AbstractContextManager[None]]
    abandon: Callable[[], None]
    nobody: bool = False  # it asked, and nobody is there
    _asking: set[asyncio.Future[Answer]] = field(default_factory=set)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ask(self, card: JSONObject) -> Answer:
        """The answer, or a cancellation where nobody gives one; one question at a time."""
        async with self._one:
            assert self.person is not None
            assert self.person.ask is not None
            asking = asyncio.ensure_future(self.person.ask(card))
            self._asking.add(asking)
            try:
                with self.paused():
                    await asyncio.wait({asking})
            finally:
                asking.cancel()
                self._asking.discard(asking)
        return Answer("cancel") if asking.cancelled() else asking.result()

    def end(self) -> None:
        """Nobody waits for answers any more."""
        for asking in list(self._asking):
            asking.cancel()


class LiveQuestions:
    """The questions of one connection. `on_asked` hears of the first, so that it is remembered of the server."""

    def __init__(self, target: ConnectionTarget, on_asked: Callable[[ConnectionTarget], Awaitable[None]]) -> None:
        self._target, self._on_asked = target, on_asked
        self._has_asked = False
        self._calls: list[RunningCall] = []
        self._taken = 0
        self._free = asyncio.Event()

    @asynccontextmanager
    async def turn(self, *, has_asked: bool) -> AsyncIterator[None]:
        """Wait for the calls before, where the server is known to ask (`has_asked`: by what is stored of it)."""
        while self._taken and (has_asked or self._has_asked) and self._target.scope is not Scope.APP:
            await self._free.wait()
        self._taken += 1
        self._free.clear()
        try:
            yield
        finally:
            self._taken -= 1
            if not self._taken:
                self._free.set()

    @contextmanager
    def during(self, call: RunningCall) -> Iterator[None]:
        """Questions that come meanwhile may be this call's."""
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)
            call.end()

    async def asked(self, params: Mapping[str, Any]) -> JSONObject:
        """The `ElicitResult` for the params of an `elicitation/create`. Raises `RefusedError`."""
        calls = list(self._calls)
        if self._target.scope is Scope.APP:
            troubles.note(self._target, "needs_user_scope", NEEDS_USER_SCOPE)
            _note(calls if len(calls) == 1 else [], SHARED)
            raise RefusedError("Nobody is asked on a connection that several users share.")
        if not self._has_asked:
            self._has_asked = True
            await self._on_asked(self._target)
        if not calls:
            raise RefusedError("No call is running that could be asked about.")
        if len(calls) > 1:
            _note(calls, AMBIGUOUS)
            return CANCEL
        return await self._answer(calls[0], params)

    async def _answer(self, call: RunningCall, params: Mapping[str, Any]) -> JSONObject:
        if call.person is None or call.person.ask is None:
            call.nobody = True
            call.abandon()
            raise RefusedError("Nobody is present who could be asked.")
        try:
            asked = read(params)
        except UnaskableError as error:
            _note([call], f"A question was declined without being shown. {error}")
            return {"action": "decline"}
        answer = await call.ask({**asked.card(), "step": 1, "steps": 1})
        try:
            return answer.result(asked)
        except InvalidAnswerError:  # it was checked when it was given; then never what does not fit
            return CANCEL


def _note(calls: list[RunningCall], note: str) -> None:
    for call in calls:
        if call.person is not None:
            call.person.notes.append(note)
