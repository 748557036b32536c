"""Wanted values against stored rows: what differs is noted in the plan, checked, and written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models
from pydantic import BaseModel

from accounts import approvers
from accounts.models import Group, Organization, User
from accounts.rule_fields import RulesField
from agents.models import ModelProfile
from chatui.fields import EncryptedJSONField, EncryptedTextField
from conversations.configuration.plan import Action, Change, FieldChange, Plan
from conversations.configuration.problems import Path, Problem
from conversations.configuration.reading import Document
from mcpservers.models import MCPServer

M = TypeVar("M", bound=models.Model)
Findings = Iterable[tuple[str, str]]


def is_secret(model: type[models.Model], name: str) -> bool:
    return isinstance(model._meta.get_field(name), EncryptedTextField | EncryptedJSONField) or name == "password"


def wanted_values(model: type[models.Model], section: BaseModel, names: Iterable[str]) -> dict[str, Any]:
    """The values of `section`'s keys `names`, as the model stores them; absent and null are the field's default."""
    given = section.model_dump(mode="json", include=set(names))
    return {name: default_of(model, name) if given[name] is None else given[name] for name in names}


def default_of(model: type[models.Model], name: str) -> Any:
    stored = model._meta.get_field(name)
    assert isinstance(stored, models.Field)
    return stored.get_default()


@dataclass
class Reconciler:
    """Collects problems instead of stopping at the first; whoever made it rolls back if there are any."""

    document: Document
    plan: Plan = field(default_factory=Plan)
    problems: list[Problem] = field(default_factory=list)
    broken: set[Path] = field(default_factory=set)  # objects of the file that could not be made

    def problem(self, path: Path, message: str) -> None:
        self.problems.append(Problem(path, message))

    def put(
        self,
        path: Path,
        row: M | None,
        new: M,
        wanted: Mapping[str, Any],
        findings: Any = None,
    ) -> M | None:
        """Make `row` (or `new`, if None) hold `wanted`; None if that is impossible, with the problems noted.

        `findings`, called with the changed row, yields (field, message) of what the model's own checks do not know.
        Nothing is written when nothing differs.
        """
        target = new if row is None else row
        changes = list(self._differences(path, target, wanted))
        if row is not None and not changes:
            return row
        for name, value in wanted.items():
            setattr(target, name, value)
        before = len(self.problems)
        self._check(path, target, findings(target) if findings else ())
        if len(self.problems) > before:
            self.broken.add(path)
            return None
        target.save()
        self.note("create" if row is None else "change", path, changes)
        return target

    def note(self, action: Action, path: Path, changes: Iterable[FieldChange] = ()) -> None:
        """Put a change into the plan; one that follows another of the same object is part of that."""
        last = self.plan.changes[-1] if self.plan.changes else None
        if last is not None and last.path == path:
            self.plan.changes[-1] = Change(last.action, path, (*last.fields, *changes))
        else:
            self.plan.changes.append(Change(action, path, tuple(changes)))

    def delete(self, path: Path, row: models.Model) -> None:
        row.delete()
        self.note("delete", path)

    def _differences(self, path: Path, target: models.Model, wanted: Mapping[str, Any]) -> Iterator[FieldChange]:
        """What of `wanted` the row does not hold; a new row holds its defaults."""
        for name, after in wanted.items():
            stored = _stored(target, name)
            is_rules = isinstance(target._meta.get_field(name), RulesField)
            if stored == (approvers.bound(_organization_of(target), after) if is_rules else after):
                continue
            if is_rules:
                stored = approvers.named(stored)
            secret = is_secret(type(target), name) or self.document.came_from_environment((*path, *_place(name)))
            shown = (None, None) if secret else (_plain(stored), _plain(after))
            yield FieldChange(".".join(_place(name)), shown[0], shown[1], secret=secret)

    def _check(self, path: Path, row: models.Model, findings: Findings) -> None:
        try:
            row.full_clean()
        except ValidationError as error:
            for name, messages in error.message_dict.items():
                place = path if name in (NON_FIELD_ERRORS, "slug", "username") else (*path, *_place(name))
                for message in messages:
                    self.problem(place, message)
        for name, message in findings:
            self.problem((*path, name), message)


# Where the file has what the row keeps under another name.
_PLACES = {
    "input_price": ("prices", "input"),
    "output_price": ("prices", "output"),
    "is_superuser": ("superuser",),
}


def _place(name: str) -> tuple[str, ...]:
    return _PLACES.get(name, (name,))


def _stored(row: models.Model, name: str) -> Any:
    column = row._meta.get_field(name)
    if isinstance(column, models.ForeignKey) and getattr(row, column.attname) is None:
        return None  # a new row: reading the relation would raise
    return getattr(row, name)


def _organization_of(row: Any) -> UUID:
    id: UUID = row.organization_id
    return id


def _plain(value: Any) -> Any:
    """What the plan shows: an object by the name that the file has for it."""
    if isinstance(value, ModelProfile):
        return f"{value.endpoint.slug}/{value.slug}"
    return str(value) if isinstance(value, models.Model) else value


Surplus = list[tuple[Path, models.Model]]  # stored rows that the file does not name, in the order to delete them


@dataclass
class Scope:
    """One organization while its section is applied: what later sections may refer to, as it is found."""

    reconciler: Reconciler
    organization: Organization
    path: Path
    members: dict[str, User] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    profiles: dict[str, ModelProfile] = field(default_factory=dict)  # by "endpoint/model"
    servers: dict[str, MCPServer] = field(default_factory=dict)
    broken: set[tuple[str, str]] = field(default_factory=set)  # (section, name) of the file that could not be made

    def find(self, section: str, name: str, known: Mapping[str, M], path: Path, message: str) -> M | None:
        """`known[name]`, else None with `message` noted, unless what is missing is a problem noted already."""
        found = known.get(name)
        if found is None and (section, name) not in self.broken:
            self.reconciler.problem(path, message)
        return found
