"""The notes server: its tools, the door in front of them, its authorization server, all on one loopback port.

Its tools can be listed by anybody. A call needs a token (RFC 6750), and one that writes a wider one.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware, get_access_token
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend
from mcp.server.auth.middleware.client_auth import AuthenticationError, ClientAuthenticator
from mcp.server.auth.provider import ProviderTokenVerifier
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations
from pydantic import AnyHttpUrl, BaseModel, Field
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from demo.notes import consent
from demo.notes.accounts import FIRST, IDENTITY, PEOPLE, READ, SCOPES, WRITE, Accounts

NEEDED = {"whoami": READ, "list_my_notes": READ, "add_my_note": WRITE}
WELL_KNOWN = "/.well-known/oauth-protected-resource/mcp"
_LONGEST_REQUEST = 2**20


# --- Tools ------------------------------------------------------------------------------------------------------------


class Account(BaseModel):
    """Whose account is used."""

    name: str
    email: str


class MyNotes(BaseModel):
    """The notes of one person, the oldest first."""

    owner: str
    notes: list[str]


def tools(accounts: Accounts) -> MCPServer:
    """The MCP server, without its door."""
    server = MCPServer("notes", title="Your notes", version="1.0", log_level="WARNING")
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    writes = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)

    @server.tool(title="Who am I", annotations=reads)
    def whoami() -> Account:
        """Tell whose account at the notes server is used."""
        person = PEOPLE[_subject()]
        return Account(name=person.name, email=person.email)

    @server.tool(title="List my notes", annotations=reads)
    def list_my_notes() -> MyNotes:
        """List the user's own notes, which nobody else can see."""
        return MyNotes(owner=PEOPLE[_subject()].name, notes=accounts.notes(_subject()))

    @server.tool(title="Add to my notes", annotations=writes)
    def add_my_note(text: Annotated[str, Field(min_length=1, max_length=2000)]) -> MyNotes:
        """Add a note to the user's own notes."""
        accounts.add_note(_subject(), text)
        return MyNotes(owner=PEOPLE[_subject()].name, notes=accounts.notes(_subject()))

    return server


def _subject() -> str:
    token = get_access_token()
    assert token is not None  # the door let no call in without one
    assert token.subject is not None
    return token.subject


# --- The door ---------------------------------------------------------------------------------------------------------


class Door:
    """Lets everybody list tools, and only those with a token that allows it call them."""

    def __init__(self, app: ASGIApp, resource_metadata: str) -> None:
        self._app, self._resource_metadata = app, resource_metadata

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        needed = NEEDED.get(_called(body), READ) if _called(body) else ""
        user = scope.get("user")
        answer: Response | None = None
        if needed and not isinstance(user, AuthenticatedUser):
            answer = self._refused(401, "invalid_token", "Sign in to use your notes.", *FIRST)
        elif needed and needed not in scope["auth"].scopes:
            answer = self._refused(403, "insufficient_scope", f"{SCOPES[needed]}: not allowed yet.", needed)
        if answer is not None:
            await answer(scope, receive, send)
            return
        await self._app(scope, _again(body, receive), send)

    def _refused(self, status: int, error: str, description: str, *wanted: str) -> Response:
        said = f'Bearer error="{error}", scope="{" ".join(wanted)}", resource_metadata="{self._resource_metadata}"'
        body = {"error": error, "error_description": description}
        return JSONResponse(body, status, headers={"WWW-Authenticate": said})


async def _body(receive: Receive) -> bytes:
    """The request's body, as far as anybody needs it."""
    body, more = b"", True
    while more and len(body) <= _LONGEST_REQUEST:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def _again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that begins with a body that was already read."""
    read = False

    async def replay() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _called(body: bytes) -> str:
    """The tool that a request calls; "" if it calls none."""
    try:
        message: Any = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(message, dict) or message.get("method") != "tools/call":
        return ""
    params = message.get("params")
    return str(params.get("name", "?")) if isinstance(params, dict) else "?"


# --- The whole --------------------------------------------------------------------------------------------------------


def application(origin: str, accounts: Accounts) -> Starlette:
    """Tools at `/mcp`, the authorization server beside them; `origin` is where it is reached."""
    inner = tools(accounts).streamable_http_app(stateless_http=True, json_response=True)
    registration = ClientRegistrationOptions(enabled=True, valid_scopes=[*SCOPES], default_scopes=[*SCOPES])
    backend = BearerAuthBackend(ProviderTokenVerifier(accounts), resource_server_url=AnyHttpUrl(f"{origin}/mcp"))

    async def ask(request: Request) -> Response:
        return await consent.answer(accounts, request)

    async def revoke(request: Request) -> Response:
        return await _revoke(accounts, request)

    @asynccontextmanager
    async def with_sessions(app: Starlette) -> AsyncIterator[None]:
        async with inner.router.lifespan_context(inner):
            yield

    return Starlette(
        routes=[
            # Before the SDK's own, which know neither of public clients nor of an issuer without a slash at its end.
            Route("/.well-known/oauth-authorization-server", _saying(_metadata(origin))),
            Route("/revoke", revoke, methods=["POST"]),
            *create_auth_routes(accounts, AnyHttpUrl(origin), None, registration),
            Route(WELL_KNOWN, _saying(_resource(origin))),
            Route("/consent", ask, methods=["GET", "POST"]),
            Route("/userinfo", _userinfo),
            Mount("/", Door(inner, origin + WELL_KNOWN)),
        ],
        middleware=[Middleware(AuthenticationMiddleware, backend=backend), Middleware(AuthContextMiddleware)],
        lifespan=with_sessions,
    )


def _metadata(origin: str) -> dict[str, Any]:
    """RFC 8414."""
    return {
        "issuer": origin,
        "authorization_endpoint": f"{origin}/authorize",
        "token_endpoint": f"{origin}/token",
        "registration_endpoint": f"{origin}/register",
        "revocation_endpoint": f"{origin}/revoke",
        "userinfo_endpoint": f"{origin}/userinfo",
        "scopes_supported": [*SCOPES],
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_post", "client_secret_basic"],
        "code_challenge_methods_supported": ["S256"],
    }


def _resource(origin: str) -> dict[str, Any]:
    """RFC 9728."""
    return {
        "resource": f"{origin}/mcp",
        "authorization_servers": [origin],
        "scopes_supported": [*FIRST],
        "bearer_methods_supported": ["header"],
        "resource_name": "Your notes",
    }


def _saying(document: dict[str, Any]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return JSONResponse(document)

    return answer


async def _revoke(accounts: Accounts, request: Request) -> Response:
    """RFC 7009: an unknown token is no error."""
    try:
        client = await ClientAuthenticator(accounts).authenticate_request(request)
    except AuthenticationError as error:
        return JSONResponse({"error": "invalid_client", "error_description": error.message}, 401)
    form = await request.form()
    accounts.revoke(str(form.get("token", "")), client.client_id or "")
    return Response()


async def _userinfo(request: Request) -> Response:
    if not isinstance(request.user, AuthenticatedUser) or IDENTITY not in request.user.scopes:
        return JSONResponse({"error": "invalid_token"}, 401, headers={"WWW-Authenticate": "Bearer"})
    person = PEOPLE[_subject()]
    return JSONResponse({"sub": person.subject, "name": person.name, "email": person.email})


class NotesServer:
    """Serves on `sock` (bound, loopback) from a thread of its own, until `stop`."""

    def __init__(self, sock: socket.socket, file: Path | None = None) -> None:
        host, port = sock.getsockname()[:2]
        self._sock = sock
        self.origin = f"http://{host}:{port}"
        self.accounts = Accounts(f"{self.origin}/consent", file)
        self._server = uvicorn.Server(
            uvicorn.Config(
                application(self.origin, self.accounts),
                log_config=None,
                access_log=False,
                log_level="critical",
                ws="none",
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._run, name="demo-notes", daemon=True)

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def start(self) -> None:
        """Returns at once: the socket listens already, and who comes early waits a moment."""
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._sock]))
