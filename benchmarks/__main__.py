"""`python -m benchmarks`: measure everything from nothing, print tables, write `var/bench.json`."""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import uvloop

from benchmarks import turns
from benchmarks.driver import AnswerError
from benchmarks.figures import Figure, median, table
from benchmarks.processes import ROOT, machine, pin_self
from benchmarks.product import Product, surroundings, versions
from benchmarks.turns import Bench

Measure = Callable[[Bench], Awaitable[list[Figure]]]
THROUGH_THE_SOCKET: dict[str, Measure] = {
    "first_token": turns.first_token,
    "full_speed": turns.full_speed,
    "short_chats": turns.short_chats,
    "tool_turns": turns.tool_turns,
    "many_streams": turns.many_streams,
    "fast_neighbour": turns.fast_neighbour,
}


def calls(product: Product) -> list[Figure]:
    found = product.inside("calls", product.ports.echo_url)
    note = f"{found['ours']:.2f} ms; bare {found['bare']:.2f} ms; connecting each time {found['connecting']:.1f} ms"
    return [
        Figure("a tool call, of a bare warm mcp client", found["ours"] / found["bare"], "×", 1.5, note=note),
        Figure("… of connecting for each call", found["ours"] / found["connecting"], "×"),
    ]


def offer(product: Product) -> list[Figure]:
    found = product.inside("offer", product.ports.many_url)
    note = (
        f"{found['known']} tools known, {found['offered']} offered, {found['queries']} queries, "
        f"{found['connects']} connections; the first, from rows: {found['first']:.0f} ms"
    )
    down = found["with_down"] / found["without"]
    return [
        Figure("the offer of 20 servers × 50 tools, to somebody in 20 groups", found["median"], "ms", 20, note=note),
        Figure("… with 3 rules in each of the groups", found["with_rules"], "ms", 20),
        Figure("… with 20 more that are down", found["with_down"], "ms", 30),
        Figure("… of the same without them", down, "×", 1.25, 1.1),
    ]


def schemas(product: Product) -> list[Figure]:
    found = product.inside("schemas")
    slowest = max(found, key=lambda dialect: found[dialect])
    return [
        Figure("repairing 1,000 schemas of real servers, the slowest dialect", found[slowest], "s", 1, note=slowest)
    ]


def queries(product: Product) -> list[Figure]:
    found = product.inside("queries")
    spent = f"{found['open_1000_ms']:.0f} ms"
    return [
        Figure("queries of a new chat", found["new_first"], ""),
        Figure("… with a tool call", found["new_tool"], ""),
        Figure("queries of a turn after 2 messages", found["turn_2"], ""),
        Figure("queries of a turn after 200 messages", found["turn_200"], "", found["turn_2"]),
        Figure("queries to open 1,000 messages", found["open_1000"], "", 10, note=spent),
    ]


def audit(product: Product) -> list[Figure]:
    found = product.inside("audit")
    note = (
        f"{found['with']:.2f} ms for the end of a call, {found['without']:.2f} ms without an entry; "
        f"{found['statements_with']:.0f} statements, {found['statements_without']:.0f} without"
    )
    return [Figure("what an audit entry adds to a call", found["with"] - found["without"], "ms", 1, note=note)]


def verdict(product: Product) -> list[Figure]:
    found = product.inside("verdict")
    note = (
        f"decided in {found['decided']:.2f} ms, looked at again when it is made in {found['authorized']:.2f} ms; "
        f"{found['decided_queries']:.0f} and {found['authorized_queries']:.0f} queries; where a person is asked "
        f"{found['asked']:.2f} ms and {found['asked_queries']:.0f} queries, of approvers "
        f"{found['approved']:.2f} ms and {found['approved_queries']:.0f}"
    )
    return [
        Figure("the verdict at a call, for somebody in 20 groups", found["decided"] + found["authorized"], "ms", 10),
        Figure("… queries, a person asked or not", found["most_queries"], "", 3, note=note),
    ]


def manager(product: Product) -> list[Figure]:
    found = product.inside("manager", product.ports.echo_url)
    note = f"{found['ours']:.0f}/s; through the door with its rows {found['door']:.0f}/s; bare {found['bare']:.0f}/s"
    held = f"{found['held']:.0f} held, {found['opening_ms']:.0f} ms to open one, idle {found['idle_cpu']:.1%} of a core"
    closed = f"all due at once; closed after {found['closing_s']:.1f} s"
    return [
        Figure(
            "50 calls at once on a warm connection, of bare", found["ours"] / found["bare"], "×", 0.7, None, True, note
        ),
        Figure("memory of a user's idle connection", found["kilobytes"], "kB", note=held),
        Figure("reaper pass over 500 connections", found["reaping_ms"], "ms", 50, note=closed),
    ]


INSIDE = {
    "manager": manager,
    "calls": calls,
    "offer": offer,
    "verdict": verdict,
    "schemas": schemas,
    "audit": audit,
    "queries": queries,
}


async def through_the_socket(product: Product, keys: Sequence[str], names: Sequence[str]) -> list[Figure]:
    bench = await Bench.of(product, keys)
    try:
        figures = [Figure("memory idle", bench.idle, "MB", goal=180, note="after the first chats, all packages loaded")]
        for name in names:
            with reported(name):
                figures += await THROUGH_THE_SOCKET[name](bench)
        return figures
    finally:
        await bench.aclose()


def of_one_server(directory: Path, server: str, names: Sequence[str]) -> list[Figure]:
    """Every figure of one server, from an empty database on."""
    with surroundings(directory) as ports:
        product = Product(directory / server, ports, server)
        with reported("prepare"):
            keys = product.prepare(turns.STREAMS)
        figures: list[Figure] = []
        socket_names = [name for name in THROUGH_THE_SOCKET if name in names]
        starts = []
        if "start" in names:
            for _ in range(3):
                with reported("start"), product.running() as seconds:
                    starts.append(seconds)
            figures.append(Figure("cold start to /healthz", median(starts), "s", goal=3, note="median of three"))
        if socket_names:
            with product.running():
                figures += uvloop.run(through_the_socket(product, keys, socket_names))
        for line in product.errors():
            print(f"  the server's log: {line}")
        for name, measure in INSIDE.items():
            if name in names:
                with reported(name):
                    figures += measure(product)
        return figures


FAILED: list[str] = []


@contextlib.contextmanager
def reported(name: str) -> Iterator[None]:
    """Say how long a measure took; one that fails is reported and the others go on."""
    began = time.monotonic()
    try:
        yield
    except (AnswerError, ConnectionError, TimeoutError, RuntimeError) as error:
        FAILED.append(name)
        print(f"  {name} failed: {type(error).__name__}: {error}", flush=True)
    else:
        print(f"  {name}: {time.monotonic() - began:.1f} s", flush=True)


def main() -> None:
    everything = ["start", *THROUGH_THE_SOCKET, *INSIDE]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--server", default="daphne,uvicorn", help="which ASGI servers, a comma list")
    parser.add_argument("--only", default=",".join(everything), help=f"a comma list of {', '.join(everything)}")
    parser.add_argument("--output", type=Path, default=ROOT / "var" / "bench.json")
    options = parser.parse_args()
    pin_self()
    names = options.only.split(",")
    if unknown := set(names) - set(everything):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    result: dict[str, object] = {"machine": machine(), "versions": versions(), "servers": {}}
    tables = []
    for server in options.server.split(","):
        print(f"{server} …", flush=True)
        with tempfile.TemporaryDirectory(prefix="chatui-bench-") as directory:
            figures = of_one_server(Path(directory), server, names)
        result["servers"][server] = [figure.record() for figure in figures]
        tables.append(table(server, figures))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2) + "\n")
    print("\n\n".join(["", *tables]))
    print(f"\nWritten to {options.output}")
    if FAILED:
        raise SystemExit(f"These measures failed: {', '.join(FAILED)}")


if __name__ == "__main__":
    main()
