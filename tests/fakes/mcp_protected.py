"""An MCP server that wants a token of a `FakeAuthServer`: whose account was used for what is in its lists.

    async with FakeAuthServer() as auth, ProtectedMCPServer(auth=auth) as server:   # era="modern" for the stateless one
        ...                                          # tools: whoami, list_notes, add_note (wants the scope notes:write)
        assert server.calls_of("ada") == ["whoami"]

Faults of tests.fakes.mcp_server go to `on` as ever, for methods that passed the door, and for "prm", the metadata.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

import httpx2

from tests.fakes.authserver import FakeAuthServer
from tests.fakes.authstate import Token, bent
from tests.fakes.mcp_server import JSON, Exchange, FakeMCPServer, Handler
from tests.fakes.proofs import ProofRefused, Proofs

WHOAMI: JSON = {
    "name": "whoami",
    "title": "Who am I",
    "description": "Tell whose account is used.",
    "inputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
}
LIST_NOTES: JSON = {
    "name": "list_notes",
    "title": "List notes",
    "description": "Your own notes.",
    "inputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
}
ADD_NOTE: JSON = {
    "name": "add_note",
    "title": "Add a note",
    "description": "Write a note of your own.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
LISTING = ("initialize", "server/discover", "notifications/initialized", "tools/list", "ping")
WELL_KNOWN = "/.well-known/oauth-protected-resource"


@dataclass(kw_only=True)
class ProtectedMCPServer(FakeMCPServer):
    """Streamable HTTP at `/mcp`, HTTP+SSE at `/sse`, each behind the same door."""

    auth: FakeAuthServer
    tools: list[JSON] = field(default_factory=lambda: [WHOAMI, LIST_NOTES, ADD_NOTE])
    tool_scopes: dict[str, tuple[str, ...]] = field(default_factory=lambda: {"add_note": ("notes:write",)})
    open_listing: bool = False  # listing needs no login, calls do
    open_methods: tuple[str, ...] = ()  # nor do these
    challenge: str = "full"  # "full" | "bare": no resource_metadata | "none": no WWW-Authenticate at all
    challenge_scope: str = ""  # the scope that a 401 names
    only_missing: bool = True  # a 403 names the scopes that the tool wants; else those that the token has, too
    prm_at: str = "path"  # "path" | "root" | "custom" | "none"
    prm_changes: JSON = field(default_factory=dict)
    same_origin: bool = False  # the authorization server answers at this origin, too
    refuse_all: bool = False  # 401 for whatever token
    dpop: bool = False  # its challenge names DPoP, and it takes the tokens that are bound to a key
    known_as: str = ""  # the origin that it takes for its own, as behind a proxy that nobody told it of
    proofs: Proofs = field(default_factory=Proofs)  # whose `nonce` may be set
    seen: list[tuple[str, str, str]] = field(default_factory=list)  # (owner, method, tool) of every admitted POST
    owners: dict[str, str] = field(default_factory=dict)  # session -> owner
    trespasses: list[str] = field(default_factory=list)  # sessions used with another owner's token
    notes: dict[str, list[str]] = field(default_factory=lambda: {"ada": ["Call Charles"], "grace": ["Find the moth"]})

    # --- What tests ask -------------------------------------------------------------------------------------------

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def resource(self) -> str:
        """What a token must be meant for, as the metadata say it."""
        return str(self.prm().get("resource", self.url))

    def calls_of(self, owner: str) -> list[str]:
        """The tools that were called with tokens of `owner`: a username, or a client's id."""
        return [tool for who, method, tool in self.seen if who == owner and method == "tools/call"]

    def sessions_of(self, owner: str) -> int:
        return Counter(self.owners.values())[owner]

    @property
    def tokens(self) -> list[str]:
        """The bearer tokens that came, in the order of their first use."""
        values = [exchange.headers.get("authorization", "") for exchange in self.exchanges]
        return list(dict.fromkeys(value.partition(" ")[2] for value in values if value))

    def prm(self) -> JSON:
        """RFC 9728."""
        said: JSON = {
            "resource": self.url,
            "authorization_servers": [self.auth.issuer],
            "scopes_supported": ["notes:read", "notes:write"],
            "bearer_methods_supported": ["header"],
            "resource_name": "Notes",
        }
        return bent(said, self.prm_changes)

    @property
    def prm_url(self) -> str:
        paths = {"path": f"{WELL_KNOWN}/mcp", "root": WELL_KNOWN, "custom": "/about/this-resource"}
        return self.origin + paths[self.prm_at] if self.prm_at in paths else ""

    # --- The door ---------------------------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        super().__post_init__()
        self._proved: set[int] = set()  # ids of the headers of exchanges, which are all kept
        self._errors: dict[int, str] = {}

    async def __aenter__(self) -> ProtectedMCPServer:
        await super().__aenter__()
        if self.same_origin:
            self.auth.public_origin = self.origin
        return self

    def _handler(self, exchange: Exchange) -> Handler:
        path = exchange.path.partition("?")[0]
        if path not in ("/mcp", "/sse", "/messages"):
            return self._handlers.get("prm", self._prm) if self.origin + path == self.prm_url else self._elsewhere
        inner = super()._handler(exchange)

        async def guarded(exchange: Exchange) -> None:
            token = self._token(exchange)
            if token is None and not self._is_open(exchange):
                await self._unauthorized(exchange)
                return
            if token is not None and not await self._admitted(exchange, token):
                return
            await inner(exchange)
            if token is not None and exchange.method == "initialize" and self.sessions:
                self.owners[self.newest] = owner(token)

        return guarded

    @property
    def _scheme(self) -> str:
        return "DPoP" if self.dpop else "Bearer"

    def _is_open(self, exchange: Exchange) -> bool:
        methods = (LISTING if self.open_listing else ()) + self.open_methods
        return bool(methods) if exchange.verb != "POST" else exchange.method in methods

    def _token(self, exchange: Exchange) -> Token | None:
        """The valid token of a request. As strict servers are, it takes the words in no other spelling."""
        scheme, _, value = exchange.headers.get("authorization", "").partition(" ")
        token = self.auth.valid(value, self.resource)
        if token is None or self.refuse_all or scheme != ("DPoP" if token.jkt else "Bearer"):
            return None
        if token.jkt and id(exchange.headers) not in self._proved:
            try:
                url = (self.known_as or self.origin) + exchange.path.partition("?")[0]
                jkt = self.proofs.check(exchange.headers.get("dpop", ""), exchange.verb, url, value)
            except ProofRefused as refused:
                self._errors[id(exchange.headers)] = refused.error
                return None
            if jkt != token.jkt:
                return None
            self._proved.add(id(exchange.headers))
        return token

    async def _unauthorized(self, exchange: Exchange) -> None:
        said = []
        if "authorization" in exchange.headers:
            said.append(f'error="{self._errors.get(id(exchange.headers), "invalid_token")}"')
        if self.challenge == "full" and self.prm_url:
            said.append(f'resource_metadata="{self.prm_url}"')
        if self.challenge_scope:
            said.append(f'scope="{self.challenge_scope}"')
        header = f"{self._scheme} " + ", ".join(said or ['realm="notes"'])
        headers = {} if self.challenge == "none" else {"www_authenticate": header}
        headers |= {"dpop_nonce": self.proofs.nonce} if self.proofs.nonce else {}
        await exchange.respond(401, "sign in", **headers)

    async def _admitted(self, exchange: Exchange, token: Token) -> bool:
        """Whether the token may do this. Answers itself, with 403, if not."""
        who = owner(token)
        if self.owners.get(exchange.session, who) != who:
            self.trespasses.append(exchange.session)
            await exchange.respond(403, "this session is somebody else's")
            return False
        tool = str(exchange.params.get("name", "")) if exchange.method == "tools/call" else ""
        wanted = self.tool_scopes.get(tool, ())
        if not set(wanted) <= set(token.scopes):
            scope = " ".join(wanted if self.only_missing else dict.fromkeys((*token.scopes, *wanted)))
            header = f'{self._scheme} error="insufficient_scope", scope="{scope}", resource_metadata="{self.prm_url}"'
            await exchange.respond(403, "more is needed", www_authenticate=header)
            return False
        if exchange.verb == "POST":
            self.seen.append((who, exchange.method, tool))
        return True

    # --- What is behind it ------------------------------------------------------------------------------------------

    async def _call(self, exchange: Exchange) -> None:
        token = self._token(exchange)
        who = owner(token) if token is not None else ""
        notes = self.notes.setdefault(who, [])
        said: JSON
        match exchange.params.get("name"):
            case "whoami":
                said = {"owner": who, "scopes": list(token.scopes) if token else []}
            case "list_notes":
                said = {"notes": notes}
            case "add_note":
                notes.append(str((exchange.params.get("arguments") or {}).get("text", "")))
                said = {"added": len(notes)}
            case _:
                await super()._call(exchange)
                return
        await exchange.result({"content": [{"type": "text", "text": json.dumps(said)}], "structuredContent": said})

    async def _prm(self, exchange: Exchange) -> None:
        await exchange.respond(200, json.dumps(self.prm()), "application/json")

    async def _elsewhere(self, exchange: Exchange) -> None:
        if not self.same_origin:
            await exchange.respond(404)
            return
        kept = {name: exchange.headers[name] for name in ("authorization", "content-type") if name in exchange.headers}
        async with httpx2.AsyncClient(trust_env=False) as http:
            url = self.auth.origin + exchange.path
            answer = await http.request(exchange.verb, url, content=exchange.body, headers=kept)
        location = {"location": answer.headers["location"]} if "location" in answer.headers else {}
        content_type = answer.headers.get("content-type", "text/plain")
        await exchange.respond(answer.status_code, answer.content, content_type, **location)


def owner(token: Token) -> str:
    """Whose account a token is: the person's, or the client's own."""
    return token.person.username if token.person is not None else token.client_id


async def endless(exchange: Exchange) -> None:
    """JSON that never ends."""
    await exchange.open_stream()
    while not exchange.server.closed.is_set():
        await exchange.chunk(b"x" * 65536)
