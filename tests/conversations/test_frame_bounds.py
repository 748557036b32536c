"""No frame is above 256 KiB, whatever a model, a tool or a person has made up; what is cut says where the whole is."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import orjson
import pytest

from conversations import wire
from conversations.frame_bounds import FIELD_LIMIT, FRAME_LIMIT, beginning, bounded, fitted, shortened_content

LONG = 2 * 2**20
TURN, CALL = uuid4(), uuid4()


def text(words: str, round: int = 1, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, "round": round, **more}


def call(**more: Any) -> dict[str, Any]:
    return {
        "type": "call",
        "id": str(uuid4()),
        "round": 1,
        "tool": "now",
        "arguments": {"zone": "UTC"},
        "status": "ok",
        "content": [],
        "artifacts": [],
        "question": None,
        **more,
    }


def finished(*parts: Any) -> Any:
    """The message of a `turn.finished` with these parts, as it is sent."""
    message = {"id": "m", "status": "completed", "usage": {"input_tokens": 3}, "parts": list(parts)}
    encoded = wire.TurnFinished(outcome="completed", message=message, error=None).encode(TURN, 7)
    assert len(encoded.encode()) <= FRAME_LIMIT
    return orjson.loads(encoded)["message"]


def test_a_field_too_long_for_a_frame_is_cut_and_says_where_the_whole_is() -> None:
    value = bounded({"q": "x" * 100_000}, CALL)
    assert value["url"] == f"/api/v1/calls/{CALL}"
    assert len(orjson.dumps(value)) < 3000
    assert bounded({"q": "x"}, CALL) == {"q": "x"}


def test_fields_are_measured_as_they_are_sent() -> None:
    assert set(bounded({"q": "漢" * (FIELD_LIMIT // 2)}, CALL)) == {"truncated", "url"}
    cut = bounded({"q": "🎈" * FIELD_LIMIT}, CALL)["truncated"]
    assert set(cut) <= set('{"q":🎈')  # no half of a sign


@pytest.mark.parametrize("letter", ["x", "漢", "🎈", "\u0001", '"'])
def test_a_text_is_cut_to_what_json_makes_of_it(letter: str) -> None:
    kept = beginning(letter * 5000, 1000)
    assert 800 < len(orjson.dumps(kept)) - 2 <= 1000
    assert beginning(letter, 1000) == letter
    assert beginning(letter * 9, 0) == ""


def test_an_ordinary_message_is_sent_as_it_is() -> None:
    assert "truncated" not in finished(text("hello"), call())


@pytest.mark.parametrize("letter", ["x", "漢", "\u0001"])
def test_an_answer_of_two_megabytes_is_sent_as_its_beginning(letter: str) -> None:
    message = finished(text("short"), text(letter * LONG, 2), call(), text("the end", 3))
    assert (message["truncated"], message["url"]) == (True, f"/api/v1/turns/{TURN}")
    assert message["usage"] == {"input_tokens": 3}
    short, long, _, last = message["parts"]
    assert (short, last) == (text("short"), text("the end", 3))
    assert (long["truncated"], long["url"]) == (True, f"/api/v1/turns/{TURN}")
    assert len(orjson.dumps(long)) > FRAME_LIMIT * 0.9  # all that there is room for
    assert set(long["text"]) == {letter}


def test_long_parts_share_the_room_and_small_ones_stay_whole() -> None:
    parts = [text("x" * LONG, 1), text("x" * 1000, 2), text("y" * LONG, 3)]
    first, small, last = finished(*parts)["parts"]
    assert small == parts[1]
    assert abs(len(first["text"]) - len(last["text"])) < 10


def test_calls_keep_what_they_are_when_their_room_is_small() -> None:
    result = [{"type": "text", "text": "r" * 60_000}]
    parts = [call(arguments={"q": "a" * 60_000}, content=result) for _ in range(10)]
    for part, sent in zip(parts, finished(*parts)["parts"], strict=True):
        assert (sent["id"], sent["tool"], sent["status"]) == (part["id"], "now", "ok")
        assert sent["arguments"]["url"] == f"/api/v1/calls/{part['id']}"
        assert sent["content"][0]["truncated"] is True


def test_an_open_question_stays_whole_among_long_answers() -> None:
    question = {"id": "q", "kind": "elicitation", "state": "open", "details": {"schema": {"x": "y" * 20_000}}}
    asking = call(status="waiting", question=question)
    assert finished(text("x" * LONG), asking, text("x" * LONG))["parts"][1] == asking


def test_of_thousands_of_parts_the_first_are_sent() -> None:
    message = finished(*(call() for _ in range(5000)))
    assert 500 < len(message["parts"]) < 5000
    assert message["truncated"] is True


def test_a_snapshot_is_bounded_alike() -> None:
    message = {"id": "m", "parts": [text("x" * LONG)]}
    frame = wire.frame("turn.snapshot", turn_id=TURN, seq=3, status="running", message=message)
    assert len(frame) <= FRAME_LIMIT
    assert orjson.loads(frame)["message"]["url"] == f"/api/v1/turns/{TURN}"


def test_what_many_parts_of_a_result_hold_together_is_bounded() -> None:
    parts = [{"type": "json", "value": "x" * 50_000} for _ in range(20)]
    sent = shortened_content(parts, CALL)
    assert sent[0] == parts[0]
    assert set(sent[1]) == {"truncated", "url"}
    assert len(orjson.dumps(sent)) <= FIELD_LIMIT + 1000


def test_whatever_else_a_frame_holds_it_is_sent_and_keeps_its_shape() -> None:
    body = {
        "type": "call.finished",
        "call_id": str(CALL),
        "artifacts": [{"id": str(number), "name": "n" * 100} for number in range(5000)],
        "label": "l" * LONG,
        "claims": {"c": "x" * LONG},
        "status": "ok",
    }
    text = fitted(body)
    assert len(text) <= FRAME_LIMIT
    sent = orjson.loads(text)
    assert (sent["status"], sent["label"][:3], sent["artifacts"][0]["id"]) == ("ok", "lll", "0")
    assert sent["claims"]["url"] == f"/api/v1/calls/{CALL}"
