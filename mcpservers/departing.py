"""Servers that are deleted, by whichever door: with their organization or their owner they go without another word."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db import transaction
from django.db.models.signals import post_delete

from mcpservers.models import MCPServer, OwnServer


def watch() -> None:
    """Let every process end what it holds to a server whose row is deleted, once that is committed."""
    for model in (MCPServer, OwnServer):
        post_delete.connect(_deleted, sender=model, dispatch_uid=f"server-deleted-{model.__name__}")


def _deleted(instance: MCPServer, **_: Any) -> None:
    from mcpservers import peers  # which is more than a command needs that only starts

    transaction.on_commit(partial(peers.server_changed, instance.pk))
