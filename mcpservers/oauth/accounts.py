"""The accounts of a person at a server: which there are, which one is used, their names, and their end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from mcpservers.models import LinkedAccount, MCPServer

if TYPE_CHECKING:
    from accounts.actors import Actor


@dataclass(frozen=True, slots=True)
class Disconnected:
    """What was disconnected; `warning` says what the authorization server did not do, for the person."""

    server_id: UUID
    server_title: str
    account: str
    warning: str = ""


def accounts_of(actor: Actor, server_id: UUID | None = None) -> list[LinkedAccount]:
    """The actor's own accounts at a server (at every server without one), oldest first, with their servers."""
    raise NotImplementedError


def choose(actor: Actor, server: MCPServer, account_id: UUID | None = None) -> LinkedAccount | None:
    """The account to act with: the one that was chosen, else the default; of the organization for app scope.

    None where there is none, where the chosen one is gone, or where it belongs to another definition.
    """
    raise NotImplementedError


def rename(actor: Actor, account_id: UUID, name: str) -> LinkedAccount:
    """Give an own account a name. Raises `NotFoundError`, `InvalidRequestError`."""
    raise NotImplementedError


def make_default(actor: Actor, account_id: UUID) -> LinkedAccount:
    """Use an own account unless a conversation says otherwise. Raises `NotFoundError`."""
    raise NotImplementedError


async def disconnect(actor: Actor, account_id: UUID) -> Disconnected:
    """Revoke and forget an account: one's own, or as a manager of the organization anyone's. Raises `NotFoundError`."""
    raise NotImplementedError
