"""A limit on each of many waits: it ends the wait and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from agents.providers.patience import Patience

Ahead = Callable[[float], None]
Passed = Callable[[float], Awaitable[None]]


async def never() -> None:
    await asyncio.Event().wait()


def from_now(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


@pytest.fixture
def passed(ahead: Ahead) -> Callable[[float], Awaitable[None]]:
    """A wait that takes so many seconds of the loop's clock, and none of the machine's."""

    async def wait(seconds: float) -> None:
        ahead(seconds)
        for _ in range(3):
            await asyncio.sleep(0)  # what is due by now happens

    return wait


async def test_a_wait_ends_at_the_deadline() -> None:
    patience = Patience(from_now(0.02))
    with pytest.raises(TimeoutError):
        await patience.wait(never())
    assert asyncio.current_task().cancelling() == 0


async def test_waits_together_end_at_the_deadline(passed: Passed) -> None:
    patience = Patience(from_now(60))
    await patience.wait(passed(40))
    with pytest.raises(TimeoutError):
        await patience.wait(passed(40))


async def test_a_deadline_that_has_passed_ends_the_next_wait() -> None:
    patience = Patience(from_now(-1))
    with pytest.raises(TimeoutError):
        await patience.wait(never())


async def test_each_wait_has_its_own_time(passed: Passed) -> None:
    patience = Patience(from_now(10))
    patience.per_wait(60)
    for _ in range(4):
        await patience.wait(passed(40))
    with pytest.raises(TimeoutError):
        await patience.wait(passed(60))
    patience.close()


async def test_time_between_the_waits_does_not_count(passed: Passed) -> None:
    patience = Patience(from_now(10))
    patience.per_wait(60)
    await passed(150)
    assert await patience.wait(asyncio.sleep(0, "result")) == "result"
    await passed(150)
    await patience.wait(passed(40))
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
