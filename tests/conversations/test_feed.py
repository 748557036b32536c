import asyncio
from uuid import UUID, uuid4

import orjson
import pytest

from conversations.feed import MemoryFeed, NotHeldError
from conversations.wire import TextDelta


def numbers(frames: list[str]) -> list[int]:
    return [orjson.loads(frame)["seq"] for frame in frames]


async def everything(feed: MemoryFeed, turn: UUID, after: int = 0) -> list[str]:
    return [frame async for frame in feed.follow(turn, after)]


async def test_frames_are_numbered_from_one_without_gap() -> None:
    feed, turn = MemoryFeed(60), uuid4()
    feed.open(turn, 0)
    assert [feed.publish(turn, TextDelta(text=word)) for word in ("a", "b", "c")] == [1, 2, 3]
    feed.close(turn)
    assert numbers(await everything(feed, turn)) == [1, 2, 3]
    feed.aclose()


async def test_a_late_follower_gets_what_it_missed_and_then_what_comes() -> None:
    feed, turn = MemoryFeed(60), uuid4()
    feed.open(turn, 0)
    for _ in range(3):
        feed.publish(turn, TextDelta(text="x"))
    follower = feed.follow(turn, 2)
    assert numbers([await anext(follower)]) == [3]
    waiting = asyncio.ensure_future(anext(follower))
    await asyncio.sleep(0)
    assert not waiting.done()
    feed.publish(turn, TextDelta(text="y"))
    assert numbers([await waiting]) == [4]
    feed.close(turn)
    with pytest.raises(StopAsyncIteration):
        await anext(follower)
    feed.aclose()


async def test_every_follower_gets_every_frame_of_a_burst_of_a_thousand() -> None:
    feed, turn = MemoryFeed(60), uuid4()
    feed.open(turn, 0)
    followers = [asyncio.ensure_future(everything(feed, turn)) for _ in range(5)]
    await asyncio.sleep(0)
    for _ in range(1000):
        feed.publish(turn, TextDelta(text="t"))
    feed.close(turn)
    for frames in await asyncio.gather(*followers):
        assert numbers(frames) == list(range(1, 1001))
    feed.aclose()


async def test_an_unknown_turn_and_a_number_from_the_future_are_not_held() -> None:
    feed, turn = MemoryFeed(60), uuid4()
    with pytest.raises(NotHeldError):
        await everything(feed, turn)
    feed.open(turn, 0)
    with pytest.raises(NotHeldError):
        await everything(feed, turn, after=7)
    feed.aclose()


async def test_a_resumed_turn_goes_on_numbering_after_what_the_database_knows() -> None:
    feed, turn = MemoryFeed(60), uuid4()
    feed.open(turn, 41)
    assert feed.publish(turn, TextDelta(text="on")) == 42
    with pytest.raises(NotHeldError):
        await everything(feed, turn, after=0)
    feed.close(turn)
    assert numbers(await everything(feed, turn, after=41)) == [42]
    feed.aclose()


async def test_a_parked_turn_keeps_its_followers_and_its_number_when_its_frames_go() -> None:
    feed, turn = MemoryFeed(0), uuid4()
    feed.open(turn, 0)
    feed.publish(turn, TextDelta(text="before"))
    follower = feed.follow(turn, 0)
    await anext(follower)
    waiting = asyncio.ensure_future(anext(follower))
    await asyncio.sleep(0)
    feed.rest(turn)
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    loop.call_later(0.01, gone.set)
    await gone.wait()
    assert feed.last_seq(turn) == 1
    feed.open(turn, 1)
    feed.publish(turn, TextDelta(text="after"))
    assert numbers([await waiting]) == [2]
    await follower.aclose()
    feed.aclose()


async def test_an_ended_turn_is_forgotten_after_its_time() -> None:
    feed, turn = MemoryFeed(0), uuid4()
    feed.open(turn, 0)
    feed.close(turn)
    gone = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, gone.set)
    await gone.wait()
    assert feed.last_seq(turn) is None


async def test_who_is_still_being_sent_frames_when_they_go_is_told_so() -> None:
    feed, turn = MemoryFeed(0), uuid4()
    feed.open(turn, 0)
    for word in ("one", "two"):
        feed.publish(turn, TextDelta(text=word))
    follower = feed.follow(turn, 0)
    await anext(follower)  # it is sent the first, slowly
    feed.rest(turn)
    gone = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, gone.set)
    await gone.wait()
    assert feed.last_seq(turn) == 2
    with pytest.raises(NotHeldError):
        await anext(follower)
    assert feed.last_seq(turn) is None  # nobody follows it any more
    feed.aclose()


async def test_a_place_behind_what_is_stored_is_moved_on() -> None:
    feed, turn = MemoryFeed(60), uuid4()
    feed.open(turn, 0)
    feed.publish(turn, TextDelta(text="before"))
    feed.rest(turn)
    feed.watch(turn, 5)  # it went on elsewhere, and rests again
    feed.end(turn, TextDelta(text="over"))
    assert numbers(await everything(feed, turn, after=5)) == [6]
    feed.aclose()
