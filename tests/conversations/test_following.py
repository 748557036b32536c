"""Following a turn through whichever door: nothing is missed between a look at the rows and the watch after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest
from django.test import AsyncClient

from accounts.actors import find_actor
from accounts.models import Organization, User
from chatui.errors import NotFoundError
from chatui.rows import in_rows
from conversations import commands, feed, following, transitions, turns
from conversations.commands import Snapshot
from conversations.feed import MemoryFeed
from conversations.models import Message, Turn
from conversations.turns import NewTurn
from conversations.wire import TextDelta
from tests.conversations.api.test_turns import follow
from tests.conversations.chat import Chat, settled

Look = Callable[[], Snapshot]


class Rows:
    """The door of one turn, as its row stands at each look."""

    def __init__(self, *looks: Look) -> None:
        self.looks, self.looked = list(looks), 0

    def run(self, function: Any, turn_id: UUID, *known: int) -> Snapshot | None:
        """As `commands.snapshot` or, with what is known, `commands.news`."""
        self.looked += 1
        found = (self.looks.pop(0) if len(self.looks) > 1 else self.looks[0])()
        return None if known == (found.seq,) and found.open else found


def at(seq: int, *, open: bool = True) -> Look:
    return lambda: Snapshot(f'{{"type": "turn.snapshot", "seq": {seq}}}', seq, open)


async def texts(rows: Rows, turn: UUID, after: int = 0) -> list[tuple[int, str]]:
    async with aclosing(following.frames(rows, turn, after)) as frames:
        return [(seq, orjson.loads(text)["type"]) async for seq, text in frames]


@pytest.fixture
async def channel() -> Any:
    yield feed.current()
    feed.current().aclose()


async def test_an_end_between_the_look_and_the_watch_is_told(channel: MemoryFeed) -> None:
    turn, loop = uuid4(), asyncio.get_running_loop()

    def looked_at() -> Snapshot:
        ended = asyncio.run_coroutine_threadsafe(_end(channel, turn), loop)
        ended.result(5)  # after the look, and before its caller hears of it
        return at(7)()

    rows = Rows(looked_at, at(8, open=False))
    assert await texts(rows, turn) == [(7, "turn.snapshot"), (8, "turn.snapshot")]
    assert channel.last_seq(turn) is None


async def _end(channel: MemoryFeed, turn: UUID) -> None:
    channel.end(turn, TextDelta(text="nobody watches yet"))


def telling(looked: asyncio.Event) -> Look:
    """At 7, and says that it was looked."""
    loop = asyncio.get_running_loop()

    def look() -> Snapshot:
        loop.call_soon_threadsafe(looked.set)
        return at(7)()

    return look


async def test_what_comes_after_the_second_look_is_followed(channel: MemoryFeed) -> None:
    turn, looked = uuid4(), asyncio.Event()
    hearing = asyncio.ensure_future(texts(Rows(at(7), telling(looked)), turn))
    await looked.wait()
    channel.open(turn, 7)
    channel.publish(turn, TextDelta(text="eight"))
    channel.close(turn)
    assert await hearing == [(7, "turn.snapshot"), (8, "text.delta")]


async def test_who_knows_all_that_is_stored_is_told_so_by_one_snapshot(channel: MemoryFeed) -> None:
    turn, looked = uuid4(), asyncio.Event()
    hearing = asyncio.ensure_future(texts(Rows(at(7), telling(looked)), turn, 7))
    await looked.wait()
    channel.end(turn, TextDelta(text="over"))
    assert await hearing == [(7, "turn.snapshot"), (8, "text.delta")]


async def test_who_leaves_while_it_looks_leaves_no_place_behind(channel: MemoryFeed) -> None:
    turn, looked = uuid4(), asyncio.Event()
    going = asyncio.ensure_future(texts(Rows(at(7), telling(looked)), turn))
    await looked.wait()
    going.cancel()
    await asyncio.wait({going})
    assert channel.last_seq(turn) is None


async def test_who_leaves_while_it_follows_leaves_no_place_behind(channel: MemoryFeed) -> None:
    turn = uuid4()
    frames = following.frames(Rows(at(7)), turn, 7)
    assert (await anext(frames))[0] == 7
    going = asyncio.ensure_future(anext(frames))
    while channel.last_seq(turn) is None:
        await settled()
    await settled()
    going.cancel()
    await asyncio.wait({going})
    assert channel.last_seq(turn) is None


async def test_a_feed_with_a_gap_is_not_asked_without_a_pause(
    channel: MemoryFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds less than what follows the rows, as a mirror may: the rows catch up in a moment."""
    turn, paused = uuid4(), list[float]()

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    monkeypatch.setattr("conversations.following.asyncio.sleep", sleep)
    channel.open(turn, 9)
    rows = Rows(at(7), at(7), at(7), at(7), at(12, open=False))
    assert await texts(rows, turn) == [(7, "turn.snapshot"), (12, "turn.snapshot")]
    assert paused == [following.PAUSE] * 2


# --- The doors ----------------------------------------------------------------------------------------------------


@pytest.fixture
def parked(owner: User, organization: Organization) -> Turn:
    """A turn that waits, and that no process holds anything of."""
    actor = find_actor(owner.pk, organization.pk)
    assert actor is not None
    begun = turns.begin_turn(
        actor, NewTurn(request_id=uuid4(), agent="helper", content=[{"type": "text", "text": "hi"}])
    )
    Turn.objects.filter(pk=begun.turn_id).update(status="waiting", last_seq=4)
    return Turn.objects.get(pk=begun.turn_id)


@pytest.fixture
def ends_when_looked_at(parked: Turn, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another process stops the turn just after the first look at it."""
    looks = []

    def look(*args: Any) -> Snapshot:
        looks.append(found := _snapshot(*args))
        if len(looks) == 1:
            transitions.end(parked.pk, Message.Status.STOPPED, None, leaving=Message.Status.WAITING)
        return found

    _snapshot = commands.snapshot
    monkeypatch.setattr(commands, "snapshot", look)
    yield
    assert len(looks) == 2


def test_a_look_at_a_turn_that_stands_as_it_stood_is_one_query(
    parked: Turn, owner: User, organization: Organization, django_assert_num_queries: Any
) -> None:
    actor = find_actor(owner.pk, organization.pk)
    assert actor is not None
    with django_assert_num_queries(1):
        assert commands.news(actor, parked.pk, 4) is None
    moved = commands.news(actor, parked.pk, 3)
    assert moved is not None
    assert (moved.seq, moved.open) == (4, True)
    with pytest.raises(NotFoundError):
        commands.news(actor, uuid4(), 4)


async def over_sse(owner: User, turn: Turn) -> list[tuple[str, str]]:
    client = AsyncClient()
    await in_rows(client.force_login, owner)
    found = await follow(client, str(turn.pk))
    return [(event.data["type"], event.data["status"]) for event in found]


async def over_the_socket(owner: User, turn: Turn) -> list[tuple[str, str]]:
    async with await Chat.of(owner) as chat:
        await chat.send("turn.follow", turn_id=str(turn.pk))
        await chat.until("turn.snapshot", lambda frame: frame["status"] == "stopped")
        return [(frame["type"], frame["status"]) for frame in chat.frames(turn.pk)]


@pytest.mark.parametrize("door", [over_sse, over_the_socket])
async def test_every_door_tells_of_an_end_in_the_middle(
    owner: User,
    parked: Turn,
    ends_when_looked_at: None,
    door: Callable[..., Awaitable[list[tuple[str, str]]]],
) -> None:
    assert await door(owner, parked) == [("turn.snapshot", "waiting"), ("turn.snapshot", "stopped")]
    assert feed.current().last_seq(parked.pk) is None
