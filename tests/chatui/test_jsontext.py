from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from agents.arguments import parse_arguments
from chatui.jsontext import RefusedError, deeper_than, encoded, received


def nested(levels: int, inner: Any = 1) -> Any:
    for _ in range(levels):
        inner = {"a": [inner]} if levels % 2 else {"a": inner}
    return inner


@pytest.mark.parametrize("value", [10**40, -(2**70), nested(300), {"a": [10**20, nested(400)]}])
def test_numbers_and_depths_of_any_size_are_encoded(value: Any) -> None:
    assert json.loads(encoded(value)) == value


def test_beside_them_everything_else_is_written_as_ever() -> None:
    id, when = UUID(int=7), datetime(2026, 1, 2, tzinfo=UTC)
    plain = {"id": id, "when": when.isoformat(), "text": "é🎉 \u2028", "n": None, "f": 0.5}
    assert json.loads(encoded({**plain, "n": 10**30})) == json.loads(encoded(plain)) | {"n": 10**30}
    assert "é🎉".encode() in encoded({**plain, "n": 10**30})


def test_what_is_no_json_is_an_error() -> None:
    with pytest.raises(ValueError, match="JSON"):
        encoded([10**30, float("nan")])


def test_depth_is_told_without_recursion() -> None:
    assert not deeper_than(1, 0)
    assert not deeper_than([], 1)
    assert deeper_than([[]], 1)
    assert not deeper_than({"a": {"b": 1}}, 2)
    assert deeper_than({"a": {"b": 1}}, 1)
    assert deeper_than(nested(50_000), 100)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[NaN]", "NaN is not a JSON value"),
        ("[-Infinity]", "-Infinity is not a JSON value"),
        ("[1e999]", "the number 1e999 is too large"),
        ("[" + "9" * 5000 + "]", "a number has too many digits"),
    ],
)
def test_what_clients_and_models_make_up_is_refused_in_the_same_words(text: str, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        received(text)
    refused = parse_arguments(f'{{"a": {text}}}')
    assert refused.value is None
    assert words in refused.error
