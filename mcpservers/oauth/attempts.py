"""Rows of sign-ins that have begun: made, taken once by the right user in the right browser, turned into an account."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from accounts import audit
from accounts.actors import Actor, find_actor
from accounts.audit import Target
from accounts.models import AuditRecord
from accounts.policy import Action, allows
from accounts.redirects import is_local_path
from chatui.errors import NotFoundError, PermissionDeniedError
from chatui.rows import writing
from mcpservers.errors import LinkError
from mcpservers.giving import given
from mcpservers.models import LinkAttempt, LinkedAccount, MCPServer, OAuthClient
from mcpservers.oauth.grants import Granted
from mcpservers.oauth.identity import Identity, free_name
from mcpservers.oauth.metadata import Discovered

LIFETIME = timedelta(minutes=10)
VISITORS = timedelta(minutes=1)  # for which one entry tells of all who came back with nothing
_LONGEST_PATH = 2000


@dataclass(frozen=True, slots=True)
class Start:
    """What a sign-in begins with. `another`: the person has an account there that works, and wants one more."""

    server: MCPServer
    account: LinkedAccount | None
    another: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """An attempt that was taken, which nobody else can take any more."""

    user_id: UUID
    server: MCPServer
    client: OAuthClient
    account_id: UUID | None
    discovered: Discovered
    binding: str
    verifier: str = field(repr=False)
    scopes: tuple[str, ...]
    redirect_uri: str
    return_to: str


def usable_server(actor: Actor, server_id: UUID) -> MCPServer:
    """The server, if the actor may use any of its tools. Raises `NotFoundError`, `PermissionDeniedError`."""
    server = MCPServer.objects.visible_to(actor).filter(pk=server_id).prefetch_related("grants").first()
    if server is None:
        raise NotFoundError
    assert isinstance(server, MCPServer)
    for verdict in (
        allows(actor, Action.CALL_TOOL),
        # A denied tool takes that tool, not the server.
        given(actor, server, [grant for grant in server.grants.all() if not (grant.deny and grant.tool)]),
    ):
        if not verdict:
            raise PermissionDeniedError(verdict.reason, public_message=verdict.reason)
    return server


def prepare(actor: Actor, server_id: UUID, account_id: UUID | None) -> Start:
    """Everything that `begin` needs of the rows. Raises `NotFoundError`, `PermissionDeniedError`."""
    server = usable_server(actor, server_id)
    own = list(LinkedAccount.objects.visible_to(actor).filter(server=server, user_id=actor.user_id))
    account = next((each for each in own if each.pk == account_id), None)
    if account_id is not None and account is None:
        raise NotFoundError
    binding = server.oauth_binding()
    works = any(each.works(binding) for each in own)
    return Start(server, account, account is None and works)


def store(
    actor: Actor,
    start: Start,
    client: OAuthClient,
    discovered: Discovered,
    state: str,
    verifier: str,
    browser: str,
    scopes: tuple[str, ...],
    return_to: str,
) -> None:
    """Remember an attempt for ten minutes; of `state` and `browser` only digests."""
    from mcpservers.oauth import client_metadata

    path = return_to if is_local_path(return_to) and len(return_to) <= _LONGEST_PATH else ""
    LinkAttempt.objects.create(
        organization_id=actor.organization_id,
        state_hash=_digest(state),
        browser_hash=_digest(browser),
        user_id=actor.user_id,
        server=start.server,
        account=start.account,
        client=client,
        binding=start.server.oauth_binding(),
        metadata=discovered.as_json(),
        verifier=verifier,
        scopes=list(scopes),
        redirect_uri=client_metadata.redirect_uri(),
        return_to=path,
        expires_at=timezone.now() + LIFETIME,
    )


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode(errors="replace")).hexdigest()


def _of_state(state: str) -> Any:
    rows = LinkAttempt.objects.as_system().filter(state_hash=_digest(state))
    return rows.select_related("server", "client").first()


def take(user_id: UUID, state: str, browser: str) -> Taken:
    """The attempt of `state`, taken for good, if it is this user's in this browser. Raises `LinkError`."""
    row, now = _of_state(state), timezone.now()
    if (
        row is None
        or row.user_id != user_id
        or not browser
        or not hmac.compare_digest(row.browser_hash, _digest(browser))
        or not LinkAttempt.objects.as_system().filter(pk=row.pk, used_at=None, expires_at__gt=now).update(used_at=now)
    ):
        error = LinkError(
            "used",
            "This sign-in was completed before, took longer than ten minutes, or was begun in another browser. "
            "Nothing was changed: if the account is not among your connections, start again.",
            for_admin="A callback whose state is unknown, used, expired, or another user's or browser's.",
            status=400,
        )
        failed(user_id, row.server if row is not None else None, error)
        raise error
    server: MCPServer = row.server
    try:
        _still_allowed(user_id, server, row.binding)
    except LinkError as error:
        error.about(server, row.return_to)
        failed(user_id, server, error)
        raise
    return Taken(
        user_id=user_id,
        server=server,
        client=row.client,
        account_id=row.account_id,
        discovered=Discovered.from_json(row.metadata),
        binding=row.binding,
        verifier=row.verifier,
        scopes=tuple(row.scopes),
        redirect_uri=row.redirect_uri,
        return_to=row.return_to,
    )


def _still_allowed(user_id: UUID, server: MCPServer, binding: str) -> None:
    """What was true when it began may have ended meanwhile. Raises `LinkError`."""
    actor = find_actor(user_id, server.organization_id)
    try:
        if actor is None:
            raise PermissionDeniedError("", public_message="You are no longer a member of this organization.")
        usable_server(actor, server.pk)
    except (PermissionDeniedError, NotFoundError) as error:
        raise LinkError("not_allowed", f"{error.public_message} Nothing was linked.", status=403) from None
    if not server.enabled or server.oauth_binding() != binding:
        message = f"“{server.title}” was changed while you signed in, so nothing was linked. Start again."
        raise LinkError("changed", message, status=409)


def failed(user_id: UUID | None, server: MCPServer | None, error: LinkError) -> None:
    """Record that linking failed, and why; by whoever came, None for a visitor, and of no server if it is not known."""
    known: dict[str, Any] = {"server_id": server.pk, "server": server.slug} if server is not None else {}
    audit.record(
        "link.failed",
        organization_id=server.organization_id if server is not None else None,
        actor_id=user_id,
        via=audit.Via.WEB,
        reason=error.for_admin,
        details={"reason": error.reason},
        **known,
    )


def turned_away(user_id: UUID | None, state: str, error: LinkError) -> None:
    """Record a callback that was not looked into; the attempt that it may belong to stays as it is.

    Of visitors with nothing to show one entry a minute stands for all: else anybody could fill the audit.
    """
    row = _of_state(state)
    if row is None and user_id is None and _visitors_are_recorded():
        return
    failed(user_id, row.server if row is not None else None, error)


def _visitors_are_recorded() -> bool:
    rows = AuditRecord.objects.as_system().filter(organization_id=None, actor_id=None, action="link.failed")
    return bool(rows.filter(at__gt=timezone.now() - VISITORS).exists())


# --- The account --------------------------------------------------------------------------------------------------


def link(taken: Taken, granted: Granted, who: Identity) -> LinkedAccount:
    """Store the tokens: in the account that was to be linked again, in the one of this identity, else in a new one."""
    server, now = taken.server, timezone.now()
    with writing():
        # One link at a time for a server, so that names, defaults and identities stay unique. It is gone if deleted.
        locked = MCPServer.objects.as_system().select_for_update(no_key=True).filter(pk=server.pk).first()
        if locked is None or locked.oauth_binding() != taken.binding:
            message = f"“{server.title}” was changed while you signed in, so nothing was linked. Start again."
            raise LinkError("changed", message, status=409)
        own = list(LinkedAccount.objects.as_system().filter(server=server, user_id=taken.user_id))
        account = _account_for(own, taken, who)
        others = [each for each in own if each.pk != account.pk]
        _fill(account, taken, granted, who, others, now)
        account.save()
        _record(taken, account)
    return account


def _account_for(own: list[LinkedAccount], taken: Taken, who: Identity) -> LinkedAccount:
    issuer = taken.discovered.issuer
    if who.subject:
        for each in own:
            if (each.issuer, each.subject) == (issuer, who.subject):
                return each
    named = next((each for each in own if each.pk == taken.account_id), None)
    if named is not None and not (who.subject and named.subject and named.issuer == issuer):
        return named
    if named is None and not who.subject:
        # Nobody told who it is: rather mend what does not work than collect accounts of the same person.
        for each in own:
            if not each.subject and not each.works(taken.binding):
                return each
    return LinkedAccount(organization_id=taken.server.organization_id, server=taken.server, user_id=taken.user_id)


def _fill(
    account: LinkedAccount,
    taken: Taken,
    granted: Granted,
    who: Identity,
    others: list[LinkedAccount],
    now: Any,
) -> None:
    same = account.issuer == taken.discovered.issuer and account.binding == taken.binding
    tokens: Mapping[str, Any] = granted.tokens(account.tokens if same and account.subject == who.subject else None)
    account.binding, account.issuer = taken.binding, taken.discovered.issuer
    account.resource, account.client = taken.discovered.resource, taken.client
    account.tokens, account.scopes = dict(tokens), list(granted.scopes or ())
    for name, value in granted.times(now, renewable="refresh_token" in tokens).items():
        setattr(account, name, value)
    if not account._state.adding:
        account.version += 1
    account.refreshing_until = account.renewed_at = None
    account.state, account.last_error, account.last_used_at = LinkedAccount.State.READY, "", now
    if not account.name or (who.subject and who.subject != account.subject):
        account.name = free_name(who.name, (each.name for each in others))
    if who.subject or not same:
        account.subject = who.subject
    if not any(each.is_default and each.works(taken.binding) for each in others):
        for each in others:
            if each.is_default:
                LinkedAccount.objects.as_system().filter(pk=each.pk).update(is_default=False)
        account.is_default = True


def _record(taken: Taken, account: LinkedAccount) -> None:
    audit.record(
        "link.created",
        organization_id=taken.server.organization_id,
        actor_id=taken.user_id,
        target=Target("account", account.pk),
        server_id=taken.server.pk,
        server=taken.server.slug,
        account_id=account.pk,
        details={"issuer": account.issuer, "scopes": account.scopes, "client": str(taken.client.source)},
    )


def forget_old() -> int:
    """Delete attempts that can no longer be completed; how many there were."""
    deleted, _ = LinkAttempt.objects.as_system().filter(expires_at__lt=timezone.now() - LIFETIME).delete()
    return deleted
