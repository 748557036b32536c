"""A Chat Completions endpoint that costs next to nothing and does what the name of the model says.

    python -m benchmarks.endpoint PORT

A model's name is a comma list: `tokens=500,rate=50,stamped` streams 500 tokens, 50 a second, each of them
`<number>:<CLOCK_MONOTONIC in ns>` and a space, so that a reader can tell how late it came. `Script` has the words.
"""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import sys
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

import httptools
import orjson

WORDS = ["a ", "stream ", "of ", "short ", "words ", "runs ", "past ", "the ", "reader ", "who ", "waits "]
AT_ONCE = 16  # tokens of one write, where no rate is set
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Script:
    """What a model does. With `tool`, its first `rounds` answers are calls of the offered tool of that name."""

    tokens: int = 20
    rate: float = 0.0  # tokens a second; 0: as fast as the socket takes them
    delay: float = 0.0  # seconds before the first token
    stamped: bool = False
    tool: str = ""
    rounds: int = 1


@cache
def script_of(model: str) -> Script:
    """The script that a model's name spells. Raises `ValueError` or `TypeError` for words that it does not know."""
    kinds = {"tokens": int, "rate": float, "delay": float, "stamped": bool, "tool": str, "rounds": int}
    fields: dict[str, Any] = {}
    for word in model.split(","):
        name, _, value = word.partition("=")
        fields[name] = kinds[name](value or True)
    return Script(**fields)


# --- Events -------------------------------------------------------------------------------------------------------


def http_chunk(event: bytes) -> bytes:
    """One server-sent event as one HTTP chunk."""
    body = b"data: " + event + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(body), body)


@cache
def frame_of(model: str) -> tuple[bytes, bytes]:
    """What stands before and after the members of `delta` in a chunk of this model."""
    chunk = {
        "id": "chatcmpl-0123456789abcdef0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1_750_000_000,
        "model": model,
        "service_tier": "default",
        "system_fingerprint": "fp_benchmark",
        "choices": [{"index": 0, "delta": {"@": 0}, "logprobs": None, "finish_reason": None}],
    }
    before, after = orjson.dumps(chunk).split(b'"@":0')
    return before, after


def delta(model: str, members: bytes) -> bytes:
    before, after = frame_of(model)
    return http_chunk(before + members + after)


@cache
def word_events(model: str) -> list[bytes]:
    return [delta(model, b'"content":' + orjson.dumps(word)) for word in WORDS]


def token_events(model: str, script: Script, first: int, last: int) -> list[bytes]:
    """The tokens `first` … `last` - 1, stamped now if the script stamps."""
    if not script.stamped:
        words = word_events(model)
        return [words[number % len(words)] for number in range(first, last)]
    now = time.monotonic_ns()
    return [delta(model, b'"content":"%d:%d "' % (number, now)) for number in range(first, last)]


def end_events(model: str, reason: bytes, tokens: int, usage: bool) -> bytes:
    before, after = frame_of(model)
    ended = http_chunk(before + after.replace(b'"finish_reason":null', b'"finish_reason":"%s"' % reason))
    if usage:
        counts = {"prompt_tokens": 10, "completion_tokens": tokens, "total_tokens": tokens + 10}
        choices = before.index(b'"choices"')
        ended += http_chunk(before[:choices] + b'"choices":[],"usage":' + orjson.dumps(counts) + b"}")
    return ended + http_chunk(b"[DONE]") + b"0\r\n\r\n"


# --- Tool calls ---------------------------------------------------------------------------------------------------


def wanted_call(request: dict[str, Any], script: Script) -> bytes | None:
    """The members of the delta that calls the script's tool, while it has rounds left; None: answer with text."""
    since: list[dict[str, Any]] = []
    for message in reversed(request["messages"]):
        if message["role"] == "user":
            break
        since.append(message)
    done = sum(1 for message in since if message.get("tool_calls"))
    names = [tool["function"]["name"] for tool in request.get("tools") or ()]
    name = next((name for name in names if re.fullmatch(rf"(.*__)?{re.escape(script.tool)}", name)), None)
    if not script.tool or name is None or done >= script.rounds:
        return None
    function = {"name": name, "arguments": '{"text":"hello"}'}
    call = {"index": 0, "id": f"call_{done}", "type": "function", "function": function}
    return b'"content":null,"tool_calls":' + orjson.dumps([call])


# --- HTTP ---------------------------------------------------------------------------------------------------------


class Connection(asyncio.Protocol):
    """One client: its requests one after the other, each answered by a stream of events."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.parser = httptools.HttpRequestParser(self)
        self.body: list[bytes] = []
        self.url = b""
        self.transport: asyncio.Transport | None = None
        self.timer: asyncio.Handle | None = None
        self.paused = False
        self.model, self.script, self.usage = "", Script(), False
        self.sent, self.began = 0, 0.0
        self.streaming = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.transport = None
        if self.timer is not None:
            self.timer.cancel()

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self.streaming and self.timer is None:
            self.pump()

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_begin(self) -> None:
        self.body.clear()

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        if self.url.endswith(b"/chat/completions"):
            self.answer(orjson.loads(b"".join(self.body)))
        else:
            self.reply(b"200 OK", {"object": "list", "data": []})

    def reply(self, status: bytes, document: Any) -> None:
        assert self.transport is not None
        body = orjson.dumps(document)
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
        self.transport.write(head + body)

    # --- A stream ---

    def answer(self, request: dict[str, Any]) -> None:
        assert self.transport is not None
        self.model = request["model"]
        try:
            self.script = script_of(self.model)
        except (KeyError, ValueError):
            self.reply(b"404 Not Found", {"error": {"message": f"no such model: {self.model}"}})
            return
        self.usage = bool((request.get("stream_options") or {}).get("include_usage"))
        self.sent, self.streaming = 0, True
        call = wanted_call(request, self.script)
        head = SSE_HEAD + delta(self.model, b'"role":"assistant","content":""')
        if call is not None:
            self.transport.write(head + delta(self.model, call))
            self.end(b"tool_calls")
        elif self.script.delay:
            self.timer = self.loop.call_later(self.script.delay, self.begin, head)
        else:
            self.begin(head)

    def begin(self, head: bytes) -> None:
        self.began = self.loop.time()
        self.pump(head)

    def pump(self, head: bytes = b"") -> None:
        """Write the tokens that are due, then wait for the next."""
        self.timer = None
        script, transport = self.script, self.transport
        if transport is None:
            return
        due = self.sent + AT_ONCE
        if script.rate:  # those that are late leave together
            due = int((self.loop.time() - self.began) * script.rate) + 1
        last = min(max(due, self.sent + 1), script.tokens)
        transport.write(head + b"".join(token_events(self.model, script, self.sent, last)))
        self.sent = last
        if last == script.tokens:
            self.end(b"stop")
        elif script.rate:
            self.timer = self.loop.call_at(self.began + last / script.rate, self.pump)
        elif not self.paused:
            self.timer = self.loop.call_soon(self.pump)

    def end(self, reason: bytes) -> None:
        assert self.transport is not None
        self.streaming = False
        self.transport.write(end_events(self.model, reason, self.sent, self.usage))


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    server = await loop.create_server(Connection, "127.0.0.1", port, backlog=4096)
    async with server:
        await ended.wait()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(int(sys.argv[1])))
