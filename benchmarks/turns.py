"""What is measured through the websocket of a running server, beside the same work done directly, in one run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import direct
from benchmarks.driver import Answer, AnswerError, Person, people
from benchmarks.figures import Figure, median, percentile
from benchmarks.processes import Usage
from benchmarks.product import MODELS, ORGANIZATION, PACED_RATE, PACED_TOKENS, Product

STREAMS = 200
STARTS = 60  # new chats a second, while the streams are started
NEIGHBOURS = 50


@dataclass(slots=True)
class Bench:
    """A running product, its people, and the direct ways beside it."""

    product: Product
    usage: Usage
    persons: Sequence[Person]
    raw: direct.RawHTTP
    package: direct.Package
    idle: float = 0.0

    @classmethod
    async def of(cls, product: Product, keys: Sequence[str]) -> Bench:
        """Warm, with a socket for each key; `idle` is the memory before all but the first of them came."""
        endpoint = product.ports.endpoint
        first = await people(product.url, ORGANIZATION, keys[:1])
        raw, package = await direct.RawHTTP.to(endpoint), direct.Package(endpoint)
        bench = cls(product, product.usage, first, raw, package)
        await bench.warm_up()
        bench.idle = bench.usage.megabytes()
        bench.persons = [*first, *await people(product.url, ORGANIZATION, keys[1:])]
        return bench

    async def aclose(self) -> None:
        for person in self.persons:
            person.leave()
        await self.raw.aclose()
        await self.package.aclose()

    async def warm_up(self) -> None:
        """What the first chats of a process pay: imports, connections, caches."""
        for agent, tokens in (("first", 10), ("full", 2000), ("tool", 20)):
            for _ in range(3):
                await self.persons[0].ask(agent, tokens)
        await self.raw.ask(MODELS["first"])
        await self.package.ask(MODELS["first"])


async def first_token(bench: Bench, times: int = 80) -> list[Figure]:
    """A new chat each time; the three ways in turn, so that they meet the same noise."""
    ours, raw, package = [], [], []
    for number in range(times):
        answer = await bench.persons[number % 20].ask("first", 10)
        ours.append((answer.first - answer.asked) * 1000)
        raw.append((await bench.raw.ask(MODELS["first"])).first * 1000)
        package.append((await bench.package.ask(MODELS["first"])).first * 1000)
    base = median(raw)
    note = (
        f"over bare HTTP ({base:.2f} ms at p50; the openai package: {median(package):.2f} ms); "
        f"from the question's frame to the first text, {times} new chats"
    )
    return [
        Figure("added time to the first token, p50", median(ours) - base, "ms", 15, 10, note=note),
        Figure("added time to the first token, p95", percentile(ours, 0.95) - base, "ms", 30, 20),
        Figure("… over the openai package, p50", median(ours) - median(package), "ms"),
    ]


async def full_speed(bench: Bench, times: int = 12) -> list[Figure]:
    """2,000 tokens as fast as they come; ours until the end that is committed, so storage is in it."""
    stored, streamed, package = [], [], []
    for number in range(times):
        answer = await bench.persons[number % 20].ask("full", 2000)
        stored.append(2000 / (answer.finished - answer.asked))
        streamed.append(2000 / (answer.last - answer.asked))
        package.append((await bench.package.ask(MODELS["full"])).rate)
    note = f"until `turn.finished`, which follows the commit; until the last text: {median(streamed):,.0f}"
    return [
        Figure("a 2,000-token answer, stored", median(stored), "tokens/s", 10_000, 20_000, higher=True, note=note),
        Figure("… the openai package alone", median(package), "tokens/s"),
        Figure("… ratio", median(stored) / median(package), "×"),
    ]


async def short_chats(bench: Bench, times: int = 240, at_once: int = 8) -> list[Figure]:
    """New chats of 20 tokens, one after the other at each of a few sockets."""
    cpu, began = bench.usage.cpu(), time.monotonic()

    async def chats(person: Person) -> None:
        for _ in range(times // at_once):
            await person.ask("short", 20)

    await asyncio.gather(*(chats(person) for person in bench.persons[:at_once]))
    seconds, spent = time.monotonic() - began, bench.usage.cpu() - cpu
    return [
        Figure("CPU of a short chat", spent / times * 1000, "ms", goal=15, note="a new chat of 20 tokens"),
        Figure("short chats", times / seconds, "chats/s", note=f"{at_once} people at once, each waiting for the end"),
    ]


async def many_streams(bench: Bench) -> list[Figure]:
    """200 new chats, 60 started a second, each `PACED_TOKENS` tokens at `PACED_RATE` a second."""
    ended = asyncio.Event()
    peak = asyncio.create_task(bench.usage.peak(ended))
    cpu, others, began = bench.usage.cpu(), bench.usage.others(), time.monotonic()
    answers: list[Answer] = []
    for number, person in enumerate(bench.persons[:STREAMS]):
        await asyncio.sleep(max(0.0, began + number / STARTS - time.monotonic()))
        answers.append(person.start("paced"))
    steady_cpu, steady_from = bench.usage.cpu(), time.monotonic()
    until = answers[0].asked + PACED_TOKENS / PACED_RATE
    await asyncio.sleep(max(0.5, until - time.monotonic() - 0.3))
    steady_cpu, steady_to = bench.usage.cpu() - steady_cpu, time.monotonic()
    async with asyncio.timeout(120):
        ends = await asyncio.gather(*(answer.ended for answer in answers), return_exceptions=True)
    spent = bench.usage.cpu() - cpu
    others = (bench.usage.others() - others) / (time.monotonic() - began)
    ended.set()
    errors = [str(error) for error in ends if isinstance(error, BaseException)]
    for answer in answers:
        try:
            answer.check(PACED_TOKENS)
        except (AnswerError, KeyError) as error:
            errors.append(str(error))
    lags = [(at, late * 1000) for answer in answers for at, late in answer.lags]
    steady = [late for at, late in lags if steady_from <= at <= steady_to]
    started = max(answer.started for answer in answers) - answers[0].asked
    frames = sum(answer.frames for answer in answers)
    note = (
        f"arrival minus the endpoint's stamp, starting included; {frames / STREAMS:.0f} frames a stream; "
        f"other processes took {others:.0%} of the server's core"
    )
    return [
        Figure("200 streams: errors", len(errors), "", 0, 0, note="; ".join(dict.fromkeys(errors[:3]))),
        Figure("200 streams: lag, p50", percentile((late for _, late in lags), 0.5), "ms"),
        Figure("200 streams: lag, p95", percentile((late for _, late in lags), 0.95), "ms", 100, 50, note=note),
        Figure("200 streams: lag once all run, p95", percentile(steady, 0.95), "ms"),
        Figure("200 streams: started", STREAMS / started, "chats/s", goal=58, higher=True, note=f"{STARTS} are sent"),
        Figure("200 streams: CPU per 1,000 tokens", spent / (len(lags) / 1000), "s", goal=0.08, note="starts included"),
        Figure("… once all run", steady_cpu / (max(1, len(steady)) / 1000), "s"),
        Figure("memory at 200 streams", await peak, "MB", goal=280),
    ]


async def fast_neighbour(bench: Bench) -> list[Figure]:
    """50 paced streams, at first alone, then beside one that takes 20,000-token answers at full speed."""
    answers = [person.start("paced") for person in bench.persons[:NEIGHBOURS]]
    await asyncio.sleep(1.5)
    alone_from = time.monotonic()
    await asyncio.sleep(2.5)
    beside_from, tokens = time.monotonic(), 0
    while time.monotonic() < beside_from + 2.5:
        tokens += (await bench.persons[NEIGHBOURS].ask("fast", 20_000)).tokens
    beside_to = time.monotonic()
    await asyncio.gather(*(answer.ended for answer in answers))
    lags = [(at, late * 1000) for answer in answers for at, late in answer.lags]
    alone = percentile((late for at, late in lags if alone_from <= at < beside_from), 0.95)
    beside = percentile((late for at, late in lags if beside_from <= at < beside_to), 0.95)
    rate = tokens / (beside_to - beside_from)
    note = f"{alone:.1f} ms alone, {beside:.1f} ms beside a stream of {rate:,.0f} tokens/s; {NEIGHBOURS} paced streams"
    return [Figure("one fast stream's effect on others, p95", beside - alone, "ms", goal=10, note=note)]


async def tool_turns(bench: Bench, times: int = 30) -> list[Figure]:
    """Two model rounds and a call on a warm connection, ours and by the two packages."""
    ours, package = [], []
    async with direct.mcp_client(bench.product.ports.echo_url) as client:
        await direct.echoed(client, "hello")
        for number in range(times):
            answer = await bench.persons[number % 20].ask("tool", 20)
            if answer.calls != 1:
                raise AnswerError(f"{answer.calls} calls instead of one")
            ours.append((answer.finished - answer.asked) * 1000)
            package.append(await bench.package.tool_turn(MODELS["tool"], client) * 1000)
    note = f"two rounds and a warm call, to the committed end; the packages alone: {median(package):.1f} ms"
    return [Figure("MCP round trip, p50", median(ours), "ms", goal=40, note=note)]
