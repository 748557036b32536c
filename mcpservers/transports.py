"""A definition and one actor's values → a `ConnectionTarget`: everything that decides what is connected to, as whom.

`clients.opened(target)` turns it into an open MCP client. This module does not import `mcp`, whose import costs
more than a second.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.conf import settings

from mcpservers import placeholders
from mcpservers.breaker import Circuit
from mcpservers.credentials import LATE_NAMESPACES, Account, LateValues, TokenSource
from mcpservers.errors import NotReadyError, OutsideTurnError
from mcpservers.models import MCPServer, Transport
from mcpservers.requests import RequestContext
from mcpservers.scope import Scope, scope_of

if TYPE_CHECKING:
    from accounts.actors import Actor

# Set by HTTP and by the protocol; a definition that sets one could smuggle requests or take over a session.
_RESERVED_HEADERS = frozenset(
    {"connection", "content-length", "host", "keep-alive", "mcp-protocol-version", "mcp-session-id", "te", "trailer"}
    | {"accept-encoding", "proxy-authorization", "proxy-connection", "transfer-encoding", "upgrade"}
)
_SECRET_NAME = re.compile(r"auth|cookie|credential|key|pass|secret|token", re.IGNORECASE)
_SHORTEST_SECRET = 6
_TOKENS_KEPT = 8
_DEFINITIONS_KEPT = 1_000


@dataclass(frozen=True, slots=True)
class AppPrincipal:
    """The organization itself: one connection for all its members."""


@dataclass(frozen=True, slots=True)
class UserPrincipal:
    """One user, with that user's values and one of the user's accounts (None: without one)."""

    user_id: UUID
    account_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class RequestPrincipal:
    """One user in one run of one turn, with one of the user's accounts (None: without one)."""

    user_id: UUID
    run: UUID
    account_id: UUID | None = None


Principal = AppPrincipal | UserPrincipal | RequestPrincipal


@dataclass(frozen=True, slots=True)
class ConnectionKey:
    """Under what a connection is pooled. `fingerprint` covers every resolved value, so a changed one is another key.

    Of an account it covers how it was linked; its tokens, and what else is asked for anew at each request, it does not.
    """

    organization_id: UUID
    server_id: UUID
    principal: Principal
    definition_hash: str
    fingerprint: str

    @property
    def slot(self) -> tuple[UUID, UUID, Principal]:
        """Where at most one usable connection stands; the rest of the key says whether it is stale."""
        return self.organization_id, self.server_id, self.principal


@dataclass(frozen=True, slots=True)
class ConnectionTarget:
    """What to connect to and as whom, with every placeholder resolved. Its `repr` shows no secret.

    Times are seconds. `era` is what the last connection learnt (`MCPServer.era`). `source` gives the bearer token of
    each request; without one, `signs_in` tells that the server has accounts, and that this is nobody's. `links` tells
    whether people link accounts of their own there, so that who is refused can be sent to sign in.
    """

    key: ConnectionKey
    slug: str
    title: str
    scope: Scope
    transport: Transport
    timeout: float
    connect_timeout: float
    circuit: Circuit
    url: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    command: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    era: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False, hash=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    allowances: tuple[str, ...] | None = ()  # as `extra` of `chatui.netguard`; None: public addresses alone
    is_own: bool = False  # a server of the person who uses it, for whose word its tools wait
    asks_people: bool = field(default=False, compare=False, hash=False)  # a session of it has asked during a call
    signs_in: bool = False
    links: bool = True
    account: Account | None = None
    source: TokenSource | None = field(default=None, repr=False, compare=False, hash=False)
    late: Late | None = field(default=None, repr=False, compare=False, hash=False)
    tokens: list[str] = field(default_factory=list, repr=False, compare=False, hash=False)  # that were sent, of late

    @property
    def server_id(self) -> UUID:
        return self.key.server_id

    @property
    def organization_id(self) -> UUID:
        return self.key.organization_id

    @property
    def principal(self) -> Principal:
        return self.key.principal

    @property
    def definition_hash(self) -> str:
        return self.key.definition_hash

    @property
    def user_id(self) -> UUID | None:
        return None if isinstance(self.principal, AppPrincipal) else self.principal.user_id

    @property
    def run(self) -> UUID | None:
        """The run of a turn that owns the connection; None for one that outlives turns."""
        return self.principal.run if isinstance(self.principal, RequestPrincipal) else None

    def redact(self, text: str) -> str:
        """`text` (an error, a log line) without the secrets that this target was resolved with, or that it sent."""
        for secret in (*self.secrets, *self.tokens):
            text = text.replace(secret, "•••")
        return text

    def sends(self, *secrets: str) -> None:
        """These go out now: they are not to be shown either."""
        for secret in secrets:
            if len(secret) >= _SHORTEST_SECRET and secret not in self.tokens:
                self.tokens.append(secret)
        del self.tokens[:-_TOKENS_KEPT]


@dataclass(frozen=True, slots=True)
class Late:
    """What of a definition is resolved anew: at each request the headers, when connecting the rest."""

    values: LateValues
    resolve: Callable[[Mapping[str, str]], dict[str, Any]]

    async def resolved(self) -> dict[str, Any]:
        """The fields of `ConnectionTarget` as they are now. Raises `NotReadyError`, and what `values` does."""
        return self.resolve(await self.values())


def target_of(
    server: MCPServer,
    actor: Actor,
    variables: Mapping[str, str],
    *,
    request: RequestContext | None = None,
    allowances: Iterable[str] = (),
    account: Account | None = None,
    source: TokenSource | None = None,
    late: LateValues | None = None,
    links: bool = True,
) -> ConnectionTarget:
    """The target for `actor` of `server`, with the actor's own `variables`. Pure: no query, no network.

    `account` and `source` belong together, where it is a linked account's; `late` gives the values of `{{openid.*}}`
    and `{{obo.*}}`. Raises `NotReadyError` when a declared variable has no value or a placeholder cannot be resolved,
    and its `OutsideTurnError` when the definition depends on the turn and there is no `request`.
    """
    definition_hash = server.definition_hash()
    known = _known(server, definition_hash)
    declared = server.variables
    placeholders.require_variables(declared, variables)
    if known.scope is Scope.REQUEST and request is None:
        raise OutsideTurnError
    values = placeholders.values_for(actor, declared, variables, request)
    names = late_names(server) if late is not None else ()
    # In their place the fingerprint has their names.
    made = known.plain or _Values.of(server, {**values, **{name: f"{{{{{name}}}}}" for name in names}}, variables)
    source_key = [source.key, account.link if account is not None else ""] if source is not None else None
    key = ConnectionKey(
        organization_id=server.organization_id,
        server_id=server.pk,
        principal=_principal(known.scope, actor, request, account),
        definition_hash=definition_hash,
        fingerprint=made.digest if source_key is None else _digest([made.resolved, source_key]),
    )
    return ConnectionTarget(
        key=key,
        slug=server.slug,
        title=server.title,
        scope=known.scope,
        transport=Transport(server.transport),
        timeout=server.timeout,
        connect_timeout=server.connect_timeout,
        circuit=_circuit(key, values, source_key),
        era=dict(server.era or {}),
        asks_people=server.asks_people,
        secrets=made.secrets,
        allowances=None if server.allowances is None else tuple(allowances),
        is_own=server.owner_id is not None,
        signs_in=server.signs_in,
        links=links,
        account=account,
        source=source,
        late=Late(late, lambda now: _resolved(server, {**values, **now})) if names and late is not None else None,
        **made.resolved,
    )


@dataclass(frozen=True, slots=True)
class _Values:
    """A definition with values in the place of its placeholders, and what of it must not be shown."""

    resolved: Mapping[str, Any] = field(repr=False)
    digest: str
    secrets: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(cls, server: MCPServer, values: Mapping[str, str], variables: Mapping[str, str]) -> _Values:
        resolved = _resolved(server, values)
        secrets = _secrets(resolved, server.variables, variables) + _operators(server)
        return cls(resolved, _digest(resolved), secrets)


@dataclass(frozen=True, slots=True)
class _Known:
    """What a definition says at every call and for everybody; `plain`, where it leaves nothing to be filled in."""

    scope: Scope
    plain: _Values | None


_definitions: OrderedDict[str, _Known] = OrderedDict()


def _known(server: MCPServer, definition_hash: str) -> _Known:
    """What there is to know of its definition, of which one that has changed has another hash."""
    found = _definitions.get(definition_hash)
    if found is None:
        plain = None if server.variables or _has_placeholders(server) else _Values.of(server, {}, {})
        found = _definitions[definition_hash] = _Known(scope_of(server.definition()).scope, plain)
        while len(_definitions) > _DEFINITIONS_KEPT:
            _definitions.popitem(last=False)
    return found


def _has_placeholders(server: MCPServer) -> bool:
    return any("{{" in text or "${" in text for text in (server.command, *_templates(server)))


def _templates(server: MCPServer) -> list[str]:
    return [server.url, *map(str, server.args), *server.headers.values(), *server.env.values()]


def late_names(server: MCPServer) -> tuple[str, ...]:
    """The placeholders of the definition whose values are tokens of the user's own sign-in."""
    return tuple(name for name in _names(server) if name.startswith(LATE_NAMESPACES))


def _names(server: MCPServer) -> Iterator[str]:
    for text in _templates(server):
        if "{{" in text:
            yield from placeholders.names_in(text)


def _resolved(server: MCPServer, values: Mapping[str, str]) -> dict[str, Any]:
    stdio = server.transport == Transport.STDIO
    return {
        "url": "" if stdio else placeholders.in_url(server.url, values),
        "headers": () if stdio else _headers(server.headers, values),
        "command": placeholders.in_text(server.command, {}) if stdio else "",
        "args": tuple(placeholders.in_text(str(arg), values) for arg in server.args) if stdio else (),
        "env": _environment(server.env, values) if stdio else (),
    }


def _principal(scope: Scope, actor: Actor, request: RequestContext | None, account: Account | None) -> Principal:
    if scope is Scope.APP:
        return AppPrincipal()
    account_id = account.id if account is not None else None
    if scope is Scope.REQUEST:
        assert request is not None
        return RequestPrincipal(actor.user_id, request.run, account_id)
    return UserPrincipal(actor.user_id, account_id)


def _circuit(key: ConnectionKey, values: Mapping[str, str], source: object) -> Circuit:
    """What fails together, which is not for one turn alone: a server that is down is so in the next one too."""
    if isinstance(key.principal, AppPrincipal):
        return Circuit(key.organization_id, key.server_id, None, key.definition_hash)
    own = {name: value for name, value in values.items() if not name.startswith("request.")}
    credential = _digest([key.definition_hash, own, source])
    return Circuit(key.organization_id, key.server_id, key.principal.user_id, credential)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _headers(templates: Mapping[str, str], values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    for name in templates:
        if name.lower() in _RESERVED_HEADERS:
            raise NotReadyError(f"The header “{name}” belongs to the protocol and cannot be set.")
    return tuple((name, placeholders.in_header(template, values)) for name, template in templates.items())


def _environment(templates: Mapping[str, str], values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, placeholders.in_text(template, values)) for name, template in templates.items())


def _operators(server: MCPServer) -> tuple[str, ...]:
    """The values of the operator's variables that the definition names."""
    names = {name for template in _templates(server) for name in placeholders.references_in(template)}
    values = (settings.MCP_ENVIRONMENT.get(name, "").strip() for name in names)
    return tuple(value for value in values if len(value) >= _SHORTEST_SECRET)


def _secrets(resolved: Mapping[str, Any], declared: Mapping[str, Any], variables: Mapping[str, str]) -> tuple[str, ...]:
    """What must not appear in an error: sensitive values, and what credentials-like headers and variables hold."""
    found = {variables[name] for name in declared if (declared[name] or {}).get("sensitive", True)}
    for name, value in (*resolved["headers"], *resolved["env"]):
        if _SECRET_NAME.search(name):
            found |= {value, value.rpartition(" ")[2]}
    long_enough = {secret.strip() for secret in found if len(secret.strip()) >= _SHORTEST_SECRET}
    return tuple(sorted(long_enough, key=len, reverse=True))
