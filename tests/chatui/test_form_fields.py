"""Fields of the admin's forms: what was stored never comes out, and what is typed is read as it was meant."""

from __future__ import annotations

from typing import Any

import pytest
from django import forms
from hypothesis import given
from hypothesis import strategies as st

from chatui.form_fields import LinesField, RulesField, SecretField, SecretMapField, VariablesField


class Example(forms.Form):
    key = SecretField()
    headers = SecretMapField()
    rules = RulesField()
    variables = VariablesField()
    lines = LinesField()


def example(data: dict[str, str] | None = None, *, key: str = "", headers: dict[str, str] | None = None) -> Example:
    stored = {"key": key, "headers": headers or {}}
    form = Example(data, initial=stored)
    form.fields["key"].stored = key
    form.fields["headers"].stored = headers or {}
    return form


def cleaned(form: Example) -> dict[str, Any]:
    assert form.is_valid(), form.errors
    return form.cleaned_data


def test_nothing_of_a_stored_secret_is_rendered() -> None:
    form = example(key="canary", headers={"X-Key": "canary"})
    assert "canary" not in str(form)
    assert "X-Key" in str(form)
    assert "Stored" in str(form)


def test_nothing_of_a_typed_secret_is_rendered_again() -> None:
    data = {"key": "canary", "headers-rows": "1", "headers-0-name": "X", "headers-0-value": "canary", "lines": "[1]"}
    form = example(data)
    assert not form.is_valid()
    assert "canary" not in str(form)
    assert 'value="X"' in str(form)


@pytest.mark.parametrize(
    ("data", "value", "changed"),
    [
        ({}, "old", False),
        ({"key": ""}, "old", False),
        ({"key": "new"}, "new", True),
        ({"key-clear": "on"}, "", True),
        ({"key": "new", "key-clear": "on"}, "new", True),
    ],
)
def test_a_secret_is_kept_replaced_or_cleared(data: dict[str, str], value: str, changed: bool) -> None:
    form = example(data, key="old")
    assert cleaned(form)["key"] == value
    assert ("key" in form.changed_data) is changed


def test_a_form_sent_without_the_table_keeps_nothing_it_did_not_name() -> None:
    assert cleaned(example({}, headers={"A": "1"}))["headers"] == {}


def test_rows_of_secrets_are_kept_replaced_added_and_removed() -> None:
    data = {
        "headers-rows": "4",
        "headers-0-name": "Kept",
        "headers-1-name": "Replaced",
        "headers-1-value": "new",
        "headers-2-name": "Removed",
        "headers-2-remove": "on",
        "headers-3-name": "Added",
        "headers-3-value": "added",
    }
    form = example(data, headers={"Kept": "k", "Replaced": "r", "Removed": "x"})
    value = cleaned(form)["headers"]
    assert value == {"Kept": "k", "Replaced": "new", "Added": "added"}
    assert value.only_typed() == {"Replaced": "new", "Added": "added"}
    assert "headers" in form.changed_data


def test_unchanged_rows_are_no_change() -> None:
    form = example({"headers-rows": "2", "headers-0-name": "A"}, headers={"A": "1"})
    assert cleaned(form)["headers"] == {"A": "1"}
    assert "headers" not in form.changed_data


@pytest.mark.parametrize("count", ["-1", "x", "99999999", "٣"])
def test_a_number_of_rows_that_is_none_is_harmless(count: str) -> None:
    assert cleaned(example({"headers-rows": count, "headers-0-name": ""}))["headers"] == {}


def test_rules_keep_their_order_and_blank_rows_are_dropped() -> None:
    data = {
        "rules-rows": "3",
        "rules-0-tool": "delete_*",
        "rules-0-do": "deny",
        "rules-0-remember": "on",
        "rules-1-do": "allow",
        "rules-2-tool": "*",
        "rules-2-do": "ask",
    }
    assert cleaned(example(data))["rules"] == [
        {"tool": "delete_*", "do": "deny"},
        {"tool": "*", "do": "ask", "remember": False},
    ]


def test_stored_rules_are_shown_with_their_decision() -> None:
    html = str(Example(initial={"rules": [{"tool": "delete_*", "do": "deny"}]})["rules"])
    assert 'value="delete_*"' in html
    assert '<option value="deny" selected>' in html


def test_text_in_rows_is_escaped() -> None:
    html = str(Example(initial={"rules": [{"tool": '"><script>', "do": "ask"}]})["rules"])
    assert "<script>" not in html


def test_variables_are_read_by_name() -> None:
    data = {"variables-rows": "1", "variables-0-name": "TOKEN", "variables-0-title": "Your token"}
    assert cleaned(example(data))["variables"] == {
        "TOKEN": {"title": "Your token", "description": "", "sensitive": False}
    }


@pytest.mark.parametrize(
    ("text", "items"),
    [("", []), ("a\r\n\r\n b \n", ["a", "b"]), ('["x\\ny", " z"]', ["x\ny", " z"])],
)
def test_lines_become_a_list(text: str, items: list[str]) -> None:
    assert LinesField().clean(text) == items


@pytest.mark.parametrize("text", ["[1]", "[", '{"a": 1}x\n['])
def test_json_that_is_no_list_of_texts_is_refused_or_read_as_lines(text: str) -> None:
    field = LinesField()
    if text.startswith("["):
        with pytest.raises(forms.ValidationError):
            field.clean(text)
    else:
        assert field.clean(text) == ['{"a": 1}x', "["]


# Django strips what a form sends, so a list whose only item is blank or spaced is written as JSON.
@given(st.lists(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8), max_size=4))
def test_a_list_is_shown_so_that_it_is_read_back(items: list[str]) -> None:
    field = LinesField()
    assert field.clean(field.prepare_value(items)) == items
    assert not field.has_changed(items, field.prepare_value(items))
