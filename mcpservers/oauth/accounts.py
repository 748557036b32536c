"""The accounts of a person at a server: which there are, which one is used, their names, and their end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from accounts import audit
from accounts.audit import Target
from accounts.policy import Action, allows
from chatui.errors import InvalidRequestError, NotFoundError
from chatui.rows import in_rows, writing
from mcpservers.errors import SignInReason, SignInRequiredError
from mcpservers.models import LinkedAccount, MCPServer, OAuthDiscovery
from mcpservers.oauth import machine
from mcpservers.oauth.identity import tidy_name
from mcpservers.oauth.metadata import Discovered
from mcpservers.oauth.revocation import revoke

if TYPE_CHECKING:
    from accounts.actors import Actor


@dataclass(frozen=True, slots=True)
class Disconnected:
    """What was disconnected; `warning` says what the authorization server did not do, for the person."""

    server_id: UUID
    server_title: str
    account: str
    user_id: UUID | None
    warning: str = ""


def accounts_of(actor: Actor, server_id: UUID | None = None) -> list[LinkedAccount]:
    """The actor's own accounts at a server (at every server without one), oldest first, with their servers."""
    rows = LinkedAccount.objects.visible_to(actor).filter(user_id=actor.user_id)
    if server_id is not None:
        rows = rows.filter(server_id=server_id)
    return list(rows.select_related("server"))


def is_usable(account: LinkedAccount) -> bool:
    """Whether it works as far as we know: it is linked, and to the definition as it stands."""
    return account.state == LinkedAccount.State.READY and account.binding == account.server.oauth_binding()


def choose(actor: Actor, server: MCPServer, account_id: UUID | None = None) -> LinkedAccount | None:
    """The account to act with: the one that was chosen, else the default; of the organization for app scope.

    One query. None where there is none and where the chosen one is gone: another one is never taken in its place. It
    may need to be linked again (`is_usable`), which its tokens say too.
    """
    if machine.is_machine(server):
        return machine.account_for(server)
    rows = LinkedAccount.objects.visible_to(actor).filter(server=server, user_id=actor.user_id)
    rows = rows.filter(is_default=True) if account_id is None else rows.filter(pk=account_id)
    account: LinkedAccount | None = rows.first()
    if account is not None:
        account.server = server
    return account


def sign_in_needed(
    server: MCPServer,
    account: LinkedAccount | None = None,
    *,
    reason: SignInReason = "none",
    scopes: tuple[str, ...] = (),
) -> SignInRequiredError:
    """The error that asks for a sign-in, with the host that the person will see if it is known. One query."""
    row = OAuthDiscovery.objects.as_system().filter(server=server, binding=server.oauth_binding()).first()
    found = Discovered.from_json(row.document) if row is not None else None
    if not scopes and found is not None:
        scopes = found.scopes
    if account is not None:
        scopes = tuple(dict.fromkeys([*account.scopes, *scopes]))
    return SignInRequiredError(
        server.pk,
        server.slug,
        server.title,
        reason=reason,
        scopes=scopes,
        account=account.name if account is not None else "",
        account_id=account.pk if account is not None else None,
        host=found.host if found is not None else "",
    )


def _own(actor: Actor, account_id: UUID) -> LinkedAccount:
    rows = LinkedAccount.objects.visible_to(actor).filter(pk=account_id, user_id=actor.user_id)
    account: LinkedAccount | None = rows.select_related("server").first()
    if account is None:
        raise NotFoundError
    return account


def rename(actor: Actor, account_id: UUID, name: str) -> LinkedAccount:
    """Give an own account a name. Raises `NotFoundError`, `InvalidRequestError`."""
    account, wanted = _own(actor, account_id), tidy_name(name)
    if not wanted:
        raise InvalidRequestError("name", public_message="A name is needed.")
    others = LinkedAccount.objects.visible_to(actor).filter(server=account.server, user_id=actor.user_id)
    if others.filter(name=wanted).exclude(pk=account.pk).exists():
        raise InvalidRequestError("name", public_message=f"Another account of yours there is called “{wanted}”.")
    account.name = wanted
    with writing():
        account.save(update_fields=["name", "updated_at"])
        _record("link.changed", actor, account, {"fields": ["name"]})
    return account


def make_default(actor: Actor, account_id: UUID) -> LinkedAccount:
    """Use an own account unless a conversation says otherwise. Raises `NotFoundError`."""
    account = _own(actor, account_id)
    with writing():
        MCPServer.objects.as_system().select_for_update(of=("self",)).filter(pk=account.server_id).first()
        own = LinkedAccount.objects.visible_to(actor).filter(server=account.server, user_id=actor.user_id)
        own.filter(is_default=True).exclude(pk=account.pk).update(is_default=False)
        own.filter(pk=account.pk).update(is_default=True)
        _record("link.changed", actor, account, {"fields": ["is_default"]})
    account.is_default = True
    return account


async def disconnect(actor: Actor, account_id: UUID) -> Disconnected:
    """Revoke and forget an account: one's own, or as a manager of the organization anyone's. Raises `NotFoundError`.

    The row goes first, so that nobody can use it any more, whatever the authorization server then answers.
    """
    account = await in_rows(_take_out, actor, account_id)
    warning = await revoke(account)
    server = account.server
    return Disconnected(server.pk, server.title, account.name, account.user_id, warning)


def _take_out(actor: Actor, account_id: UUID) -> LinkedAccount:
    rows = LinkedAccount.objects.visible_to(actor).filter(pk=account_id)
    account: LinkedAccount | None = rows.select_related("server", "client").first()
    if account is None or (account.user_id != actor.user_id and not allows(actor, Action.MANAGE)):
        raise NotFoundError
    with writing():
        if not LinkedAccount.objects.as_system().filter(pk=account.pk).delete()[0]:
            raise NotFoundError
        if account.is_default:
            rest = LinkedAccount.objects.as_system().filter(server=account.server, user_id=account.user_id)
            following = rest.filter(state=LinkedAccount.State.READY).first() if account.user_id is not None else None
            if following is not None:
                LinkedAccount.objects.as_system().filter(pk=following.pk).update(is_default=True)
        _record("link.revoked", actor, account, {})
    return account


def _record(action: str, actor: Actor, account: LinkedAccount, details: dict[str, object]) -> None:
    audit.record(
        action,
        organization_id=actor.organization_id,
        actor_id=actor.user_id,
        via=audit.via_of(actor),
        target=Target("account", account.pk),
        person_id=account.user_id if account.user_id != actor.user_id else None,
        server_id=account.server_id,
        server=account.server.slug,
        account_id=account.pk,
        details=details,
    )
