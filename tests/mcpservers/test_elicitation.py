"""A server's questions: what of an untrusted form or address is shown, and which answers fit it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpservers.elicitation import (
    MAX_FIELDS,
    MAX_FORM,
    Answer,
    InvalidAnswerError,
    UnaskableError,
    checked,
    read,
    restored,
)
from mcpservers.patterns import keeps_to

JSON = dict[str, Any]


def form(required: Any = None, **properties: Any) -> JSON:
    schema: JSON = {"type": "object", "properties": properties} | ({"required": required} if required else {})
    return {"mode": "form", "message": "Tell me.", "requestedSchema": schema}


def schema_of(**properties: JSON) -> JSON:
    schema = read(form(**properties)).schema
    assert schema is not None
    return schema


def field(part: JSON) -> JSON:
    made: JSON = schema_of(it=part)["properties"]["it"]
    return made


def refused(params: object) -> str:
    with pytest.raises(UnaskableError) as error:
        read(params)
    return str(error.value)


# --- Forms --------------------------------------------------------------------------------------------------------


def test_a_field_of_every_kind_is_kept_with_what_it_asks_for() -> None:
    text = {"type": "string", "title": "Name", "description": "Yours", "minLength": 1, "maxLength": 9, "pattern": "^a"}
    assert field(text) == text
    assert field({"type": "string", "format": "email"})["format"] == "email"
    assert field({"type": "integer", "minimum": 1, "maximum": 9, "default": 4})["default"] == 4
    assert field({"type": "number", "default": 3.14})["default"] == 3.14
    assert field({"type": "boolean", "default": False})["default"] is False


@pytest.mark.parametrize(
    "part",
    [
        {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]},
        {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
    ],
)
def test_titled_choices_old_and_new_are_the_same(part: JSON) -> None:
    assert field(part)["oneOf"] == [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]


def test_untitled_choices_are_shown_as_they_are() -> None:
    assert field({"type": "string", "enum": ["r"]})["oneOf"] == [{"const": "r", "title": "r"}]


@pytest.mark.parametrize("items", [{"type": "string", "enum": ["r"]}, {"anyOf": [{"const": "r", "title": "Red"}]}])
def test_several_choices_old_and_new_are_the_same(items: JSON) -> None:
    made = field({"type": "array", "items": items, "minItems": 1, "maxItems": 3, "default": ["r"]})
    assert [option["const"] for option in made["items"]["anyOf"]] == ["r"]
    assert (made["minItems"], made["maxItems"], made["default"]) == (1, 3, ["r"])


def test_a_field_without_a_title_is_called_by_its_name_and_the_order_is_kept() -> None:
    asked = read(form(zebra={"type": "string"}, ape={"type": "string"}))
    assert asked.schema is not None
    assert asked.schema["properties"]["zebra"]["title"] == "zebra"
    assert asked.order == ("zebra", "ape")


def test_what_optional_fields_of_many_servers_look_like_is_understood() -> None:
    part = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None, "title": "Count"}
    assert field(part) == {"type": "integer", "minimum": 1, "title": "Count"}


@pytest.mark.parametrize(
    ("part", "default"),
    [({"type": "integer"}, "4"), ({"type": "string", "enum": ["a"]}, "b"), ({"type": "string", "maxLength": 1}, "ab")],
)
def test_a_default_that_does_not_fit_is_none(part: JSON, default: object) -> None:
    assert "default" not in field({**part, "default": default})


def test_words_are_shown_without_what_hides_in_them_and_not_at_any_length() -> None:
    asked = read(
        form(it={"type": "string", "title": "a\u202eb\nc", "description": "d" * 5000}) | {"message": "\x1b[2Jhi"}
    )
    assert asked.schema is not None
    part = asked.schema["properties"]["it"]
    assert (asked.message, part["title"], len(part["description"])) == ("hi", "ab c", 1000)


@pytest.mark.parametrize(
    "params",
    [
        None,
        {"mode": "form", "message": "x"},
        {"mode": "voice", "message": "x"},
        form(it={"type": "object", "properties": {}}),
        form(it={"type": "array", "items": {"type": "string"}}),
        form(it={"type": "string", "$ref": "https://elsewhere.example/schema"}),
        form(it={"type": "string", "enum": []}),
        form(it={"type": "string", "enum": ["a", "a"]}),
        form(it={"type": "string", "enum": [1, 2]}),
        form(it={"type": "string", "minLength": 3, "maxLength": 2}),
        form(it={"type": "array", "items": {"enum": ["a"]}, "minItems": 2}),
        form(required=["other"], it={"type": "string"}),
        form(required=[["it"]], it={"type": "string"}),
        form(it="string"),
        form(**{"": {"type": "string"}}),
        form(**{"a\0": {"type": "string"}}),
        form(**{f"f{number}": {"type": "string"} for number in range(MAX_FIELDS + 1)}),
        form(**{f"f{n}": {"type": "string", "enum": [f"{o}" * 100 for o in range(250)]} for n in range(MAX_FIELDS)}),
    ],
)
def test_what_is_no_flat_form_is_not_shown(params: object) -> None:
    assert refused(params).endswith(".")


@pytest.mark.parametrize(
    "part",
    [
        {"password": {"type": "string"}},
        {"it": {"type": "string", "title": "Your passphrase"}},
        {"it": {"type": "string", "format": "password"}},
        {"db_passwd": {"type": "string", "maxLength": 10}},
    ],
)
def test_a_form_never_asks_for_a_password(part: JSON) -> None:
    assert "password" in refused(form(**part))


def test_a_question_about_a_password_is_none_for_it() -> None:
    assert field({"type": "boolean", "title": "Reset the password?"})["title"] == "Reset the password?"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
parts = st.dictionaries(
    st.sampled_from(
        ["type", "title", "enum", "oneOf", "items", "default", "minLength", "maximum", "minItems", "format", "pattern"]
    ),
    values | st.sampled_from(["string", "integer", "number", "boolean", "array", "date", "^a*$"]),
)
schemas = values | st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(st.text(max_size=5), parts, max_size=4)},
    optional={"required": values},
)


def tried(function: Any, *arguments: Any) -> Any:
    """What it returns, or the error that is one of ours."""
    try:
        return function(*arguments)
    except (UnaskableError, InvalidAnswerError) as error:
        return error


@given(schemas)
def test_any_value_is_a_form_that_can_be_answered_or_is_refused_in_words(schema: Any) -> None:
    asked = tried(read, {"message": "m", "requestedSchema": schema})
    if isinstance(asked, UnaskableError):
        assert str(asked)
        return
    card = json.loads(json.dumps(asked.card()))
    assert len(json.dumps(card)) <= MAX_FORM
    assert restored(card) == asked
    assert read({"message": "m", "requestedSchema": asked.schema}) == asked
    answer = tried(checked, asked.schema, {})
    wrong = answer.fields.keys() if isinstance(answer, InvalidAnswerError) else set()
    assert wrong <= set(asked.schema["required"])


# --- Addresses ----------------------------------------------------------------------------------------------------


def address(url: object, **more: object) -> JSON:
    return {"mode": "url", "message": "Go there.", "url": url, **more}


def test_an_address_is_shown_with_its_whole_host() -> None:
    asked = read(address("https://Pay.Example.org:8443/x?y=1#z", elicitationId="e1"))
    assert (asked.host, asked.url) == ("pay.example.org:8443", "https://pay.example.org:8443/x?y=1#z")
    assert (asked.id, asked.schema) == ("e1", None)


def test_a_host_of_other_letters_is_written_in_ascii() -> None:
    assert read(address("https://аpple.example/")).host == "xn--pple-43d.example"


@pytest.mark.parametrize(
    "url",
    [
        None,
        7,
        "",
        "http://example.org/",
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "https://",
        "https://user@example.org/",
        "https://bank.example:x@evil.example/",
        "https://example.org\\@evil.example/",
        "https://exa mple.org/",
        "https://example.org/\n",
        "https://example.org:99999/",
        "https://[::1",
        "https://example.org/" + "x" * 9000,
        "//example.org/",
    ],
)
def test_what_is_no_address_of_the_web_with_https_is_not_shown(url: object) -> None:
    assert refused(address(url))


def test_plain_http_is_shown_where_an_operator_allows_the_host(settings: Any) -> None:
    settings.MCP_ALLOW_PRIVATE = ["127.0.0.1:9000"]
    assert read(address("http://127.0.0.1:9000/a")).host == "127.0.0.1:9000"
    assert refused(address("http://127.0.0.1:9001/a"))


# --- Answers ------------------------------------------------------------------------------------------------------

ASKED = schema_of(
    name={"type": "string", "title": "Name", "minLength": 2, "maxLength": 5},
    mail={"type": "string", "format": "email"},
    size={"type": "integer", "minimum": 1, "maximum": 9, "default": 4},
    ratio={"type": "number"},
    sure={"type": "boolean"},
    colour={"type": "string", "enum": ["r", "g"]},
    tags={"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 2},
    day={"type": "string", "format": "date"},
    when={"type": "string", "format": "date-time"},
    site={"type": "string", "format": "uri"},
    code={"type": "string", "pattern": "^[A-Z]{2}[0-9]+$"},
)


def test_an_answer_that_fits_is_sent_as_it_is_with_defaults_for_what_it_leaves_out() -> None:
    given_ = {
        "name": "Ada", "mail": "a@b.example", "ratio": 0.5, "sure": False, "colour": "g", "tags": ["c", "a"],
        "day": "2026-02-28", "when": "2026-02-28T10:00:00Z", "site": "https://b.example/x", "code": "AB1",
    }  # fmt: skip
    assert checked(ASKED, given_) == {**given_, "size": 4}


def test_a_field_that_was_emptied_has_no_default() -> None:
    assert checked(ASKED, {"size": None}) == {}


def test_a_whole_number_is_sent_as_one() -> None:
    answer = checked(ASKED, {"size": 5.0})
    assert json.dumps(answer) == '{"size": 5}'


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("name", "x", "at least 2 characters"),
        ("name", "abcdef", "at most 5 characters"),
        ("name", 5, "Enter a text"),
        ("name", "a\0b", "Enter a text"),
        ("mail", "nobody", "email"),
        ("size", 0, "from 1 to 9"),
        ("size", 2.5, "whole number"),
        ("size", True, "Enter a number"),
        ("size", "4", "Enter a number"),
        ("ratio", float("nan"), "Enter a number"),
        ("ratio", 10**400, "Enter a number"),
        ("sure", "yes", "yes or no"),
        ("colour", "b", "one of the options"),
        ("colour", ["r"], "one of the options"),
        ("tags", "a", "among the options"),
        ("tags", ["a", "a"], "each once"),
        ("tags", ["d"], "among the options"),
        ("tags", [{}], "among the options"),
        ("tags", ["a", "b", "c"], "at most 2"),
        ("day", "2026-02-30", "Enter a date"),
        ("day", "28.2.2026", "Enter a date"),
        ("when", "2026-02-28T10:00", "date and time"),
        ("site", "example.org", "whole address"),
        ("code", "a1", "form that is asked for"),
        ("other", 1, "no such field"),
    ],
)
def test_what_does_not_fit_is_said_with_the_field(name: str, value: object, words: str) -> None:
    with pytest.raises(InvalidAnswerError) as error:
        checked(ASKED, {name: value})
    assert words in error.value.fields[name]
    assert (name if name == "other" else ASKED["properties"][name]["title"]) in error.value.public_message


def test_every_field_that_is_wrong_is_named_at_once() -> None:
    schema = read(form(required=["a", "b"], a={"type": "string"}, b={"type": "integer"})).schema
    assert schema is not None
    with pytest.raises(InvalidAnswerError) as error:
        checked(schema, {"b": "x"})
    assert error.value.fields == {"a": "This is required.", "b": "Enter a number."}


def test_a_required_field_with_a_default_needs_no_entry() -> None:
    schema = read(form(required=["a"], a={"type": "string", "default": "x"})).schema
    assert schema is not None
    assert checked(schema, {}) == {"a": "x"}
    with pytest.raises(InvalidAnswerError):
        checked(schema, {"a": None})


def test_accept_decline_and_cancel_are_three_answers() -> None:
    asked = read(form(it={"type": "string", "default": "x"}))
    assert Answer("accept").result(asked) == {"action": "accept", "content": {"it": "x"}}
    assert Answer("decline", {"it": "y"}).result(asked) == {"action": "decline"}
    assert Answer("cancel").result(asked) == {"action": "cancel"}
    assert Answer("accept").result(read(address("https://a.example/"))) == {"action": "accept"}


# --- Patterns of strangers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^[A-Z]{2}$", "AB", True),
        ("^[A-Z]{2}$", "ab", False),
        ("b", "abc", True),
        ("^(red|green)$", "blue", False),
        (r"^\w+@\w+\.\w+$", "a@b.c", True),
        (r"^(\d{3}-){2}\d{4}$", "123-456-7890", True),
        (r"\d", "\u0663", False),
        ("(a+)+$", "aaab", None),
        ("(a|aa)+$", "aaab", None),
        (r"\p{L}", "x", None),
        ("(?=a)a", "a", None),
        (r"(a)\1", "aa", None),
        ("(", "(", None),
        ("a" * 501, "a", None),
    ],
)
def test_a_pattern_is_checked_where_that_is_safe(pattern: str, text: str, found: bool | None) -> None:
    assert keeps_to(pattern, text) is found


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a*)*b", "(a|a)*b", "a?" * 30 + "a" * 30, ".*.*.*.*=", "(x+x+)+y", "(.*)(.*)(.*)(.*)(.*)="]
)
def test_a_pattern_that_could_take_for_ever_takes_no_time(pattern: str) -> None:
    keeps_to(pattern, "a" * 20_000)  # tried in every way it would never be done
    keeps_to(pattern, "a" * 60)
