"""Recording what was done: one INSERT in the caller's transaction, so that an act and its entry are kept or lost alike.

An entry names people by id alone, and holds names of fields instead of what is in them: nothing secret, nothing
personal. What the arguments of a tool call were is told by their hash; they are kept, encrypted, where the
organization wants that (`audit_bodies`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import connection

from accounts.models import AuditAction, AuditRecord
from chatui.text import clean, clean_json, shorten

if TYPE_CHECKING:
    from accounts.actors import Actor

Via = AuditRecord.Via
BATCH = 500  # entries of one statement
BODY_CHARACTERS = 65_536  # kept of the arguments, and of the result: each
_LIMITS = {"agent": 64, "server": 64, "tool": 200, "reason": 500}  # characters


# --- Who acts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Doer:
    """Who acts, and through which door; `user_id` is None for the operator at a command line and for the system."""

    user_id: UUID | None = None
    via: AuditRecord.Via = Via.SYSTEM


_doer: ContextVar[Doer | None] = ContextVar("audit_doer", default=None)


@contextmanager
def acting(user_id: UUID | None, via: AuditRecord.Via) -> Iterator[None]:
    """What is recorded meanwhile, in this context, is by this person (None: nobody that is known) through `via`."""
    token = _doer.set(Doer(user_id, via))
    try:
        yield
    finally:
        _doer.reset(token)


def doer() -> Doer | None:
    """Who acts in this context; None where nobody has said."""
    return _doer.get()


def via_of(actor: Actor) -> AuditRecord.Via:
    """The door of an actor: the one that this context names (see `acting`), else a key's or a browser's."""
    who = doer()
    if who is not None:
        return who.via
    return Via.WEB if actor.scopes is None else Via.KEY


# --- What was done ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """What it was done to: `kind` is a word of ours ("server"), `name` a slug, never the name of a person."""

    kind: str
    id: UUID | str | None = None
    name: str = ""


def record(
    action: str,
    *,
    organization_id: UUID | None,
    actor_id: UUID | None = None,
    via: AuditRecord.Via | None = None,
    target: Target | None = None,
    person_id: UUID | None = None,
    details: Mapping[str, Any] | None = None,
    **fields: Any,
) -> None:
    """Add one entry: one statement, in the caller's transaction.

    `action` is an `AuditAction`. Without `actor_id` it is who acts in this context (see `acting`). `fields` are the
    other columns of `AuditRecord` (server_id, server, account_id, reason, status, …). `details` is small JSON: names of
    fields, roles, counts. Raises `ValueError` for an action that is unknown.
    """
    write([entry(action, organization_id, actor_id, via, target, person_id, details, **fields)])


def entry(
    action: str,
    organization_id: UUID | None,
    actor_id: UUID | None = None,
    via: AuditRecord.Via | None = None,
    target: Target | None = None,
    person_id: UUID | None = None,
    details: Mapping[str, Any] | None = None,
    **fields: Any,
) -> AuditRecord:
    """An entry that is not stored yet, for `write`; parameters as `record`'s."""
    who = doer()
    if actor_id is None and who is not None:
        actor_id = who.user_id
    if via is None:
        via = who.via if who is not None else Via.SYSTEM if actor_id is None else Via.WEB
    if target is not None:
        fields |= {
            "object_type": target.kind,
            "object_id": "" if target.id is None else str(target.id),
            "object_name": shorten(clean(target.name), 200),
        }
    for name, limit in _LIMITS.items():
        if fields.get(name):
            fields[name] = shorten(clean(fields[name]), limit)
    return AuditRecord(
        action=AuditAction(action),
        organization_id=organization_id,
        actor_id=actor_id,
        via=via,
        person_id=person_id,
        details=clean_json(dict(details or {})),
        **fields,
    )


def write(records: Sequence[AuditRecord]) -> None:
    """Store entries: one statement for up to `BATCH` of them."""
    fields = AuditRecord._meta.local_concrete_fields
    row = f"({', '.join(['%s'] * len(fields))})"
    for start in range(0, len(records), BATCH):
        batch = records[start : start + BATCH]
        values = [
            field.get_db_prep_save(getattr(each, field.attname), connection) for each in batch for field in fields
        ]
        with connection.cursor() as cursor:
            cursor.execute(f"{_insert()} VALUES {', '.join([row] * len(batch))}", values)


@cache
def _insert() -> str:
    """Plain SQL, written once: Django takes longer to write this statement than a database to follow it."""
    quote = connection.ops.quote_name
    columns = ", ".join(quote(str(field.column)) for field in AuditRecord._meta.local_concrete_fields)
    return f"INSERT INTO {quote(AuditRecord._meta.db_table)} ({columns})"


# --- Arguments -------------------------------------------------------------------------------------------------------


def arguments_hash(arguments: Any) -> str:
    """SHA-256 (hex) of the arguments as canonical JSON: keys sorted, no spaces, UTF-8. Text is hashed as it is.

    Anybody who has the arguments can compute it again: `json.dumps(arguments, sort_keys=True, ensure_ascii=False,
    separators=(",", ":"))`.
    """
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(arguments.encode("utf-8", "replace")).hexdigest()


def body_of(arguments: Any, result: str, limit: int = BODY_CHARACTERS) -> dict[str, Any]:
    """What is kept of a call, encrypted, where the organization wants that: at most `limit` characters of each."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    cut = [name for name, size in (("arguments", len(text)), ("result", len(result))) if size > limit]
    kept = {"arguments": text[:limit] if "arguments" in cut else arguments, "result": result[:limit]}
    return kept | ({"cut": cut} if cut else {})
