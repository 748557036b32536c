"""YAML is read strictly, and `${NAME}` is expanded once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.configuration.problems import ConfigurationError
from conversations.configuration.reading import escape, read_document


def problems(text: str, **environment: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read_document(text, environment)
    return [str(problem) for problem in caught.value.problems]


def test_a_reference_is_replaced_inside_a_text() -> None:
    document = read_document("a: [x, 'Bearer ${TOKEN}!']", {"TOKEN": "t"})
    assert document.value == {"a": ["x", "Bearer t!"]}
    assert document.came_from_environment(("a",))
    assert not document.came_from_environment(("a", 0))


def test_a_reference_needs_no_quotes_between_braces_and_brackets() -> None:
    document = read_document("a: {b: ${B}, c: [${C}, x$${C}]}  # ${D}", {"B": "1", "C": "2"})
    assert document.value == {"a": {"b": "1", "c": ["2", "x${C}"]}}


def test_a_key_is_not_expanded() -> None:
    assert read_document("${A}: ${A}", {"A": "x"}).value == {"${A}": "x"}


def test_what_a_reference_brings_is_text_and_is_never_expanded_or_parsed_again() -> None:
    document = read_document("a: ${A}\nb: ${B}", {"A": "${B}", "B": "{x: 1}\nc: yes"})
    assert document.value == {"a": "${B}", "b": "{x: 1}\nc: yes"}
    assert document.expanded_again == {("a",)}


def test_every_missing_variable_is_named_with_its_path() -> None:
    assert problems("a: {b: ${ONE}}\nc: [${TWO}${THREE}]", THREE="") == [
        "a.b: the environment variable ONE is not set",
        "c[0]: the environment variable TWO is not set",
    ]


def test_a_reference_that_names_no_variable_is_an_error() -> None:
    assert problems("a: ${not a name}") == ["a: “${not a name}” does not name an environment variable"]


def test_two_dollars_write_a_reference_that_is_kept() -> None:
    assert read_document("a: $${HOME}", {"HOME": "x"}).value == {"a": "${HOME}"}


@given(st.text(alphabet="${}A b", max_size=12))
def test_an_escaped_text_is_read_as_it_was(text: str) -> None:
    import json

    assert read_document(f"a: {json.dumps(escape(text))}", {"A": "x", "b": "y"}).value == {"a": text}


def test_a_key_given_twice_is_refused_with_its_line() -> None:
    assert problems("a:\n  b: 1\n  c: 2\n  b: 3\n") == ["line 4, column 3: the key “b” is given twice"]


def test_the_same_key_at_two_places_is_no_duplicate() -> None:
    assert read_document("a: {b: 1}\nc: {b: 1}", {}).value == {"a": {"b": 1}, "c": {"b": 1}}


def test_an_anchor_may_be_used_and_a_merged_key_overridden() -> None:
    text = "a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}"
    assert read_document(text, {}).value["b"] == {"p": 1, "q": 3}


def test_broken_yaml_is_told_by_line_without_quoting_the_file() -> None:
    (message,) = problems("a: 1\napi_key: 'canary\n")
    assert message.startswith("line ")
    assert "canary" not in message


def test_a_tag_that_would_build_an_object_is_refused() -> None:
    (message,) = problems("a: !!python/object/apply:os.system ['true']")
    assert "python/object" in message


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: *a}"])
def test_a_value_that_contains_itself_is_refused(text: str) -> None:
    assert any("refers to itself" in message for message in problems(text))


@pytest.mark.parametrize("text", ["a: 2024-01-01", "a: .nan", "a: .inf", "a: !!binary aGk=", "a: !!set {b}"])
def test_values_that_json_does_not_know_are_refused(text: str) -> None:
    assert problems(text) == ["a: is a date or another value that JSON does not know: put it into quotes"]


def test_keys_that_are_not_text_are_refused() -> None:
    assert problems("a: {2: x, yes: y}") == [
        "a.2: a key is text: put it into quotes",
        "a.True: a key is text: put it into quotes",
    ]


def test_a_character_that_the_database_cannot_store_is_refused() -> None:
    assert problems('a: "x\\0y"') == ["a: holds a character that cannot be stored (NUL or half a surrogate pair)"]
    assert problems("a: ${A}", A="\udc80") != []


def test_a_date_that_does_not_exist_and_endless_nesting_are_errors_not_tracebacks() -> None:
    assert problems("a: 2024-13-45")
    assert problems("[" * 5000)


def test_two_documents_and_too_long_a_file_are_refused() -> None:
    assert problems("a: 1\n---\nb: 1")
    assert "longer" in problems("#" * (2**20 + 1))[0]


def test_an_empty_file_is_an_empty_document() -> None:
    assert read_document("# nothing yet\n", {}).value is None
