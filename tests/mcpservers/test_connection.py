"""One connection and what servers do to it: every fault costs one request, never its siblings or the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
import pytest

from chatui.netguard import origin
from mcpservers.connection import Connection
from mcpservers.connections import ConnectionManager
from mcpservers.errors import ConnectionLostError, RequestFailedError, RequestTimeoutError, ServerUnavailableError
from mcpservers.sse import SSETransport
from tests.fakes.mcp_server import Exchange, FakeMCPServer, Handler, after, big, body, die, hang, html, status
from tests.fakes.mcp_targets import managed, target

CALL = {"name": "echo", "arguments": {"text": "hi"}}
Ahead = Callable[[float], None]
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


async def text_of(connection: Connection, **options: Any) -> str:
    options.setdefault("timeout", 60)
    result = await connection.request("tools/call", CALL, **options)
    return str(result["content"][0]["text"])


def event(text: str) -> Handler:
    """An event stream with this one event; `{id}` stands for the request's id."""

    async def answer(exchange: Exchange) -> None:
        await exchange.open_stream()
        await exchange.send_event(text.replace("{id}", str(exchange.message["id"])))

    return answer


async def cut_stream(exchange: Exchange) -> None:
    await exchange.open_stream()


async def cut_body(exchange: Exchange) -> None:
    exchange.writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
    await exchange.writer.drain()
    exchange.abort()


# --- Faults of one answer -----------------------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (html, "text/html"),
        (status(500), "HTTP 500"),
        (status(401), "sign-in"),
        (status(429, retry_after="30"), "in 30 s"),
        (status(202), "202"),
        (body("null"), "JSON"),
        (body("{'single': 'quotes'}"), "JSON"),
        (body('{"jsonrpc":"2.0","id":{id},"error":"oops"}'), "JSON"),
        (body('{"jsonrpc":"2.0","id":{id},"result":"text"}'), "JSON"),
        (body('{"jsonrpc":"2.0","id":{id},"error":{"code":-32602,"message":"Unknown tool"}}'), "Unknown tool"),
        (event('{"jsonrpc":"2.0","id":{id},"error":"oops"}'), "not valid JSON-RPC"),
        (event("not json"), "not valid JSON-RPC"),
    ],
)
async def test_a_bad_answer_is_an_error_of_that_request_alone(era: str, fault: Handler, words: str) -> None:
    async with FakeMCPServer(era=era) as server, managed() as manager, manager.borrow(target(server.url)) as connection:
        server.on("tools/call", fault)
        with pytest.raises(RequestFailedError) as caught:
            await text_of(connection)
        assert words in str(caught.value)
        assert "pydantic" not in str(caught.value)
        server.on("tools/call", None)
        assert await text_of(connection) == "hi"


@ERAS
async def test_an_answer_with_another_id_is_waited_for_no_longer_than_the_timeout(era: str, ahead: Ahead) -> None:
    async with FakeMCPServer(era=era) as server, managed() as manager, manager.borrow(target(server.url)) as connection:
        server.on("tools/call", body('{"jsonrpc":"2.0","id":9999,"result":{}}'))
        call = asyncio.create_task(text_of(connection))
        await server.heard("tools/call")
        ahead(60)
        with pytest.raises(RequestTimeoutError, match=r"no answer within 60 s"):
            await call
        server.on("tools/call", None)
        assert await text_of(connection) == "hi"


@ERAS
@pytest.mark.parametrize("number", ["9999", '"another"'])
async def test_an_event_with_another_id_is_never_taken_for_the_answer(era: str, number: str) -> None:
    async with FakeMCPServer(era=era) as server, managed() as manager, manager.borrow(target(server.url)) as connection:
        odd = '{"jsonrpc":"2.0","id":NUMBER,"result":{"content":[{"text":"odd"}]}}'.replace("NUMBER", number)
        server.on("tools/call", event(odd))
        with pytest.raises(ConnectionLostError, match="before the result"):
            await text_of(connection)
        server.on("tools/call", None)
        assert await text_of(connection) == "hi"


async def test_an_event_whose_id_is_the_same_number_as_text_is_the_answer() -> None:
    async with FakeMCPServer() as server, managed() as manager, manager.borrow(target(server.url)) as connection:
        server.on("tools/call", event('{"jsonrpc":"2.0","id":"{id}","result":{"content":[{"text":"well meant"}]}}'))
        assert await text_of(connection) == "well meant"


async def test_half_a_character_on_the_older_event_stream_costs_that_character() -> None:
    async def half(exchange: Exchange) -> None:
        await exchange.result({"content": [{"text": "hi \ud83d there"}]})

    async with FakeMCPServer() as server, managed() as manager:
        server.on("sse tools/call", half)
        async with manager.borrow(target(server.sse_url, transport="sse")) as connection:
            assert await text_of(connection) == "hi \ufffd there"


@ERAS
@pytest.mark.parametrize("how", [body, event])
async def test_half_a_character_in_an_answer_costs_that_character(era: str, how: Any) -> None:
    async with FakeMCPServer(era=era) as server, managed() as manager, manager.borrow(target(server.url)) as connection:
        cut = r'{"jsonrpc":"2.0","id":{id},"result":{"content":[{"text":"hi \ud83d there \ud83c\udf89"}]}}'
        server.on("tools/call", how(cut))
        assert await text_of(connection) == "hi \ufffd there 🎉"


@ERAS
@pytest.mark.parametrize("fault", [die, cut_stream, cut_body])
async def test_an_answer_that_breaks_off_may_have_taken_effect_and_harms_no_sibling(era: str, fault: Handler) -> None:
    gate = asyncio.Event()
    async with FakeMCPServer(era=era) as server, managed() as manager:
        where = target(server.url)
        async with manager.borrow(where) as connection:
            server.on("tools/call", after(gate, server.usual))
            sibling = asyncio.create_task(text_of(connection))
            await server.heard("tools/call")
            server.on("tools/call", fault)
            with pytest.raises((ConnectionLostError, RequestFailedError)) as caught:
                await text_of(connection)
            if isinstance(caught.value, ConnectionLostError):
                assert caught.value.sent
            gate.set()
            assert await sibling == "hi"
        server.on("tools/call", None)
        async with manager.borrow(where) as connection:
            assert await text_of(connection) == "hi"


@ERAS
async def test_a_server_that_is_gone_was_not_reached(era: str) -> None:
    async with FakeMCPServer(era=era) as server, managed() as manager, manager.borrow(target(server.url)) as connection:
        await server.stop()
        with pytest.raises(ConnectionLostError) as caught:
            await text_of(connection)
        assert not caught.value.sent
        assert not connection.alive


@ERAS
@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_above_the_limit_is_an_error_and_one_below_is_not(
    settings: Any, era: str, streamed: bool
) -> None:
    settings.MCP = settings.MCP | {"MAX_MESSAGE": 2 * 2**20}

    def answer(size: int) -> Handler:
        async def send(exchange: Exchange) -> None:
            if streamed:
                await exchange.open_stream()
            await big(size)(exchange)

        return send

    async with FakeMCPServer(era=era) as server, managed() as manager, manager.borrow(target(server.url)) as connection:
        server.on("tools/call", answer(3 * 2**20))
        with pytest.raises(RequestFailedError, match="2097152 byte"):
            await text_of(connection)
        server.on("tools/call", answer(2 * 2**20 - 1000))
        assert len(await text_of(connection)) == 2 * 2**20 - 1000


async def test_twenty_megabytes_are_refused_by_default() -> None:
    async with FakeMCPServer() as server, managed() as manager, manager.borrow(target(server.url)) as connection:
        server.on("tools/call", big(20 * 2**20))
        with pytest.raises(RequestFailedError, match="16777216"):
            await text_of(connection, timeout=30)


async def test_the_servers_own_error_comes_with_its_code_and_data_and_without_our_secrets() -> None:
    async def fail(exchange: Exchange) -> None:
        await exchange.error(-32042, "sign in with hunter22", {"url": "https://x"})

    async with FakeMCPServer() as server, managed() as manager:
        where = target(server.url, headers={"X-Token": "hunter22"})
        async with manager.borrow(where) as connection:
            server.on("tools/call", fail)
            with pytest.raises(RequestFailedError) as caught:
                await text_of(connection)
            assert (caught.value.rpc_code, caught.value.data) == (-32042, {"url": "https://x"})
            assert str(caught.value) == "sign in with •••"


# --- Deadlines, progress, cancelling ------------------------------------------------------------------------------


@ERAS
async def test_a_call_that_times_out_is_cancelled_at_the_server(era: str, ahead: Ahead) -> None:
    async with FakeMCPServer(era=era) as server, managed() as manager, manager.borrow(target(server.url)) as connection:
        server.on("tools/call", hang)
        call = asyncio.create_task(text_of(connection))
        exchange = await server.heard("tools/call")
        ahead(60)
        with pytest.raises(RequestTimeoutError, match=r"no answer within 60 s"):
            await call
        await server.until(lambda: exchange.message["id"] in server.cancelled)


@ERAS
async def test_a_call_that_is_stopped_is_cancelled_at_the_server_at_once(era: str) -> None:
    async with FakeMCPServer(era=era) as server, managed() as manager, manager.borrow(target(server.url)) as connection:
        server.on("tools/call", hang)
        call = asyncio.create_task(text_of(connection, timeout=600))
        exchange = await server.heard("tools/call")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.until(lambda: exchange.message["id"] in server.cancelled)
        server.on("tools/call", None)
        assert await text_of(connection) == "hi"


async def test_a_late_answer_to_a_stopped_call_is_ignored() -> None:
    gate = asyncio.Event()
    async with FakeMCPServer() as server, managed() as manager, manager.borrow(target(server.url)) as connection:
        server.on("tools/call", after(gate, server.usual))
        call = asyncio.create_task(text_of(connection))
        await server.heard("tools/call")
        call.cancel()
        await server.until(lambda: bool(server.cancelled))
        gate.set()
        server.on("tools/call", None)
        assert await text_of(connection) == "hi"


async def test_a_cancellation_that_the_server_does_not_take_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpservers.sessionhttp.NOTIFY_SECONDS", 600)
    async with FakeMCPServer() as server, managed() as manager, manager.borrow(target(server.url)) as connection:
        server.on("tools/call", hang)
        server.on("notifications/cancelled", hang)
        call = asyncio.create_task(text_of(connection))
        await server.heard("tools/call")
        call.cancel()
        await server.heard("notifications/cancelled")
        server.on("tools/call", None)
        assert await text_of(connection) == "hi"


@ERAS
async def test_progress_is_told_and_counts_as_a_sign_of_life(era: str, ahead: Ahead) -> None:
    told: list[tuple[float, float | None, str | None]] = []
    steps = [asyncio.Event() for _ in range(4)]

    async def slow(exchange: Exchange) -> None:
        for at, step in enumerate(steps):
            await step.wait()
            await exchange.progress(at + 1, 4, f"step {at + 1}")
        await exchange.server.reply(exchange)

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))
        ahead(40)
        steps[min(len(told), 3)].set()

    async with FakeMCPServer(era=era) as server, managed() as manager, manager.borrow(target(server.url)) as connection:
        server.on("tools/call", slow)
        steps[0].set()
        assert await text_of(connection, timeout=60, limit=600, on_progress=progressed) == "hi"
        assert told == [(1, 4, "step 1"), (2, 4, "step 2"), (3, 4, "step 3"), (4, 4, "step 4")]


@ERAS
async def test_progress_does_not_extend_a_call_for_ever(era: str, ahead: Ahead) -> None:
    told = asyncio.Semaphore(1)

    async def forever(exchange: Exchange) -> None:
        for _ in range(10):
            await told.acquire()
            await exchange.progress(1)
        await exchange.server.reply(exchange)

    async def progressed(*_: object) -> None:
        ahead(40)
        told.release()

    async with FakeMCPServer(era=era) as server, managed() as manager, manager.borrow(target(server.url)) as connection:
        server.on("tools/call", forever)
        with pytest.raises(RequestTimeoutError, match=r"no result within 100 s"):
            await text_of(connection, timeout=60, limit=100, on_progress=progressed)
        await server.until(lambda: bool(server.cancelled))


async def test_a_progress_callback_that_fails_costs_nothing() -> None:
    async def once_progressed(exchange: Exchange) -> None:
        await exchange.progress(1)
        await exchange.server.reply(exchange)

    async def progressed(*_: object) -> None:
        raise ValueError("ours")

    async with FakeMCPServer() as server, managed() as manager, manager.borrow(target(server.url)) as connection:
        server.on("tools/call", once_progressed)
        assert await text_of(connection, on_progress=progressed) == "hi"


async def test_many_calls_at_once_do_not_wait_for_each_other() -> None:
    gate = asyncio.Event()
    async with FakeMCPServer() as server, managed() as manager, manager.borrow(target(server.url)) as connection:
        server.on("tools/call", after(gate, server.usual))
        calls = [asyncio.create_task(text_of(connection)) for _ in range(150)]
        await server.heard("tools/call", times=150)
        gate.set()
        assert await asyncio.gather(*calls) == ["hi"] * 150


# --- What servers send unasked ------------------------------------------------------------------------------------


async def test_answers_to_notifications_are_ignored() -> None:
    async with FakeMCPServer() as server, managed() as manager:
        server.on("notifications/initialized", body('{"jsonrpc":"2.0","result":{}}'))
        server.on("notifications/cancelled", body('{"jsonrpc":"2.0","error":{"code":-32601,"message":"x"}}'))
        async with manager.borrow(target(server.url)) as connection:
            server.on("tools/call", hang)
            call = asyncio.create_task(text_of(connection))
            await server.heard("tools/call")
            call.cancel()
            await server.heard("notifications/cancelled")
            server.on("tools/call", None)
            assert await text_of(connection) == "hi"


async def test_unknown_notifications_and_requests_of_the_server_harm_nobody() -> None:
    gate = asyncio.Event()
    async with FakeMCPServer() as server, managed() as manager, manager.borrow(target(server.url)) as connection:
        server.on("tools/call", after(gate, server.usual))
        call = asyncio.create_task(text_of(connection))
        await server.heard("tools/call")
        await server.until(lambda: bool(server.open_streams))
        await server.notify("notifications/made_up")
        await server.notify("made/up", id=1)
        await server.until(lambda: any("error" in each.message for each in server.exchanges))
        answer = next(each.message for each in server.exchanges if "error" in each.message)
        assert (answer["id"], answer["error"]["code"]) == (1, -32601)
        gate.set()
        assert await call == "hi"


async def test_rubbish_on_the_stream_harms_nobody() -> None:
    async with FakeMCPServer() as server, managed() as manager, manager.borrow(target(server.url)) as connection:
        await server.until(lambda: bool(server.open_streams))
        (stream,) = server.open_streams.values()
        await stream.send_event("not json")
        await stream.send_event('{"jsonrpc":"2.0","id":77,"result":{}}')
        await stream.send_event("[]", event="unknown")
        assert await text_of(connection) == "hi"


async def test_sampling_roots_and_elicitation_are_not_advertised() -> None:
    async with FakeMCPServer() as server, managed() as manager, manager.borrow(target(server.url)):
        assert (await server.heard("initialize")).params["capabilities"] == {}


def over_sse(manager: ConnectionManager, server: FakeMCPServer) -> AbstractAsyncContextManager[Connection]:
    return manager.borrow(target(server.sse_url, transport="sse"))


# --- SSE ----------------------------------------------------------------------------------------------------------


async def test_over_sse_a_large_answer_arrives_and_one_above_the_limit_ends_the_connection(settings: Any) -> None:
    settings.MCP = settings.MCP | {"MAX_MESSAGE": 3 * 2**20}
    async with FakeMCPServer() as server, managed() as manager:
        where = target(server.sse_url, transport="sse")
        async with manager.borrow(where) as connection:
            server.on("sse tools/call", big(2 * 2**20))
            assert len(await text_of(connection)) == 2 * 2**20
            server.on("sse tools/call", big(4 * 2**20))
            with pytest.raises(ConnectionLostError):
                await text_of(connection)
        server.on("sse tools/call", None)
        async with manager.borrow(where) as connection:
            assert await text_of(connection) == "hi"


async def test_over_sse_a_refused_post_fails_that_request_alone() -> None:
    async with FakeMCPServer() as server, managed() as manager, over_sse(manager, server) as connection:
        server.on("tools/call", status(500))
        with pytest.raises(RequestFailedError, match="HTTP 500"):
            await text_of(connection)
        server.on("tools/call", die)
        with pytest.raises(ConnectionLostError):
            await text_of(connection)


async def test_over_sse_progress_and_cancellation_work() -> None:
    async def slow(exchange: Exchange) -> None:
        await exchange.progress(1, 2, "half")
        await exchange.server.closed.wait()

    told = asyncio.Event()

    async def progressed(*_: object) -> None:
        told.set()

    async with FakeMCPServer() as server, managed() as manager, over_sse(manager, server) as connection:
        server.on("sse tools/call", slow)
        call = asyncio.create_task(text_of(connection, on_progress=progressed))
        await told.wait()
        call.cancel()
        await server.until(lambda: bool(server.cancelled))


async def test_over_sse_the_end_of_the_stream_is_the_end_of_the_connection() -> None:
    async with FakeMCPServer() as server, managed() as manager, over_sse(manager, server) as connection:
        server.on("sse tools/call", hang)
        call = asyncio.create_task(text_of(connection))
        await server.heard("tools/call")
        for stream in server.open_streams.values():
            stream.abort()
        with pytest.raises(ConnectionLostError):
            await call
        assert not connection.alive


async def test_an_sse_endpoint_of_another_origin_is_refused() -> None:
    async def foreign(exchange: Exchange) -> None:
        await exchange.open_stream()
        await exchange.send_event("https://evil.example/messages", event="endpoint")
        await exchange.server.closed.wait()

    async with FakeMCPServer() as server, managed() as manager:
        server.on("GET", foreign)
        with pytest.raises(Exception, match="another origin"):
            async with manager.borrow(target(server.sse_url, transport="sse")):
                pass


@pytest.mark.parametrize(
    "named", ["/m", "m?s=1", "https://EXAMPLE.org/m", "HTTPS://example.org:443/m", "//Example.ORG/m"]
)
def test_an_sse_endpoint_of_the_own_origin_is_taken_however_it_is_written(named: str) -> None:
    client: Any = None  # nothing is sent
    transport = SSETransport("https://example.org/sse", client, max_event=1, patience=None)
    assert origin(httpx2.URL(transport._endpoint(named))) == ("https", "example.org", 443)


@pytest.mark.parametrize(
    "named",
    [
        "http://example.org/m",
        "https://example.org:8443/m",
        "https://example.org.evil.example/m",
        "https://example.org@evil.example/m",
        "//evil.example/m",
        "https://[/m",
        "https://exa mple.org/m",
    ],
)
def test_an_sse_endpoint_of_another_origin_or_of_none_is_never_taken(named: str) -> None:
    client: Any = None  # as above
    transport = SSETransport("https://example.org/sse", client, max_event=1, patience=None)
    with pytest.raises(ServerUnavailableError, match="endpoint"):
        transport._endpoint(named)
