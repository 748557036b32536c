"""Django's registration of this app."""

from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.apps import AppConfig


class ConversationsConfig(AppConfig):
    name = "conversations"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from accounts.signals import rights_changed

        rights_changed.connect(_look_again, dispatch_uid="sockets-look-again")


def _look_again(user_id: UUID, **_: Any) -> None:
    """Have the person's open sockets look whether they may still be open: now, not at their next look."""
    from conversations import hints  # late: a command that changes nobody's rights need not load the frames

    async_to_sync(hints.recheck_user)(user_id)
