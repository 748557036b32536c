"""Who redeems a token: a guarded update gives one process ten seconds, and its write counts only at the same version.

No lock is held and no transaction is open while the network is waited for. The clock is the database's, where the
database is one that several machines share.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import connection
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from chatui.rows import writing

SECONDS = 10.0
REDEEM_SECONDS = 8.0  # within which a redemption ends, so that a lease outlives it
WAIT_SECONDS = 5.0  # for somebody else's redemption
LOOK_SECONDS = 0.1


def lease(rows: QuerySet[Any, Any], version: int) -> bool:
    """Whether we may redeem: for the row of `rows` at `version` that nobody else redeems now."""
    now: Any = Now() if connection.vendor == "postgresql" else timezone.now()
    free = Q(refreshing_until=None) | Q(refreshing_until__lt=now)
    with writing():
        taken = rows.filter(free, version=version).update(refreshing_until=now + timedelta(seconds=SECONDS))
    return bool(taken)


def settle(rows: QuerySet[Any, Any], version: int, **values: Any) -> bool:
    """Write what redeeming gave, and give the lease back; False if the row was changed by somebody else meanwhile."""
    with writing():
        written = rows.filter(version=version).update(**values, version=F("version") + 1, refreshing_until=None)
    return bool(written)


def give_back(rows: QuerySet[Any, Any], version: int, **values: Any) -> None:
    """End the lease without new tokens."""
    with writing():
        rows.filter(version=version).update(**values, refreshing_until=None)
