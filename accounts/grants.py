"""Grants as values: those of an object are read in one column with its row, and are no models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet

from accounts.actors import Actor
from chatui.gathered import Gathered


@dataclass(frozen=True, slots=True)
class Grant:
    """A stored grant (a `policy.GrantRow`); with `tool`, a glob, on some tools of a server."""

    whole_organization: bool
    group_id: UUID | None
    user_id: UUID | None
    deny: bool
    tool: str = ""


def gathered(grants: QuerySet[Any]) -> Gathered:
    """The column of `grants`, which `grants_of` reads."""
    columns = {"whole": "whole_organization", "group": "group_id", "user": "user_id", "deny": "deny"}
    if any(field.name == "tool" for field in grants.model._meta.fields):
        columns["tool"] = "tool"
    return Gathered(grants, **columns)


def gathered_for(actor: Actor, grants: QuerySet[Any]) -> Gathered:
    """The same of those that say something to `actor`, for `grants_for`: of the actor's groups each kind but once."""
    concerning = Q(whole_organization=True) | Q(group__in=actor.groups) | Q(user_id=actor.user_id)
    of_group = ExpressionWrapper(Q(group__isnull=False), BooleanField())
    columns = {"whole": "whole_organization", "user": "user_id", "deny": "deny", "tool": "tool"}
    return Gathered(grants.filter(concerning).distinct(), of_group=of_group, **columns)


def grants_for(actor: Actor, column: Iterable[Mapping[str, Any]]) -> tuple[Grant, ...]:
    """Whichever of the actor's groups it was is not told: one of them stands for all."""
    group = next((id.hex for id in actor.groups), None)
    return tuple(
        _grant(row["whole"], group if row["of_group"] else None, row["user"], row["deny"], row["tool"])
        for row in column
    )


def grants_of(column: Iterable[Mapping[str, Any]]) -> tuple[Grant, ...]:
    return tuple(_grant(row["whole"], row["group"], row["user"], row["deny"], row.get("tool") or "") for row in column)


@lru_cache(maxsize=4096)
def _grant(whole: int, group: str | None, user: str | None, deny: int, tool: str) -> Grant:
    """Each once: to read an id takes longer than anything else here."""
    return Grant(
        bool(whole), None if group is None else UUID(group), None if user is None else UUID(user), bool(deny), tool
    )
