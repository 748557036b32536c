"""Turns that are followed from another process than the one that runs them: no gap, no duplicate, whatever dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from uuid import UUID, uuid4

import orjson
import pytest

from conversations.feed import NotHeldError
from conversations.feed_shared import SharedFeed
from conversations.wire import TextDelta
from tests.settings import TEST_REDIS_URL

Make = Callable[[], SharedFeed]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Feeds of several processes that share one Redis."""
    prefix, feeds = f"test:{uuid4().hex}:", list[SharedFeed]()

    def one(url: str = TEST_REDIS_URL) -> SharedFeed:
        feeds.append(SharedFeed(url, 60, prefix=prefix))
        feeds[-1]._client.connection_pool.connection_kwargs |= {"socket_connect_timeout": 60, "socket_timeout": 60}
        return feeds[-1]

    yield one
    for feed in feeds:
        feed.aclose()
        await feed.disconnect()


def say(feed: SharedFeed, turn: UUID, *words: str) -> None:
    for word in words:
        feed.publish(turn, TextDelta(text=word))


async def heard(feed: SharedFeed, turn: UUID, after: int = 0) -> list[tuple[int, str]]:
    frames = [orjson.loads(text) async for text in feed.follow(turn, after)]
    return [(frame["seq"], frame["text"]) for frame in frames]


async def some(feed: SharedFeed, turn: UUID, after: int, count: int) -> list[str]:
    """The next `count` texts, live."""
    found = []
    async with aclosing(feed.follow(turn, after)) as frames:
        while len(found) < count:
            found.append(orjson.loads(await anext(frames))["text"])
    return found


async def test_a_turn_of_another_process_is_followed_from_its_first_frame_to_its_end(make: Make) -> None:
    here, there = make(), make()
    turn = uuid4()
    here.open(turn, 0)
    say(here, turn, "a", "b")
    await here.written()
    following = asyncio.ensure_future(heard(there, turn))
    late = asyncio.ensure_future(heard(there, turn, 1))
    say(here, turn, "c")
    here.close(turn)
    assert await following == [(1, "a"), (2, "b"), (3, "c")]
    assert await late == [(2, "b"), (3, "c")]


async def test_a_burst_arrives_whole_and_in_order(make: Make) -> None:
    here, there = make(), make()
    turn = uuid4()
    here.open(turn, 0)
    say(here, turn, "first")
    await here.written()
    followers = [asyncio.ensure_future(heard(feed, turn)) for feed in (here, there, there)]
    say(here, turn, *(f"{number}" for number in range(3000)))
    here.close(turn)
    for found in await asyncio.gather(*followers):
        assert [seq for seq, _ in found] == list(range(1, 3002))


async def test_many_turns_are_mirrored_by_one_reader(make: Make) -> None:
    here, there = make(), make()
    turns = [uuid4() for _ in range(20)]
    for turn in turns:
        here.open(turn, 0)
        say(here, turn, "hello")
    await here.written()
    following = [asyncio.ensure_future(heard(there, turn)) for turn in turns]
    for turn in turns:
        say(here, turn, "bye")
        here.close(turn)
    for found in await asyncio.gather(*following):
        assert [text for _, text in found] == ["hello", "bye"]


async def test_an_ended_turn_can_be_replayed_elsewhere(make: Make) -> None:
    here, there = make(), make()
    turn = uuid4()
    here.open(turn, 0)
    say(here, turn, "a", "b")
    here.close(turn)
    await here.written()
    assert await heard(there, turn, 1) == [(2, "b")]


async def test_a_parked_turn_that_another_process_takes_up_goes_on_for_who_followed_it(make: Make) -> None:
    one, two = make(), make()
    turn = uuid4()
    one.open(turn, 0)
    say(one, turn, "asked")
    following = asyncio.ensure_future(heard(one, turn))
    one.rest(turn)
    await one.written()
    two.open(turn, 1)
    say(two, turn, "answered", "done")
    two.close(turn)
    assert await following == [(1, "asked"), (2, "answered"), (3, "done")]


async def test_who_has_seen_more_than_is_held_or_not_enough_is_told(make: Make) -> None:
    here, there = make(), make()
    turn = uuid4()
    here.open(turn, 4)
    say(here, turn, "five")
    await here.written()
    for after in (0, 3, 6):
        with pytest.raises(NotHeldError):
            await heard(there, turn, after)
    with pytest.raises(NotHeldError):
        await heard(there, uuid4())


async def test_what_comes_after_a_snapshot_is_watched(make: Make) -> None:
    here, there = make(), make()
    turn = uuid4()
    there.watch(turn, 7)
    following = asyncio.ensure_future(heard(there, turn, 7))
    here.open(turn, 7)
    say(here, turn, "eight")
    here.close(turn)
    assert await following == [(8, "eight")]


async def test_the_end_of_a_turn_without_a_task_reaches_who_follows_it_elsewhere(make: Make) -> None:
    dead, there, reaper = make(), make(), make()
    turn = uuid4()
    dead.open(turn, 0)
    say(dead, turn, "half")
    await dead.written()
    following = asyncio.ensure_future(heard(there, turn))
    reaper.end(turn, TextDelta(text="interrupted"))
    assert await following == [(1, "half"), (2, "interrupted")]


async def test_a_turn_that_begins_again_below_what_a_dead_process_published_is_taken_up(make: Make) -> None:
    dead, heir, there = make(), make(), make()
    turn = uuid4()
    dead.open(turn, 0)
    say(dead, turn, "a", "b", "never stored")
    await dead.written()
    heir.open(turn, 2)
    say(heir, turn, "c", "d")
    heir.close(turn)
    await heir.written()
    assert await heard(there, turn, 2) == [(3, "c"), (4, "d")]


async def test_without_redis_a_process_serves_its_own_turns_and_says_so(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    here = make("redis://127.0.0.1:9/0")
    turn = uuid4()
    here.open(turn, 0)
    say(here, turn, "a")
    here.close(turn)
    assert await heard(here, turn) == [(1, "a")]
    with pytest.raises(NotHeldError):
        await heard(here, uuid4())
    assert "Redis is away" in caplog.text


async def test_nobody_is_mirrored_for_longer_than_it_is_followed(make: Make) -> None:
    here, there = make(), make()
    turn = uuid4()
    here.open(turn, 0)
    say(here, turn, "a", "b")
    await here.written()
    assert await some(there, turn, 0, 2) == ["a", "b"]
    assert there.last_seq(turn) is None


async def test_what_rests_is_mirrored_again_for_whoever_comes_next(make: Make) -> None:
    one, two = make(), make()
    turn = uuid4()
    one.open(turn, 0)
    say(one, turn, "asked")
    one.rest(turn)
    await one.written()
    assert await some(one, turn, 0, 1) == ["asked"]  # and leaves
    following = asyncio.ensure_future(heard(one, turn))
    two.open(turn, 1)
    say(two, turn, "answered")
    two.close(turn)
    assert await following == [(1, "asked"), (2, "answered")]


async def test_nothing_is_kept_of_parked_turns_that_nobody_follows(make: Make) -> None:
    here = make()
    here._keep_seconds = 0
    turn, gone = uuid4(), asyncio.Event()
    here.open(turn, 0)
    say(here, turn, "asked")
    here.rest(turn)
    asyncio.get_running_loop().call_later(0.01, gone.set)
    await gone.wait()
    assert (here.last_seq(turn), here._mirrored, here._reader) == (None, set(), None)


async def test_the_end_of_a_turn_that_went_on_elsewhere_follows_what_was_said_there(make: Make) -> None:
    one, two, there = make(), make(), make()
    turn = uuid4()
    one.open(turn, 0)
    say(one, turn, "asked")
    one.rest(turn)
    await one.written()
    two.open(turn, 1)
    say(two, turn, "answered", "and died")
    await two.written()
    following = asyncio.ensure_future(heard(there, turn))
    one.end(turn, TextDelta(text="interrupted"))
    assert await following == [(1, "asked"), (2, "answered"), (3, "and died"), (4, "interrupted")]


async def test_a_stream_that_is_gone_is_noticed_while_others_go_on(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conversations.feed_shared.LOST_SECONDS", 0.0)
    here, there = make(), make()
    lost, busy = uuid4(), uuid4()
    for turn in (lost, busy):
        here.open(turn, 0)
        say(here, turn, "hello")
    await here.written()
    following = asyncio.ensure_future(heard(there, lost))
    others = asyncio.ensure_future(heard(there, busy))
    await here._client.delete(here._key(lost))
    while not following.done():  # there is always something to read
        say(here, busy, "again")
        await here.written()
    with pytest.raises(NotHeldError):
        await following
    here.close(busy)
    await others


async def test_it_is_said_once_that_redis_is_away(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    here = make("redis://127.0.0.1:9/0")
    for _ in range(3):
        with pytest.raises(NotHeldError):
            await heard(here, uuid4())
    assert caplog.text.count("Redis is away") == 1
