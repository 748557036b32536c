"""The argument text of a tool call: what passes, what is repaired, and what the model is told."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.arguments import (
    MAX_ARGUMENTS,
    MAX_LEVELS,
    check_arguments,
    coerce_arguments,
    collapse_repeated,
    is_object,
    parse_arguments,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("text", ["", " \n", "\t", "\ufeff"])
def test_absent_or_blank_arguments_are_an_empty_object(text: str) -> None:
    assert parse_arguments(text).value == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"city": "Oslo"}', {"city": "Oslo"}),
        ('{"q": "a}{b"}', {"q": "a}{b"}),
        ('{"q": "what\'s new"}', {"q": "what's new"}),
        ('{"q": "\\ud83c\\udf78 bar"}', {"q": "\U0001f378 bar"}),
        ('{"data": "{\\"k\\": 1}"}', {"data": '{"k": 1}'}),
        ('{"q": "```json\\n{}\\n```"}', {"q": "```json\n{}\n```"}),
    ],
)
def test_an_object_is_itself(text: str, value: dict[str, Any]) -> None:
    parsed = parse_arguments(text)
    assert (parsed.value, parsed.error, parsed.repaired) == (value, "", False)


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"city": "Oslo"}\n```',
        '```\n{"city": "Oslo"}\n```',
        '```{"city": "Oslo"}```',
        '{"city": "Oslo"}</tool_call>',
        '{"city": "Oslo"}\n</function>\n</tool_call>\n',
        '"{\\"city\\": \\"Oslo\\"}"',
        json.dumps(json.dumps(json.dumps({"city": "Oslo"}))),
        '{"city":"Oslo"}{"city": "Oslo"}',
        '{"city":"Oslo"}\n{"city":"Oslo"}\n{"city":"Oslo"}',
        '{"city":"Oslo"}{"city":"Oslo"}</tool_call>',
    ],
)
def test_what_cannot_mean_anything_else_is_repaired(text: str) -> None:
    parsed = parse_arguments(text)
    assert (parsed.value, parsed.repaired) == ({"city": "Oslo"}, True)


def test_raw_control_characters_in_a_string_are_kept() -> None:
    parsed = parse_arguments('{"q": "line1\nline2\tend"}')
    assert (parsed.value, parsed.repaired) == ({"q": "line1\nline2\tend"}, True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"key":"a","op":"delete"}{"key":"b","op":"delete"}', "one call for each"),
        ('{"n": 1}{"n": 1.0}', "one call for each"),
        ('{"n": 1}{"n": true}', "one call for each"),
        ('{"city": "Oslo"', "line 1 column 16"),
        ('{"city": "Os', "line 1 column 10"),
        ("{'city': 'Oslo', 'live': True, 'x': None}", "line 1 column 2"),
        ('{"x": NaN, "y": Infinity}', "NaN"),
        ('{"x": -Infinity}', "-Infinity"),
        ('{"x": 1e999}', "too large"),
        ('{"x": ' + "9" * 5000 + "}", "digits"),
        ("[1, 2]", "an array"),
        ("null", "null"),
        ("true", "a boolean"),
        ("42", "a number"),
        ('"Oslo"', "a string"),
        ('{"city": "Oslo"} and more', "Extra data"),
        ('I call it with {"city": "Oslo"}', "line 1 column 1"),
        ('{"city": "Oslo"}{"city', "not valid JSON"),
        ("[" * 100_000, "too deeply"),
        ('{"a":' * 5_000 + "1" + "}" * 5_000, "too deeply"),
        ('{"a":' * (MAX_LEVELS + 1) + "1" + "}" * (MAX_LEVELS + 1), "too deeply"),
    ],
)
def test_anything_else_is_an_error_that_says_where(text: str, told: str) -> None:
    parsed = parse_arguments(text)
    assert parsed.value is None
    assert told in parsed.error
    assert len(parsed.error) < 300


@pytest.mark.parametrize("text", ['{"q": "x\\ud83dy"}', '{"q": "x\\u0000y"}', '{"q": "x\ud83dy"}'])
def test_lone_surrogates_and_nul_are_replaced(text: str) -> None:
    value = parse_arguments(text).value
    assert value == {"q": "x\ufffdy"}
    orjson.dumps(value)


def test_two_megabytes_are_parsed_at_once_and_more_than_the_limit_is_refused() -> None:
    value = parse_arguments('{"q":"' + "a" * 2_000_000 + '"}').value
    assert value is not None
    assert len(value["q"]) == 2_000_000
    refused = parse_arguments('{"q":"' + "a" * MAX_ARGUMENTS + '"}')
    assert refused.value is None
    assert "too large" in refused.error


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_every_object_passes_and_can_be_sent(value: dict[str, Any]) -> None:
    parsed = parse_arguments(json.dumps(value))
    assert parsed.value is not None
    assert not parsed.repaired
    orjson.dumps(parsed.value)


@given(st.text())
def test_no_text_at_all_raises(text: str) -> None:
    parsed = parse_arguments(text)
    assert (parsed.value is None) == bool(parsed.error)


def test_repeated_objects_are_collapsed_to_the_first_one() -> None:
    assert collapse_repeated('{"a":1}{"a":1}') == '{"a":1}'
    assert collapse_repeated('{"a":1}{"a":2}') == '{"a":1}{"a":2}'
    assert collapse_repeated('{"a":') == '{"a":'
    assert collapse_repeated("") == ""


def test_only_a_whole_object_is_an_object() -> None:
    assert is_object('{"a": 1}')
    assert not is_object('{"a": 1')
    assert not is_object("[1]")
    assert not is_object("")


# --- Schemas ------------------------------------------------------------------------------------------------------

TICKET = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "fields": {"type": "object", "properties": {"count": {"type": "integer"}}},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["id", "fields"],
}


def test_json_in_a_string_is_decoded_where_an_object_or_an_array_is_wanted() -> None:
    given = {"id": "T-1", "fields": '{"note": "hi"}', "tags": '["a", "b"]'}
    assert coerce_arguments(given, TICKET) == {"id": "T-1", "fields": {"note": "hi"}, "tags": ["a", "b"]}
    assert given["tags"] == '["a", "b"]'


@pytest.mark.parametrize(
    "schema",
    [{"type": "string"}, {"type": ["object", "string"]}, {}, {"anyOf": [{"type": "object"}, {"type": "string"}]}, True],
)
def test_a_string_parameter_that_looks_like_json_stays_a_string(schema: Any) -> None:
    given = {"data": '{"k": 1}'}
    assert coerce_arguments(given, {"type": "object", "properties": {"data": schema}}) == given


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["array", "null"]},
        {"anyOf": [{"type": "array"}, {"type": "null"}]},
        {"$ref": "#/$defs/List"},
        {"allOf": [{"$ref": "#/$defs/List"}]},
    ],
)
def test_alternatives_and_local_references_are_followed(schema: Any) -> None:
    root = {"type": "object", "properties": {"x": schema}, "$defs": {"List": {"type": "array"}}}
    assert coerce_arguments({"x": "[1]"}, root) == {"x": [1]}


def test_nested_strings_are_decoded_too_and_a_wrong_kind_is_left() -> None:
    inner = {"type": "object", "properties": {"b": {"type": "array"}}}
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": inner}, "c": {"type": "array"}}}
    assert coerce_arguments({"a": ['{"b": "[1]"}'], "c": '{"d": 1}'}, schema) == {"a": [{"b": [1]}], "c": '{"d": 1}'}
    assert coerce_arguments({"c": "[broken"}, schema) == {"c": "[broken"}


def test_a_schema_that_refers_to_itself_ends() -> None:
    schema = {"$defs": {"n": {"$ref": "#/$defs/n"}}, "properties": {"x": {"$ref": "#/$defs/n"}}}
    assert coerce_arguments({"x": "[1]"}, schema) == {"x": "[1]"}
    assert check_arguments({"x": 1}, schema) is None


def test_violations_name_the_parameter() -> None:
    assert check_arguments({"id": "T-1", "fields": {}}, TICKET) is None
    assert "'fields' is a required property" in (check_arguments({"id": "T-1"}, TICKET) or "")
    wrong = check_arguments({"id": "T-1", "fields": {"count": "many"}, "tags": ["a", 2]}, TICKET) or ""
    assert "fields.count: 'many' is not of type 'integer'" in wrong
    assert "tags[1]: 2 is not of type 'string'" in wrong


def test_a_violation_does_not_repeat_a_huge_value() -> None:
    told = check_arguments({"id": 1, "fields": "x" * 1_000_000}, TICKET) or ""
    assert len(told) < 1000


@pytest.mark.parametrize("schema", [{"type": "objekt"}, {"properties": 3}, {"$ref": "#/nowhere"}])
def test_a_broken_schema_allows_everything(schema: Any) -> None:
    assert check_arguments({"a": 1}, schema) is None


def test_a_foreign_reference_is_not_fetched_and_hides_no_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a connection was made")

    monkeypatch.setattr(socket, "create_connection", refused)
    schema = {
        "type": "object",
        "required": ["b"],
        "properties": {"b": {"type": "string"}, "x": {"$ref": "http://127.0.0.1:9/s"}},
    }
    assert "'b' is a required property" in (check_arguments({"x": 1}, schema) or "")


def test_a_pattern_made_to_take_for_ever_takes_no_time() -> None:
    evil = "^(a+)+$"
    schema = {
        "type": "object",
        "properties": {"p": {"type": "string", "pattern": evil}},
        "patternProperties": {evil: {"type": "string"}},
        "additionalProperties": False,
    }
    assert check_arguments({"p": "a" * 60 + "!", "a" * 60 + "!": "x"}, schema) is None  # 2^60 ways to match it


def test_additional_properties_are_refused_where_the_schema_closes_the_object() -> None:
    schema = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
    assert "'zz' was unexpected" in (check_arguments({"zz": 1}, schema) or "")


def test_an_older_draft_is_checked_by_its_own_rules() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}},
    }
    assert check_arguments({"pair": ["a", 1]}, schema) is None
    assert "pair[1]" in (check_arguments({"pair": ["a", "b"]}, schema) or "")


def test_arguments_may_be_nested_as_deep_as_any_schema_asks_for() -> None:
    text = '{"a":' * MAX_LEVELS + "1" + "}" * MAX_LEVELS
    assert json.dumps(parse_arguments(text).value, separators=(",", ":")) == text


def test_text_that_is_nested_too_deeply_stays_text() -> None:
    schema = {"type": "object", "properties": {"tree": {"type": "object"}}}
    text = '{"a":' * (MAX_LEVELS + 1) + "1" + "}" * (MAX_LEVELS + 1)
    assert coerce_arguments({"tree": text}, schema) == {"tree": text}
