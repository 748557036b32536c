"""The scripted demo model as an OpenAI-compatible endpoint on a loopback port of this process, at a human pace."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from aiohttp import web

from demo.replies import Call, Reply, reply

NAME = "scripted-demo-model"
PACE = 0.02  # seconds between two words
_ids = itertools.count(1)


class DemoModel:
    """Serves on `sock` (bound, loopback) from a thread of its own, until `stop`."""

    def __init__(self, sock: socket.socket, *, pace: float = PACE) -> None:
        self._sock, self._pace = sock, pace
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="demo-model", daemon=True)
        self._ready = threading.Event()
        self._stopping = asyncio.Event()

    @property
    def base_url(self) -> str:
        host, port = self._sock.getsockname()[:2]
        return f"http://{host}:{port}/v1"

    def start(self) -> None:
        """Returns when requests are answered."""
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        app = web.Application()
        app.add_routes([web.get("/v1/models", _models), web.post("/v1/chat/completions", self._complete)])
        # A client that goes away cancels what still waits for it.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
        await runner.setup()
        await web.SockSite(runner, self._sock).start()
        self._ready.set()
        await self._stopping.wait()
        await runner.cleanup()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.json()
            answer = reply(body["messages"], _tool_names(body))
        except (ValueError, KeyError, TypeError, AttributeError):
            return _error(400, "This is not a Chat Completions request.")
        if answer.fault == "fail":
            return _error(500, "The demo model was asked to fail, and fails.")
        return await (self._stream if body.get("stream") else self._whole)(request, body, answer)

    async def _whole(self, request: web.Request, body: dict[str, Any], answer: Reply) -> web.StreamResponse:
        if answer.fault:
            return _error(500, "The demo model can stall and cut only what it streams.")
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
        if answer.calls:
            message["tool_calls"] = [_call(index, call) for index, call in enumerate(answer.calls)]
        choice = {"index": 0, "message": message, "finish_reason": _finish(answer)}
        return web.json_response(_envelope("chat.completion") | {"choices": [choice], "usage": _usage(body, answer)})

    async def _stream(self, request: web.Request, body: dict[str, Any], answer: Reply) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        envelope = _envelope("chat.completion.chunk")
        try:
            for delta in _deltas(answer):
                await _write(response, envelope | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
                await asyncio.sleep(self._pace)
            if answer.fault:
                return await _break(request, response, answer.fault)
            end = {"index": 0, "delta": {}, "finish_reason": _finish(answer)}
            await _write(response, envelope | {"choices": [end]})
            if (body.get("stream_options") or {}).get("include_usage"):
                await _write(response, envelope | {"choices": [], "usage": _usage(body, answer)})
            await response.write(b"data: [DONE]\n\n")
        except ConnectionError:
            pass  # the client went away
        return response


def _deltas(answer: Reply) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for piece in _words(answer.reasoning):
        yield {"reasoning_content": piece}
    for piece in _words(answer.text):
        yield {"content": piece}
    for index, call in enumerate(answer.calls):
        whole = _call(index, call)
        arguments = whole["function"]["arguments"]
        yield {"tool_calls": [whole | {"index": index, "function": {"name": call.name, "arguments": ""}}]}
        for piece in re.findall(r".{1,12}", arguments, re.DOTALL):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _words(text: str) -> list[str]:
    return re.findall(r"[\u3400-\u9fff]{1,2}|[^\s\u3400-\u9fff]+\s*|\s+", text)


def _call(index: int, call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    return {"id": f"call_{next(_ids)}_{index}", "type": "function", "function": function}


def _finish(answer: Reply) -> str:
    return "tool_calls" if answer.calls else "stop"


def _envelope(kind: str) -> dict[str, Any]:
    return {"id": f"demo-{next(_ids)}", "object": kind, "created": int(time.time()), "model": NAME}


def _usage(body: dict[str, Any], answer: Reply) -> dict[str, int]:
    """Words for tokens: the model has no better idea of them."""
    read = sum(len(str(message.get("content") or "").split()) for message in body["messages"])
    written = len(_words(answer.reasoning + answer.text)) + 10 * len(answer.calls)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _tool_names(body: dict[str, Any]) -> list[str]:
    if body.get("tool_choice") == "none":
        return []
    return [tool["function"]["name"] for tool in body.get("tools") or ()]


async def _write(response: web.StreamResponse, chunk: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n")


async def _break(request: web.Request, response: web.StreamResponse, fault: str) -> web.StreamResponse:
    if fault == "stall":
        await asyncio.Event().wait()  # until the client has had enough
    if request.transport is not None:
        request.transport.abort()
    return response


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": "demo", "code": None}}, status=status)


async def _models(request: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": NAME, "object": "model", "owned_by": "chatui"}]})
