"""A limit on request bodies before anything keeps them: Django would write any length to disk first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from chatui.error_pages import JSON_PATHS, error_body

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class BodyLimit:
    """An ASGI application that answers 413 instead of passing on a body of more than `limit` bytes."""

    def __init__(self, application: Any, limit: int) -> None:
        self.application, self.limit = application, limit

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self.limit:
            await self._refuse(scope, send)
            return
        taken, answered = 0, False

        async def limited() -> dict[str, Any]:
            nonlocal taken
            message = await receive()
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
            # To the application the client has gone away, so it lets go of what it kept so far.
            return message if taken <= self.limit else {"type": "http.disconnect"}

        async def answering(message: dict[str, Any]) -> None:
            nonlocal answered
            answered = True
            await send(message)

        await self.application(scope, limited, answering)
        if taken > self.limit and not answered:
            await self._refuse(scope, send)

    async def _refuse(self, scope: dict[str, Any], send: Send) -> None:
        message = f"The request's body is above {self.limit / 2**20:.3g} MiB."
        body, content_type = message.encode(), b"text/plain; charset=utf-8"
        if scope["path"].startswith(JSON_PATHS):
            body = orjson.dumps(error_body("too_large", message, type="invalid_request_error"))
            content_type = b"application/json"
        headers = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
        # The rest of the body is not read: the connection ends with this answer.
        await send({"type": "http.response.start", "status": 413, "headers": [*headers, (b"connection", b"close")]})
        await send({"type": "http.response.body", "body": body})
