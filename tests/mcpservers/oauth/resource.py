"""The metadata and the 401 of a protected MCP server, bent as a test wants them; no MCP is spoken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

from tests.fakes.authserver import FakeAuthServer

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
PRM = "/.well-known/oauth-protected-resource"


@dataclass
class Resource:
    """`places`: where its metadata stand. `changes` are merged into them (None removes a key)."""

    auth: FakeAuthServer
    path: str = "/mcp"
    places: tuple[str, ...] = (PRM + "/mcp",)
    challenge: str | None = "Bearer"  # None: no header
    changes: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)  # by path, instead of the usual
    asked: list[str] = field(default_factory=list)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return self.origin + self.path

    def metadata(self) -> dict[str, Any]:
        said = {"resource": self.url, "authorization_servers": [self.auth.issuer]} | self.changes
        return {name: value for name, value in said.items() if value is not None}

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port: int = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if request.path in self.answers:
            return await self.answers[request.path](request)
        if request.path == self.path:
            headers = {} if self.challenge is None else {"WWW-Authenticate": self.challenge}
            return web.Response(status=401, headers=headers)
        if request.path in self.places:
            return web.json_response(self.metadata())
        return web.Response(status=404)
