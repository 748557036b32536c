"""Every server that a person may use, with its state, the person's accounts there, and what it wants to know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from accounts.actors import Actor
from chatui.rows import in_rows
from conversations.api.variables import declared_variables
from conversations.usable import own_servers, servers_of, usable_agents
from mcpservers import catalogue
from mcpservers.giving import reaches
from mcpservers.models import LinkedAccount, MCPServer, UserVariables
from mcpservers.oauth.whose import whose_account
from mcpservers.offers import ServerState
from mcpservers.own import BARRED

STATES = {
    "ready": "Ready",
    "needs_sign_in": "Needs sign-in",
    "needs_setup": "Needs setup",
    "error": "Not working",
    "off": "Switched off by an administrator",
    "unknown": "Not connected yet",
}
ORDER = {"needs_sign_in": 0, "needs_setup": 0, "error": 1, "off": 3}
OTHER_DEFINITION = "The server's address or its sign-in was changed since. Connect again."
SIGN_IN_AGAIN = "The sign-in has ended. Connect again."


@dataclass(frozen=True, slots=True)
class Account:
    """One's own account; `problem` says why it cannot be used, "" for one that can."""

    id: UUID
    name: str
    scopes: tuple[str, ...]
    is_default: bool
    problem: str
    created_at: datetime
    last_used_at: datetime | None

    @property
    def used_just_now(self) -> bool:
        return self.last_used_at is not None and timezone.now() - self.last_used_at < timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Connection:
    """`identity` is whose account the server is used with: "own", "organization", "on_behalf", or "" for none.

    `state` is as in `ServerState`; `agents` are the names of those that use the server; `is_own` is of a server that
    the person has added, who sees it here also where it may not be used any more.
    """

    slug: str
    title: str
    description: str
    host: str
    identity: str
    state: str
    message: str
    retry_at: datetime | None
    tools: int
    accounts: tuple[Account, ...] = ()
    variables: tuple[Mapping[str, Any], ...] = ()
    agents: tuple[str, ...] = ()
    is_own: bool = False
    is_on: bool = True
    is_barred: bool = False  # an own server, by an admin
    id: UUID | None = None

    @property
    def can_connect(self) -> bool:
        return self.identity == "own" and self.state != "off"

    @property
    def state_words(self) -> str:
        if self.state == "off" and self.is_own:
            return "Off"
        return STATES.get(self.state, self.state)

    @property
    def needs_values(self) -> bool:
        return any(not variable["set"] for variable in self.variables)


@dataclass(frozen=True, slots=True)
class _Loaded:
    servers: Sequence[MCPServer]
    accounts: Mapping[UUID, Sequence[Account]]
    values: Mapping[UUID, Mapping[str, str]]
    agents: Mapping[UUID, Sequence[str]] = field(default_factory=dict)


async def connections_of(actor: Actor) -> list[Connection]:
    """The servers that are granted to the actor, those that want something first. No server is waited for."""
    loaded = await in_rows(_load, actor)
    states = {state.slug: state for state in await catalogue.server_states(actor, [one.pk for one in loaded.servers])}
    found = [_connection(server, states.get(server.slug), loaded) for server in loaded.servers]
    return sorted(found, key=lambda one: (ORDER.get(one.state, 2), one.title.casefold()))


def _load(actor: Actor) -> _Loaded:
    """A constant number of queries, however many servers."""
    rows = MCPServer.objects.visible_to(actor).prefetch_related("grants")
    servers = [server for server in rows if server.owner_id or reaches(actor, server, server.grants.all())]
    stored = UserVariables.objects.filter(user_id=actor.user_id, server__in=[server.pk for server in servers])
    agents: dict[UUID, list[str]] = defaultdict(list)
    mine = own_servers(actor)
    for agent in usable_agents(actor):
        for used in servers_of(agent, mine):
            agents[used.server_id].append(agent.name)
    return _Loaded(servers, own_accounts(actor, servers), {row.server_id: row.values for row in stored}, agents)


def _connection(server: MCPServer, state: ServerState | None, loaded: _Loaded) -> Connection:
    return Connection(
        slug=server.slug,
        title=server.title,
        description=server.description,
        host=server.host,
        identity=whose_account(server).value,
        state=state.state if state is not None else "unknown",
        message=BARRED if server.barred else state.message if state is not None else "",
        retry_at=state.retry_at if state is not None else None,
        tools=len([tool for tool in state.tools if not tool.withheld]) if state is not None else 0,
        accounts=tuple(loaded.accounts.get(server.pk, ())),
        variables=tuple(declared_variables(server, loaded.values.get(server.pk, {}))),
        agents=tuple(loaded.agents.get(server.pk, ())),
        is_own=server.owner_id is not None,
        is_on=server.enabled,
        is_barred=server.barred,
        id=server.pk,
    )


def own_accounts(actor: Actor, servers: Iterable[MCPServer]) -> dict[UUID, list[Account]]:
    """The actor's accounts by server, oldest first; one query, no token is read."""
    by_id = {server.pk: server for server in servers}
    rows = LinkedAccount.objects.visible_to(actor).filter(user_id=actor.user_id, server__in=by_id).defer("tokens")
    found: dict[UUID, list[Account]] = defaultdict(list)
    for row in rows:
        found[row.server_id].append(account_of(row, by_id[row.server_id]))
    return found


def account_of(account: LinkedAccount, server: MCPServer) -> Account:
    """An account at `server`, for pages."""
    problem = ""
    if account.binding != server.oauth_binding():
        problem = OTHER_DEFINITION
    elif account.state != LinkedAccount.State.READY:
        problem = account.last_error or SIGN_IN_AGAIN
    return Account(
        id=account.pk,
        name=account.name,
        scopes=tuple(account.scopes),
        is_default=account.is_default,
        problem=problem,
        created_at=account.created_at,
        last_used_at=account.last_used_at,
    )


def connection_json(connection: Connection, organization: str) -> dict[str, Any]:
    """A connection as clients see it: no value of a variable, no token."""
    return {
        "slug": connection.slug,
        "title": connection.title,
        "description": connection.description,
        "host": connection.host,
        "own": connection.is_own,
        "identity": connection.identity,
        "state": connection.state,
        "message": connection.message,
        "retry_at": connection.retry_at.isoformat() if connection.retry_at else None,
        "tools": connection.tools,
        "agents": list(connection.agents),
        "connect_url": begin_path(organization, connection.slug) if connection.can_connect else None,
        "accounts": [account_json(account) for account in connection.accounts],
        "variables": [dict(variable) for variable in connection.variables],
    }


def account_json(account: Account) -> dict[str, Any]:
    return {
        "id": str(account.id),
        "name": account.name,
        "scopes": list(account.scopes),
        "default": account.is_default,
        "problem": account.problem,
        "created_at": account.created_at.isoformat(),
        "last_used_at": account.last_used_at.isoformat() if account.last_used_at else None,
    }


def begin_path(organization: str, server: str) -> str:
    return f"/o/{organization}/connections/{server}/begin"
