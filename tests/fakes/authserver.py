"""An OAuth 2.1 and OpenID Connect authorization server over real HTTP that behaves well until it is told otherwise.

    async with FakeAuthServer() as auth:                     # path="/tenant1" for an issuer with a path
        url = ...                                            # what the product sends the browser to
        redirect = await consent(url, user="ada")            # tests.fakes.authpages: the browser's part
        await auth.heard("token")
        auth.on("token", html)                               # tests.fakes.authfaults, or any handler of a `Heard`

Endpoints by name: metadata, openid, register, authorize, consent, token, revoke, jwks, userinfo. What it says is bent
by the `…_changes` fields (None removes a key). `serving(FakeAuthServer())` runs it in a thread, for synchronous tests.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self, TypeVar
from urllib.parse import parse_qsl

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.fakes import authgrants, authpages
from tests.fakes.authstate import JSON, PEOPLE, Client, Memory, OAuthRefusal, Person, Token, bent
from tests.fakes.proofs import Proofs

T = TypeVar("T")
CODE, REFRESH, CREDENTIALS = "authorization_code", "refresh_token", "client_credentials"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@dataclass
class Heard:
    """One request. `form` and `json` hold its body, as far as it is one."""

    server: FakeAuthServer
    endpoint: str
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    request: web.Request

    @cached_property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @cached_property
    def json(self) -> JSON:
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


Handler = Callable[[Heard], Awaitable[web.StreamResponse]]


@dataclass
class FakeAuthServer:
    """Everything it heard is in `requests`, everything it remembers in `memory`."""

    path: str = ""  # of the issuer, such as "/tenant1"
    public_origin: str = ""  # where it says that it is, if not where it listens
    metadata_at: frozenset[str] = frozenset({"oauth", "openid"})  # and "openid-inserted": RFC 8414's form of it
    scopes: tuple[str, ...] = ("openid", "profile", "email", "offline_access", "notes:read", "notes:write")
    default_scopes: tuple[str, ...] = ("notes:read",)  # for a request without any
    resources: tuple[str, ...] | None = None  # None: any
    auth_methods: tuple[str, ...] = ("none", "client_secret_basic", "client_secret_post", "private_key_jwt")
    registration: bool = True
    documents: bool = False  # client ID metadata documents
    planted: dict[str, JSON] = field(default_factory=dict)  # documents by URL, instead of fetching them
    people: tuple[Person, ...] = PEOPLE
    auto_consent: str = ""  # a username: authorize at once, without the page
    require_resource: bool = False
    expires_in: float = 3600
    refresh: str = "always"  # "always" | "offline_access" | "never"
    rotate: bool = True
    form_encoded: bool = False  # token answers
    trusts: FakeAuthServer | None = None  # whose identity assertions it takes
    workloads: JSON = field(default_factory=dict)  # PEM of the public keys of platforms, by their issuer
    known_elsewhere_as: str = ""  # the client that its own assertions are for, at whoever trusts it
    dpop: bool = False  # binds tokens to the key of a proof (RFC 9449)
    # --- Lies: merged into what it says; None removes a key ---
    metadata_changes: JSON = field(default_factory=dict)
    redirect_changes: JSON = field(default_factory=dict)
    registration_changes: JSON = field(default_factory=dict)
    token_changes: JSON = field(default_factory=dict)
    refresh_changes: JSON = field(default_factory=dict)  # after token_changes, in answers to a refresh
    id_token_changes: JSON = field(default_factory=dict)
    # --- What it heard ---
    requests: list[Heard] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.memory = Memory()
        self.pending: dict[str, dict[str, str]] = {}  # authorization requests on the consent page
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.key_id = secrets.token_hex(4)
        self.proofs = Proofs()  # whose `nonce` may be set
        self.closed = asyncio.Event()
        self._handlers: dict[str, Handler] = {}
        self._changed = asyncio.Condition()
        self._issuer = ""

    # --- What tests say to it ---------------------------------------------------------------------------------------

    def on(self, endpoint: str, handler: Handler | None) -> None:
        """Answer an endpoint this way; None: as usual again."""
        if handler is None:
            self._handlers.pop(endpoint, None)
        else:
            self._handlers[endpoint] = handler

    def configure(self, client_id: str = "preset", secret: str = "", **fields: Any) -> Client:
        """A client that an administrator made here by hand."""
        method = fields.pop("auth_method", "client_secret_basic" if secret else "none")
        client = Client(client_id, secret, method, **fields)
        self.memory.clients[client_id] = client
        return client

    def forget_clients(self) -> None:
        """As a server does that lost its registrations: invalid_client from now on."""
        self.memory.clients.clear()

    def valid(self, token: str, resource: str = "") -> Token | None:
        """The active access token `token`, if it is meant for `resource`."""
        found = self.memory.find(token, "access")
        if found is None or not found.active or (resource and found.resource not in ("", resource)):
            return None
        return found

    def count(self, endpoint: str) -> int:
        return len(self.requests_of(endpoint))

    def requests_of(self, endpoint: str) -> list[Heard]:
        return [heard for heard in self.requests if heard.endpoint == endpoint]

    def last(self, endpoint: str) -> Heard:
        return self.requests_of(endpoint)[-1]

    async def heard(self, endpoint: str, times: int = 1) -> Heard:
        """Wait until an endpoint was asked so often; the last of the requests."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.count(endpoint) >= times)
        return self.last(endpoint)

    # --- What it says of itself -------------------------------------------------------------------------------------

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def issuer(self) -> str:
        return self._issuer or (self.public_origin or self.origin) + self.path

    @issuer.setter
    def issuer(self, value: str) -> None:
        self._issuer = value

    def url(self, endpoint: str) -> str:
        return f"{self.public_origin or self.origin}{self.path}/{endpoint}"

    def metadata(self) -> JSON:
        """RFC 8414 and OpenID Connect discovery in one document."""
        said: JSON = {
            "issuer": self.issuer,
            "authorization_endpoint": self.url("authorize"),
            "token_endpoint": self.url("token"),
            "revocation_endpoint": self.url("revoke"),
            "userinfo_endpoint": self.url("userinfo"),
            "jwks_uri": self.url("jwks"),
            "scopes_supported": list(self.scopes),
            "response_types_supported": ["code"],
            "grant_types_supported": [CODE, REFRESH, CREDENTIALS, EXCHANGE, JWT_BEARER],
            "token_endpoint_auth_methods_supported": list(self.auth_methods),
            "token_endpoint_auth_signing_alg_values_supported": ["RS256", "ES256"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }
        if self.registration:
            said["registration_endpoint"] = self.url("register")
        if self.documents:
            said["client_id_metadata_document_supported"] = True
        if self.dpop:
            said["dpop_signing_alg_values_supported"] = ["ES256"]
        return bent(said, self.metadata_changes)

    def jwks(self) -> JSON:
        key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [key | {"kid": self.key_id, "use": "sig", "alg": "RS256"}]}

    # --- HTTP -------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port: int = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed.set()
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        endpoint = self._endpoint(request.path)
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = await request.read()
        heard = Heard(self, endpoint, request.method, request.path, dict(request.query), headers, body, request)
        handler = self._handlers.get(endpoint, self.usual)  # before the test hears of it and may say otherwise
        self.requests.append(heard)
        async with self._changed:
            self._changed.notify_all()
        return await handler(heard)

    def _endpoint(self, path: str) -> str:
        wellknown = {
            f"/.well-known/oauth-authorization-server{self.path}": ("metadata", "oauth"),
            f"{self.path}/.well-known/openid-configuration": ("openid", "openid"),
            f"/.well-known/openid-configuration{self.path}": ("openid", "openid-inserted" if self.path else "openid"),
        }
        if path in wellknown:
            name, place = wellknown[path]
            return name if place in self.metadata_at else "missing"
        name = path.removeprefix(f"{self.path}/")
        return name if name in USUAL else "missing"

    async def usual(self, heard: Heard) -> web.StreamResponse:
        """What it does when nothing is wrong."""
        try:
            return await USUAL[heard.endpoint](heard)
        except OAuthRefusal as refusal:
            said = {"error": refusal.error, "error_description": refusal.description}
            headers = {"WWW-Authenticate": 'Basic realm="fake"'} if refusal.status == 401 else {}
            headers |= {"DPoP-Nonce": self.proofs.nonce} if self.proofs.nonce else {}
            return web.json_response(said, status=refusal.status, headers=headers)


# --- Endpoints --------------------------------------------------------------------------------------------------------


async def _missing(heard: Heard) -> web.StreamResponse:
    return web.Response(status=404, text="not found")


async def _metadata(heard: Heard) -> web.StreamResponse:
    return web.json_response(heard.server.metadata())


async def _jwks(heard: Heard) -> web.StreamResponse:
    return web.json_response(heard.server.jwks())


async def _register(heard: Heard) -> web.StreamResponse:
    """RFC 7591."""
    server, wanted = heard.server, heard.json
    uris = wanted.get("redirect_uris")
    if not server.registration or heard.method != "POST":
        return await _missing(heard)
    if not (isinstance(uris, list) and uris and all(isinstance(uri, str) for uri in uris)):
        raise OAuthRefusal("invalid_redirect_uri", "redirect_uris must be a list of addresses")
    method = wanted.get("token_endpoint_auth_method", "client_secret_basic")
    if method not in server.auth_methods:
        method = server.auth_methods[0]  # RFC 7591 3.2.1: the server may replace what was asked for
    method = server.registration_changes.get("token_endpoint_auth_method") or method
    client = Client(
        id=f"dyn-{secrets.token_hex(6)}",
        secret=secrets.token_urlsafe(16) if method.startswith("client_secret") else "",
        auth_method=method,
        redirect_uris=tuple(uris),
        source="dynamic",
        metadata=wanted,
    )
    server.memory.clients[client.id] = client
    said = wanted | {"client_id": client.id, "token_endpoint_auth_method": method, "client_id_issued_at": 1}
    if client.secret:
        said |= {"client_secret": client.secret, "client_secret_expires_at": 0}
    return web.json_response(bent(said, server.registration_changes), status=201)


async def _userinfo(heard: Heard) -> web.StreamResponse:
    scheme, _, value = heard.headers.get("authorization", "").partition(" ")
    token = heard.server.valid(value)
    if token is not None and token.jkt:
        proof = heard.headers.get("dpop", "")
        bound = scheme == "DPoP" and token.jkt == heard.server.proofs.check(
            proof, heard.method, heard.server.url("userinfo"), value
        )
    if token is None or token.person is None or not (bound if token.jkt else scheme == "Bearer"):
        return web.Response(status=401, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})
    return web.json_response(authgrants.claims(token.person))


USUAL: dict[str, Handler] = {
    "missing": _missing,
    "metadata": _metadata,
    "openid": _metadata,
    "jwks": _jwks,
    "register": _register,
    "authorize": authpages.authorize,
    "consent": authpages.decide,
    "token": authgrants.token,
    "revoke": authgrants.revoke,
    "userinfo": _userinfo,
}


# --- In a thread ------------------------------------------------------------------------------------------------------


@contextmanager
def serving(server: T) -> Iterator[T]:
    """Run a fake (anything to be entered with `async with`) in a loop of its own, for tests that are synchronous."""
    ready, stop = threading.Event(), threading.Event()
    trouble: list[BaseException] = []

    async def main() -> None:
        async with server:
            ready.set()
            await asyncio.to_thread(stop.wait)

    def work() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:  # handed to the test
            trouble.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=work, name="fake", daemon=True)
    thread.start()
    ready.wait()
    try:
        if trouble:
            raise trouble[0]
        yield server
    finally:
        stop.set()
        thread.join()
