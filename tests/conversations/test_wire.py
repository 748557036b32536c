from uuid import uuid4

import orjson
import pytest

from conversations import wire

ID = "12345678-1234-4234-8234-123456789012"


def frame(**fields: object) -> str:
    return orjson.dumps(fields).decode()


def test_a_turn_start_is_read_with_its_defaults() -> None:
    parsed = wire.parse(
        frame(type="turn.start", request_id=str(uuid4()), agent="a", content=[{"type": "text", "text": "hi"}])
    )
    assert isinstance(parsed, wire.TurnStart)
    assert parsed.tools
    assert parsed.servers is None


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("{", "invalid_frame", "not JSON"),
        ("[]", "invalid_frame", "object"),
        (frame(type="nonsense"), "unknown_type", "nonsense"),
        (frame(no_type=1), "unknown_type", "None"),
        (frame(type="ping", extra=1), "invalid_frame", "extra"),
        (frame(type="turn.stop", turn_id="no-uuid"), "invalid_frame", "turn_id"),
        (frame(type="turn.start", request_id=ID, content=[]), "invalid_frame", "content"),
        (frame(type="turn.follow", turn_id=ID, after=-1), "invalid_frame", "after"),
        (frame(type={"a": 1}), "unknown_type", "a"),
        ('{"type":"ping","request_id":NaN}', "invalid_frame", "NaN"),
        ("[" * 100_000, "invalid_frame", "JSON"),
        ('{"type":"call.decide","arguments":{"n":-1e999}}', "invalid_frame", "-1e999 is too large"),
        (
            '{"type":"call.decide","arguments":{"n":' + "[" * 300 + "]" * 300 + "}}",
            "invalid_frame",
            "nested too deeply",
        ),
    ],
)
def test_what_cannot_be_understood_is_named(text: str, code: str, says: str) -> None:
    with pytest.raises(wire.FrameError) as caught:
        wire.parse(text)
    assert caught.value.frame_code == code
    assert says in caught.value.public_message


def test_an_error_carries_the_request_id_that_could_be_read() -> None:
    with pytest.raises(wire.FrameError) as caught:
        wire.parse(frame(type="turn.start", request_id="abc", content="x"))
    assert caught.value.request_id == "abc"


def test_identity_in_a_frame_is_refused_not_believed() -> None:
    with pytest.raises(wire.FrameError, match="user_id"):
        wire.parse(frame(type="ping", user_id=str(uuid4())))


def test_nul_and_lone_surrogates_in_a_frame_are_replaced() -> None:
    text = frame(type="call.decide", call_id=str(uuid4()), decision="deny", note="NOTE")
    text = text.replace("NOTE", "a\\u0000b\\ud83dc")
    assert wire.parse(text).note == "a\ufffdb\ufffdc"
    raw = frame(type="call.decide", call_id=str(uuid4()), decision="deny", note="x")[:-2] + '\ud83d"}'
    assert wire.parse(raw).note == "x\ufffd"


def test_a_turn_frame_has_type_turn_and_number() -> None:
    turn = uuid4()
    assert orjson.loads(wire.TextDelta(text="hi").encode(turn, 3)) == {
        "type": "text.delta",
        "turn_id": str(turn),
        "seq": 3,
        "text": "hi",
    }
    waiting = orjson.loads(wire.TurnWaiting(reason="approval", ids=[turn]).encode(turn, 4))
    assert waiting["for"] == "approval"
