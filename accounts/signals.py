"""News of this app: what lets a person in has changed. It only reports; every door looks for itself, every time."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models.signals import post_delete, post_save
from django.dispatch import Signal

from accounts.models import ApiKey, Membership, User

# Sent after commit, with `user_id`: a session was ended, a key revoked, a membership or a password changed.
rights_changed = Signal()


def tell(user_id: UUID) -> None:
    """Report that what lets this person in has changed, once the transaction is committed."""
    transaction.on_commit(partial(rights_changed.send_robust, sender=User, user_id=user_id))


def watch() -> None:
    """Report what is saved and deleted of the rows that let people in; who changes them in bulk tells it."""
    for model in (User, Membership, ApiKey):
        post_save.connect(_saved, sender=model, dispatch_uid=f"rights-saved-{model.__name__}")
        post_delete.connect(_deleted, sender=model, dispatch_uid=f"rights-deleted-{model.__name__}")


def _saved(instance: Any, created: bool = False, update_fields: Any = None, **_: Any) -> None:
    if not created and set(update_fields or ()) != {"last_login"}:
        tell(_person(instance))


def _deleted(instance: Any, **_: Any) -> None:
    tell(_person(instance))


def _person(instance: User | Membership | ApiKey) -> UUID:
    return instance.pk if isinstance(instance, User) else instance.user_id
