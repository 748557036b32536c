"""The form field of an organization's budgets: a row for each, with whose it is, whom it names, and its amounts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from django import forms
from django.core.exceptions import ValidationError
from django.template.loader import render_to_string
from django.utils.datastructures import MultiValueDict
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy as _

from accounts import budget_subjects
from accounts.budgets import KEYS, ONLY

Budgets = list[dict[str, Any]]
Row = dict[str, str]  # as it is typed; `remove` is "on" where the box is checked
Errors = dict[tuple[int, str], list[str]]  # by row and input; "" is the row as a whole

WHOSE = (
    ("organization", _("The whole organization")),
    ("group", _("Each group")),
    ("user", _("Each user")),
    ("agent", _("Each agent")),
)
NAMED = {"group": _("Groups"), "user": _("Users"), "agent": _("Agents")}
AMOUNTS = {
    "tokens_per_day": _("Tokens per day"),
    "tokens_per_month": _("Tokens per month"),
    "cost_per_day": _("Cost per day"),
    "cost_per_month": _("Cost per month"),
    "tool_calls_per_day": _("Tool calls per day"),
    "requests_per_minute": _("Questions per minute"),
    "running_turns": _("Answers at once"),
}
assert tuple(AMOUNTS) == KEYS
MAX_ROWS = 90  # Django takes 1,000 inputs of one form; with more budgets the page tells them, and a file changes them


class BudgetsWidget(forms.Widget):
    """A group of inputs for each budget, and one blank one; without script, saving gives a new blank one."""

    template_name = "admin/widgets/budgets.html"

    class Media:
        js = ["admin/rows.js"]
        css = {"all": ["admin/budgets.css"]}

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs)
        self.errors: Errors = {}

    def _render(self, template_name: str, context: dict[str, Any], renderer: object = None) -> SafeString:
        return mark_safe(render_to_string(template_name, context))  # among the project's: forms know only packages'

    def get_context(self, name: str, value: Any, attrs: Mapping[str, Any] | None) -> dict[str, Any]:
        context = super().get_context(name, None, dict(attrs or {}))
        rows = list(value or ())
        filled = len(rows)
        if not rows or is_filled(rows[-1]):
            rows.append({})
        context["widget"] |= {
            "count": len(rows),
            "whose": WHOSE,
            "rows": [self._shown(name, index, row, index < filled) for index, row in enumerate(rows)],
        }
        return context

    def _shown(self, name: str, index: int, row: Row, stored: bool) -> dict[str, Any]:
        def cell(key: str, label: Any) -> dict[str, Any]:
            return {
                "name": f"{name}-{index}-{key}",
                "label": label,
                "value": row.get(key, ""),
                "errors": self.errors.get((index, key), ()),
                "money": key.startswith("cost"),
            }

        return {
            "number": index + 1,
            "stored": stored and is_filled(row),
            "per": cell("per", _("Whose")) | {"value": row.get("per") or "user"},
            "only": cell(ONLY, _("Only these")),
            "gone": [name for name in names_of(row) if budget_subjects.is_gone(name)],
            "remove": cell("remove", _("Remove")),
            "amounts": [cell(key, label) for key, label in AMOUNTS.items()],
            "errors": self.errors.get((index, ""), ()),
        }

    def value_from_datadict(self, data: Mapping[str, Any], files: MultiValueDict[str, Any], name: str) -> list[Row]:
        count = str(data.get(f"{name}-rows", ""))
        number = min(int(count) if count.isdecimal() else 0, 2 * MAX_ROWS)
        keys = ("per", ONLY, *AMOUNTS, "remove")
        return [{key: str(data.get(f"{name}-{index}-{key}", "")).strip() for key in keys} for index in range(number)]

    def value_omitted_from_data(self, data: Mapping[str, Any], files: object, name: str) -> bool:
        return f"{name}-rows" not in data

    def id_for_label(self, id_: str) -> str:
        return ""


def is_filled(row: Row) -> bool:
    return any(row.get(key) for key in (ONLY, *AMOUNTS))


def names_of(row: Row) -> list[str]:
    return [name.strip() for name in row.get(ONLY, "").split(",") if name.strip()]


class BudgetsField(forms.Field):
    """Stored budgets in and out; people see names. The form must set `organization_id`, and `stored`."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("required", False)
        super().__init__(widget=BudgetsWidget(), **kwargs)
        self.organization_id: UUID = uuid4()  # of a new one: there is nobody yet whom a budget could name
        self.stored: Budgets = []

    def prepare_value(self, value: Any) -> list[Row]:
        if value and "remove" in value[0]:  # as it was submitted
            return list(value)
        return [_row(budget) for budget in budget_subjects.shown(self.organization_id, value or ())]

    def clean(self, value: Sequence[Row]) -> Budgets:
        kept = {index: row for index, row in enumerate(value) if is_filled(row) and not row["remove"]}
        if len(value) > MAX_ROWS + 1:
            raise ValidationError(
                _("More than %(number)d budgets are not edited here: use a configuration file."),
                params={"number": MAX_ROWS},
            )
        stored, found = budget_subjects.resolved(
            self.organization_id, [_entered(row) for row in kept.values()], kept=self.stored
        )
        if not found:
            return stored
        places, errors = list(kept), Errors()
        for where, what in found:
            place = places[int(where[0])], str(where[1]) if len(where) > 1 else ""
            errors.setdefault(place, []).append(f"{what[:1].upper()}{what[1:]}.")
        assert isinstance(self.widget, BudgetsWidget)
        self.widget.errors = errors
        numbers = sorted({index + 1 for index, _key in errors})
        raise ValidationError(
            [_("Budget %(number)d: look at what is marked.") % {"number": number} for number in numbers]
        )

    def has_changed(self, initial: Any, data: Sequence[Row] | None) -> bool:
        entered = [_entered(row) for row in data or () if is_filled(row) and not row["remove"]]
        return entered != budget_subjects.shown(self.organization_id, initial or ())


def _row(budget: Mapping[str, Any]) -> Row:
    amounts = {key: str(budget[key]) for key in AMOUNTS if budget.get(key) is not None}
    return {"per": budget["per"], ONLY: ", ".join(budget.get(ONLY, ())), **amounts}


def _entered(row: Row) -> dict[str, Any]:
    """A row as a file would say it; what is no number stays as it was typed, to be refused by its place."""
    names = names_of(row)
    amounts = {key: _number(row[key]) for key in AMOUNTS if row[key]}
    return {"per": row["per"], **({ONLY: names} if row[ONLY] else {}), **amounts}


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def in_words(organization_id: UUID, budgets: Budgets) -> SafeString | str:
    """For who may look and not change, or where there are too many to be edited: a line for each budget."""
    whose = dict(WHOSE)

    def lines() -> Iterator[tuple[Any, str]]:
        for budget in budget_subjects.shown(organization_id, budgets):
            per = budget["per"]
            who = f"{NAMED[per]}: {', '.join(budget[ONLY])}" if ONLY in budget else whose[per]
            amounts = (f"{AMOUNTS[key]}: {budget[key]:,}" for key in AMOUNTS if budget.get(key) is not None)
            yield who, " · ".join(amounts)

    if not budgets:
        return "–"
    return format_html("<ul>{}</ul>", format_html_join("", "<li><strong>{}</strong> – {}</li>", lines()))
