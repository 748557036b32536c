"""As whom a server is called: with an account of the person or of the organization, on behalf of one, or as nobody."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from django.db.models import Q

from mcpservers.credentials import Account, LateValues, TokenSource
from mcpservers.models import LinkedAccount, MCPServer
from mcpservers.oauth import accounts, exchange, machine
from mcpservers.oauth.signins import sign_in_of
from mcpservers.oauth.tokens import AccountTokens
from mcpservers.oauth.whose import Whose, whose_account
from mcpservers.requests import RequestContext
from mcpservers.transports import ConnectionTarget, late_names, target_of

if TYPE_CHECKING:
    from accounts.actors import Actor

OPENID_TOKENS = ("access_token", "id_token")  # of a sign-in to this product; what renews them stays here


@dataclass(frozen=True, slots=True)
class Identity:
    """As whom one server is called. `links`: people link accounts of their own there; `account` is the one in use."""

    account: Account | None = None
    source: TokenSource | None = None
    late: LateValues | None = None
    links: bool = False
    has_ended: bool = False  # the account has to be linked again

    @property
    def is_missing(self) -> bool:
        """Whether a person has to sign in before anything is called."""
        return self.links and self.account is None


def identity_of(actor: Actor, server: MCPServer, account_id: UUID | None = None) -> Identity:
    """As whom `actor` calls `server`: with the chosen account, else the default. One query where there are accounts."""
    row = accounts.choose(actor, server, account_id) if _has_accounts(server) else None
    return _identity(actor, server, row)


def identities(
    actor: Actor, servers: Iterable[MCPServer], chosen: Mapping[str, str] | None = None
) -> dict[UUID, Identity]:
    """The same for several servers; one query in all where they have accounts.

    `chosen`: server's slug → id of an account.
    """
    servers = list(servers)
    own: dict[UUID, list[LinkedAccount]] = defaultdict(list)
    organizations: dict[UUID, LinkedAccount] = {}
    linked = [server.pk for server in servers if _has_accounts(server)]
    if linked:
        rows = LinkedAccount.objects.visible_to(actor).filter(server__in=linked)
        for row in rows.filter(Q(user_id=actor.user_id) | Q(user=None)).defer("tokens"):
            if row.user_id is None:
                organizations[row.server_id] = row
            else:
                own[row.server_id].append(row)
    found = {}
    for server in servers:
        if whose_account(server) is Whose.ORGANIZATION:
            row = machine.account_for(server, known=organizations.get(server.pk))
        else:
            row = _picked(own[server.pk], (chosen or {}).get(server.slug, ""))
        found[server.pk] = _identity(actor, server, row, just_read=False)
    return found


def acting_target(
    server: MCPServer,
    actor: Actor,
    variables: Mapping[str, str],
    identity: Identity,
    request: RequestContext | None = None,
) -> ConnectionTarget:
    """`target_of` for an identity. Raises as that does."""
    return target_of(
        server,
        actor,
        variables,
        request=request,
        account=identity.account,
        source=identity.source,
        late=identity.late,
        links=identity.links,
    )


def _has_accounts(server: MCPServer) -> bool:
    return whose_account(server) in (Whose.OWN, Whose.ORGANIZATION)


def _picked(rows: Iterable[LinkedAccount], wanted: str) -> LinkedAccount | None:
    """As `accounts.choose` picks: the chosen one or nothing, else the default."""
    return next((row for row in rows if (str(row.pk) == wanted if wanted else row.is_default)), None)


def _identity(actor: Actor, server: MCPServer, row: LinkedAccount | None, *, just_read: bool = True) -> Identity:
    late, whose = _late(actor, server), whose_account(server)
    if whose is Whose.ON_BEHALF:
        named = any(name.startswith("obo.") for name in late_names(server))
        return Identity(source=None if named else exchange.ExchangedTokens(actor, server), late=late)
    if whose is Whose.NOBODY:
        return Identity(late=late)
    links = whose is Whose.OWN
    if row is None or row.binding != server.oauth_binding():  # of another address: none that could be used
        return Identity(late=late, links=links)
    row.server = server
    source = AccountTokens.of(row) if just_read else _tokens(row)
    return Identity(Account.of(row), source, late, links, has_ended=row.state != LinkedAccount.State.READY)


def _tokens(row: LinkedAccount) -> AccountTokens:
    server = row.server
    return AccountTokens(row.pk, binding=row.binding, server_id=server.pk, slug=server.slug, title=server.title)


def _late(actor: Actor, server: MCPServer) -> LateValues | None:
    names = late_names(server)
    if not names:
        return None

    async def values() -> Mapping[str, str]:
        found: dict[str, str] = {}
        if any(name.startswith("openid.") for name in names):
            tokens = (await sign_in_of(actor.user_id)).tokens
            found |= {f"openid.{kind}": tokens.get(kind, "") for kind in OPENID_TOKENS}
        if "obo.access_token" in names:
            found["obo.access_token"] = await exchange.ExchangedTokens(actor, server).current()
        return found

    return values
