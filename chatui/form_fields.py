"""Form fields of the admin: secrets that are only ever written, lists as lines, and tables of rows.

A stored secret is never part of a page: a form is told *that* something is stored, and says keep, replace or clear.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.template.loader import render_to_string
from django.utils.datastructures import MultiValueDict
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminTextareaWidget

MAX_ROWS = 500
Row = dict[str, Any]
Data = Mapping[str, Any]


class _OwnTemplate(forms.Widget):
    """A widget whose template is among the project's: Django's form renderer knows only those of packages."""

    def _render(self, template_name: str, context: dict[str, Any], renderer: object = None) -> SafeString:
        return mark_safe(render_to_string(template_name, context))


class SecretWidget(_OwnTemplate):
    """A password input that is never filled in, and a box to clear what is stored."""

    template_name = "admin/widgets/secret.html"
    stored = False

    def get_context(self, name: str, value: Any, attrs: Mapping[str, Any] | None) -> dict[str, Any]:
        context = super().get_context(name, None, dict(attrs or {}))
        context["widget"]["stored"] = self.stored
        return context

    def value_from_datadict(self, data: Data, files: MultiValueDict[str, Any], name: str) -> Row:
        return {"value": data.get(name) or "", "clear": f"{name}-clear" in data}

    def id_for_label(self, id_: str) -> str:
        return id_


class SecretField(forms.Field):
    """A secret text. Cleaned to the new value, `""` when cleared, else `stored`, which the form must set."""

    widget = SecretWidget

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("required", False)
        super().__init__(**kwargs)
        self._stored = ""

    @property
    def stored(self) -> str:
        return self._stored

    @stored.setter
    def stored(self, value: str) -> None:
        self._stored = value
        self.widget.stored = bool(value)

    def clean(self, value: Row) -> str:
        typed = str(value["value"]).strip()
        return typed or ("" if value["clear"] else self.stored)

    def has_changed(self, initial: Any, data: Row | None) -> bool:
        return bool(data and (data["value"] or (data["clear"] and self.stored)))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table of rows. `kind`: text, password, checkbox, or select (with `choices`)."""

    key: str
    label: Any
    kind: str = "text"
    choices: Sequence[tuple[str, Any]] = ()
    default: Any = ""


class RowsWidget(_OwnTemplate):
    """A table with one row per item and some blank ones; without script, saving gives new blank ones."""

    template_name = "admin/widgets/rows.html"
    extra = 2

    class Media:
        js = ["admin/rows.js"]

    def __init__(self, columns: Sequence[Column], attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs)
        self.columns = columns

    def rows_of(self, value: Any) -> list[Row]:
        return [item for item in value or () if isinstance(item, dict)]

    def get_context(self, name: str, value: Any, attrs: Mapping[str, Any] | None) -> dict[str, Any]:
        context = super().get_context(name, None, dict(attrs or {}))
        rows = self.rows_of(value) + [{} for _ in range(self.extra)]
        context["widget"] |= {
            "columns": self.columns,
            "count": len(rows),
            "rows": [{"stored": row.get("stored"), "cells": self._cells(name, i, row)} for i, row in enumerate(rows)],
        }
        return context

    def _cells(self, name: str, index: int, row: Row) -> Iterator[Row]:
        for column in self.columns:
            value = row.get(column.key, column.default)
            shown = "" if column.kind == "password" else value
            yield {"column": column, "name": f"{name}-{index}-{column.key}", "value": shown}

    def value_from_datadict(self, data: Data, files: MultiValueDict[str, Any], name: str) -> list[Row]:
        count = str(data.get(f"{name}-rows", ""))
        return [self._row(data, f"{name}-{i}-") for i in range(min(int(count) if count.isdecimal() else 0, MAX_ROWS))]

    def _row(self, data: Data, prefix: str) -> Row:
        return {
            column.key: prefix + column.key in data
            if column.kind == "checkbox"
            else str(data.get(prefix + column.key, "")).strip()
            for column in self.columns
        }

    def value_omitted_from_data(self, data: Data, files: object, name: str) -> bool:
        return f"{name}-rows" not in data

    def id_for_label(self, id_: str) -> str:
        return ""


class _RowsField(forms.Field):
    """What the fields below share: rows in, one value out; `initial` is such a value."""

    columns: Sequence[Column] = ()
    key = ""  # the column without which a row is blank

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("required", False)
        super().__init__(widget=RowsWidget(self.columns), **kwargs)

    def filled(self, rows: Sequence[Row]) -> list[Row]:
        return [row for row in rows if row.get(self.key)]

    def to_value(self, rows: Sequence[Row]) -> Any:
        raise NotImplementedError

    def to_rows(self, value: Any) -> list[Row]:
        raise NotImplementedError

    def clean(self, value: Sequence[Row]) -> Any:
        return self.to_value(self.filled(value))

    def prepare_value(self, value: Any) -> Any:
        return value if _is_rows(value, self.columns) else self.to_rows(value)

    def has_changed(self, initial: Any, data: Sequence[Row] | None) -> bool:
        try:
            return bool(self.to_value(self.filled(data or ())) != self.to_value(self.to_rows(initial)))
        except ValidationError:
            return True


def _is_rows(value: Any, columns: Sequence[Column]) -> bool:
    """Whether `value` is what the widget read from a submitted form."""
    keys = {column.key for column in columns}
    return isinstance(value, list) and all(isinstance(row, dict) and row.keys() == keys for row in value)


def _joined(rule: Row) -> str:
    """The approvers of a rule, or of a row, as they are typed."""
    names = rule.get("approvers") or ()
    return names if isinstance(names, str) else ", ".join(names)


class RulesField(_RowsField):
    """`[{tool: glob, do: allow|ask|deny, remember?, edit?, approvers?}]`, in order: the first match decides."""

    columns = (
        Column("tool", _("Tools (a name or a pattern such as get_*)")),
        Column("do", _("Decision"), "select", [("allow", _("allow")), ("ask", _("ask")), ("deny", _("deny"))], "ask"),
        Column("approvers", _("Who is asked (user names, group:name; empty: whose call it is)")),
        Column("remember", _("“Always allow” may be answered"), "checkbox", default=True),
        Column("edit", _("Arguments may be changed"), "checkbox", default=False),
    )
    key = "tool"

    def to_value(self, rows: Sequence[Row]) -> list[Row]:
        for number, row in enumerate(rows, start=1):
            if row["do"] not in ("allow", "ask", "deny"):
                raise ValidationError(_("Rule %(number)s: choose allow, ask or deny."), params={"number": number})
        return [self._rule(row) for row in rows]

    @staticmethod
    def _rule(row: Row) -> Row:
        """What is as it is without saying so is left out."""
        rule: Row = {"tool": row["tool"], "do": row["do"]}
        if not row["remember"]:
            rule["remember"] = False
        if row["edit"]:
            rule["edit"] = True
        names = [name.strip() for name in row["approvers"].split(",") if name.strip()]
        return rule | ({"approvers": names} if names else {})

    def to_rows(self, value: Any) -> list[Row]:
        return [{"remember": True, "edit": False} | rule | {"approvers": _joined(rule)} for rule in value or ()]

    def prepare_value(self, value: Any) -> Any:
        return self.to_rows(value)  # a rule with every key looks like a row


class VariablesField(_RowsField):
    """`{NAME: {title, description, sensitive}}`: what each user enters for themselves."""

    columns = (
        Column("name", _("Name")),
        Column("title", _("Title")),
        Column("description", _("Description")),
        Column("sensitive", _("Secret"), "checkbox", default=True),
    )
    key = "name"

    def to_value(self, rows: Sequence[Row]) -> dict[str, Row]:
        value: dict[str, Row] = {}
        for row in rows:
            if row["name"] in value:
                raise ValidationError(_("“%(name)s” is declared twice."), params={"name": row["name"]})
            value[row["name"]] = {key: row[key] for key in ("title", "description", "sensitive")}
        return value

    def to_rows(self, value: Any) -> list[Row]:
        blank = {"title": "", "description": "", "sensitive": True}
        return [{"name": name} | blank | declared for name, declared in (value or {}).items()]


class SecretMap(dict[str, str]):
    """Names and secrets; `typed` are the names whose value was entered just now, the others were stored."""

    def __init__(self, values: Mapping[str, str], typed: frozenset[str]) -> None:
        super().__init__(values)
        self.typed = typed

    def only_typed(self) -> SecretMap:
        return SecretMap({name: value for name, value in self.items() if name in self.typed}, self.typed)


class SecretMapField(_RowsField):
    """Headers or environment: `{name: secret}`. `stored`, which the form must set, is kept row by row."""

    columns = (
        Column("name", _("Name")),
        Column("value", _("Value"), "password"),
        Column("remove", _("Remove"), "checkbox"),
    )
    key = "name"
    stored: Mapping[str, str] = {}

    def to_value(self, rows: Sequence[Row]) -> SecretMap:
        values: dict[str, str] = {}
        typed = set()
        for row in rows:
            name = row["name"]
            if name in values:
                raise ValidationError(_("“%(name)s” is given twice."), params={"name": name})
            if row["remove"]:
                continue
            if row["value"]:
                typed.add(name)
            elif name not in self.stored:
                raise ValidationError(_("Enter a value for “%(name)s”."), params={"name": name})
            values[name] = row["value"] or self.stored[name]
        return SecretMap(values, frozenset(typed))

    def to_rows(self, value: Any) -> list[Row]:
        return [{"name": name, "value": "", "remove": False} for name in value or ()]

    def prepare_value(self, value: Any) -> list[Row]:
        rows: list[Row] = super().prepare_value(value)
        return [row | {"stored": row["name"] in self.stored} for row in self.filled(rows)]


class LinesWidget(UnfoldAdminTextareaWidget):  # type: ignore[misc]  # unfold has no type stubs
    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__({"rows": 4, "spellcheck": "false"} | (attrs or {}))


def _as_lines(items: list[str]) -> str:
    """One item per line; JSON where an item could not be read back from a line of its own."""
    awkward = any(item != item.strip() or not item or len(item.splitlines()) > 1 for item in items)
    starts_like_json = bool(items) and items[0].startswith("[")
    return json.dumps(items, ensure_ascii=False) if awkward or starts_like_json else "\n".join(items)


class LinesField(forms.CharField):
    """A list of texts, one per line; a JSON list of texts is taken too."""

    widget = LinesWidget

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("required", False)
        super().__init__(**kwargs)

    def prepare_value(self, value: Any) -> Any:
        return _as_lines(value) if isinstance(value, list) else value

    def clean(self, value: Any) -> Any:
        text = str(super().clean(value))
        if not text.lstrip().startswith("["):
            return [line.strip() for line in text.splitlines() if line.strip()]
        try:
            items = json.loads(text)
        except ValueError:
            items = None
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise ValidationError(_("Enter one text per line, or a JSON list of texts."))
        return items

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.clean(data) != (initial or []))
        except ValidationError:
            return True
