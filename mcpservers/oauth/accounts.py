"""The accounts of a person at a server: which there are, which one is used, their names, and their end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from accounts import audit
from accounts.audit import Target
from accounts.policy import Action, allows
from chatui.errors import InvalidRequestError, NotFoundError
from chatui.rows import in_rows, writing
from mcpservers.models import LinkedAccount, MCPServer
from mcpservers.oauth import machine, revocations
from mcpservers.oauth.identity import tidy_name
from mcpservers.oauth.revocation import Revocable, Told, revocable, tell
from mcpservers.oauth.whose import Whose, whose_account

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


def is_usable(account: LinkedAccount) -> bool:
    """Whether it works as far as we know: it is linked, and to the definition as it stands."""
    return account.works(account.server.oauth_binding())


def choose(actor: Actor, server: MCPServer, account_id: UUID | None = None) -> LinkedAccount | None:
    """The account to act with: the one that was chosen, else the default; of the organization for app scope.

    One query. None where there is none and where the chosen one is gone: another one is never taken in its place. It
    may need to be linked again (`is_usable`), which its tokens say too.
    """
    if whose_account(server) is Whose.ORGANIZATION:
        return machine.account_for(server)
    rows = LinkedAccount.objects.visible_to(actor).filter(server=server, user_id=actor.user_id)
    rows = rows.filter(is_default=True) if account_id is None else rows.filter(pk=account_id)
    account: LinkedAccount | None = rows.first()
    if account is not None:
        account.server = server
    return account


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
        MCPServer.objects.as_system().select_for_update(no_key=True).filter(pk=account.server_id).first()
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
    account, found = await in_rows(_take_out, actor, account_id)
    told = Told(found) if isinstance(found, str) else await tell(found)
    if told.again and isinstance(found, Revocable):
        await in_rows(revocations.after_failure, account, found)
    server = account.server
    return Disconnected(server.pk, server.title, account.name, account.user_id, told.warning)


def _take_out(actor: Actor, account_id: UUID) -> tuple[LinkedAccount, Revocable | str]:
    rows = LinkedAccount.objects.visible_to(actor).filter(pk=account_id)
    account: LinkedAccount | None = rows.select_related("server", "client").first()
    if account is None or (account.user_id != actor.user_id and not allows(actor, Action.MANAGE)):
        raise NotFoundError
    found = revocable(account, account.server)
    with writing():
        if not _deleted(account):
            raise NotFoundError
        if account.is_default:
            rest = LinkedAccount.objects.as_system().filter(server=account.server, user_id=account.user_id)
            following = rest.filter(state=LinkedAccount.State.READY).first() if account.user_id is not None else None
            if following is not None:
                LinkedAccount.objects.as_system().filter(pk=following.pk).update(is_default=True)
        _record("link.revoked", actor, account, {})
    return account, found


def _deleted(account: LinkedAccount) -> bool:
    going: Any = LinkedAccount(pk=account.pk)
    going.revoked_by_hand = True  # see `revocations`: the person waits for it, and is told
    return bool(going.delete()[0])


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
