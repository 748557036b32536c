"""Servers and accounts that go, by whichever door: with their organization or person they go without another word."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db import transaction
from django.db.models.signals import post_delete, post_save, pre_delete, pre_save

from mcpservers.models import LinkedAccount, MCPServer, OwnServer


def watch() -> None:
    """Let every process end what it holds to a server that is deleted, and revoke accounts that go or stay behind."""
    for model in (MCPServer, OwnServer):
        post_delete.connect(_deleted, sender=model, dispatch_uid=f"server-deleted-{model.__name__}")
        pre_save.connect(_moves, sender=model, dispatch_uid=f"server-moves-{model.__name__}")
        post_save.connect(_moved, sender=model, dispatch_uid=f"server-moved-{model.__name__}")
    pre_delete.connect(_account_goes, sender=LinkedAccount, dispatch_uid="account-goes")


def _deleted(instance: MCPServer, **_: Any) -> None:
    from mcpservers import peers  # which is more than a command needs that only starts

    transaction.on_commit(partial(peers.server_changed, instance.pk))


def _account_goes(**signal: Any) -> None:
    from mcpservers.oauth import revocations

    revocations.account_goes(**signal)


def _moves(**signal: Any) -> None:
    from mcpservers.oauth import revocations

    revocations.server_moves(**signal)


def _moved(**signal: Any) -> None:
    from mcpservers.oauth import revocations

    revocations.server_moved(**signal)
