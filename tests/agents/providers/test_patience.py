"""A limit on each of many waits: it ends the wait and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from agents.providers.patience import Patience


async def never() -> None:
    await asyncio.Event().wait()


def from_now(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def passed(seconds: float) -> None:
    over = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(seconds, over.set_result, None)
    await over


async def test_a_wait_ends_at_the_deadline() -> None:
    patience = Patience(from_now(0.02))
    with pytest.raises(TimeoutError):
        await patience.wait(never())
    assert asyncio.current_task().cancelling() == 0


async def test_waits_together_end_at_the_deadline() -> None:
    patience = Patience(from_now(0.06))
    await patience.wait(passed(0.03))
    with pytest.raises(TimeoutError):
        await patience.wait(passed(5))


async def test_a_deadline_that_has_passed_ends_the_next_wait() -> None:
    patience = Patience(from_now(-1))
    with pytest.raises(TimeoutError):
        await patience.wait(never())


async def test_each_wait_has_its_own_time() -> None:
    patience = Patience(from_now(10))
    patience.per_wait(0.08)
    for _ in range(4):
        await patience.wait(passed(0.04))
    with pytest.raises(TimeoutError):
        await patience.wait(never())
    patience.close()


async def test_time_between_the_waits_does_not_count() -> None:
    patience = Patience(from_now(10))
    patience.per_wait(0.05)
    await passed(0.12)
    assert await patience.wait(asyncio.sleep(0, "result")) == "result"
    await passed(0.12)
    await patience.wait(passed(0.03))
    patience.close()


async def test_a_cancellation_from_outside_stays_one() -> None:
    patience = Patience(from_now(10))
    task = asyncio.create_task(patience.wait(never()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    patience.close()


async def test_a_cancellation_at_the_moment_of_the_limit_stays_one() -> None:
    patience = Patience(from_now(0.01))
    task = asyncio.create_task(patience.wait(never()))
    asyncio.get_running_loop().call_later(0.01, task.cancel)
    with pytest.raises((asyncio.CancelledError, TimeoutError)):
        await task


async def test_an_error_of_what_is_awaited_passes_through() -> None:
    async def broken() -> None:
        raise ConnectionResetError

    patience = Patience(from_now(10))
    with pytest.raises(ConnectionResetError):
        await patience.wait(broken())
    patience.close()
