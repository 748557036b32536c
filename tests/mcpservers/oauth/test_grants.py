"""Answers of token endpoints, as servers write them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mcpservers.errors import LinkError
from mcpservers.oauth.grants import Granted, GrantRefusedError, granted, lifetime
from mcpservers.oauth.web import Answer

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def answer(value: Any, status: int = 200, kind: str = "application/json") -> Answer:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Answer(status, {"content-type": kind}, "https://a.example/token", body)


def test_tokens_are_read() -> None:
    found = granted(
        answer({"access_token": "a", "token_type": "Bearer", "expires_in": 60, "scope": "x y", "refresh_token": "r"})
    )
    assert (found.access_token, found.refresh_token, found.scopes, found.seconds) == ("a", "r", ("x", "y"), 60)


@pytest.mark.parametrize("kind", ["bearer", "BEARER", " Bearer ", None])
def test_the_kind_of_token_is_no_matter_of_case(kind: str | None) -> None:
    value = {"access_token": "a"} | ({"token_type": kind} if kind else {})
    assert granted(answer(value)).access_token == "a"


def test_a_form_encoded_answer_is_taken() -> None:
    found = granted(
        answer(
            b"access_token=tok&token_type=bearer&scope=repo", kind="application/x-www-form-urlencoded; charset=utf-8"
        )
    )
    assert (found.access_token, found.scopes) == ("tok", ("repo",))


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (None, None),
        ("soon", None),
        ("3600abc", None),
        (True, None),
        ([], None),
        (float("nan"), None),
        (float("inf"), None),
        (0, 0),
        (-5, 0),
        ("3600", 3600),
        (3600.5, 3600.5),
        (10**40, 10 * 365 * 86400),
    ],
)
def test_odd_lifetimes(said: Any, seconds: float | None) -> None:
    assert lifetime(said) == seconds


def test_an_unknown_lifetime_is_no_expiry_and_none_at_all_is_already_over() -> None:
    assert Granted("a").times(NOW, renewable=True) == {"expires_at": None, "refresh_at": None}
    assert Granted("a", seconds=0).times(NOW, renewable=True) == {"expires_at": NOW, "refresh_at": NOW}


def test_a_token_is_renewed_ahead_if_it_can_be() -> None:
    hour = Granted("a", seconds=3600)
    assert hour.times(NOW, renewable=True)["refresh_at"] == NOW + timedelta(seconds=3300)
    assert Granted("a", seconds=60).times(NOW, renewable=True)["refresh_at"] == NOW + timedelta(seconds=45)
    assert hour.times(NOW, renewable=False) == {"expires_at": NOW + timedelta(hours=1), "refresh_at": None}


def test_a_refresh_token_that_is_left_out_stays() -> None:
    assert Granted("a2").tokens({"access_token": "a1", "refresh_token": "r1"}) == {
        "access_token": "a2",
        "refresh_token": "r1",
    }
    assert Granted("a2", refresh_token="r2").tokens({"refresh_token": "r1"})["refresh_token"] == "r2"
    assert "refresh_token" not in Granted("a2").tokens()


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"access_token": ""},
        {"access_token": None},
        {"access_token": 5},
        {"access_token": "a b"},
        {"access_token": "a\r\nX-Evil: 1"},
        {"access_token": "é"},
        {"access_token": "a" * 70_000},
        {"access_token": "a", "token_type": "DPoP"},
        {"access_token": "a", "token_type": 7},
        [],
        "token",
    ],
)
def test_what_is_no_token_links_nothing(said: Any) -> None:
    with pytest.raises(LinkError) as raised:
        granted(answer(said))
    assert raised.value.reason == "bad_answer"


@pytest.mark.parametrize("body", [b"<html>Sign in</html>", b"", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_what_is_not_json_links_nothing(body: bytes) -> None:
    with pytest.raises(LinkError):
        granted(answer(body, kind="text/html"))


def test_an_error_with_http_200_is_a_refusal() -> None:
    with pytest.raises(GrantRefusedError) as raised:
        granted(answer({"error": "bad_verification_code"}))
    assert not raised.value.passing


@pytest.mark.parametrize(
    ("value", "status", "passing"),
    [
        ({"error": "invalid_grant"}, 400, False),
        ({"error": "invalid_client"}, 401, False),
        ({"error": "temporarily_unavailable"}, 400, True),
        ({"error": "invalid_grant"}, 503, True),
        ({"error": "invalid_grant"}, 429, True),
        ({"error": {"code": 7}}, 400, True),
        (b"<html>", 400, True),
        (b"<html>", 502, True),
    ],
)
def test_only_a_clear_refusal_ends_a_grant(value: Any, status: int, passing: bool) -> None:
    with pytest.raises(GrantRefusedError) as raised:
        granted(answer(value, status))
    assert raised.value.passing is passing


def test_a_refusal_is_told_without_what_cannot_be_seen() -> None:
    with pytest.raises(GrantRefusedError) as raised:
        granted(answer({"error": "no\u202e", "error_description": "line\nline" + "x" * 1000}, 400))
    assert "\u202e" not in str(raised.value)
    assert len(str(raised.value)) < 420


def test_a_refusal_that_repeats_a_secret_is_told_without_words() -> None:
    refusal = GrantRefusedError("invalid_grant", "the code canary-1 is old")
    assert "canary" not in str(refusal.without(["canary-1"]))
    assert refusal.without(["canary-2", ""]) is refusal


def test_no_repr_shows_a_token() -> None:
    found = granted(answer({"access_token": "canary-1", "refresh_token": "canary-2", "id_token": "canary-3"}))
    assert "canary" not in repr(found)
    assert "canary" not in repr(answer({"access_token": "canary-1"}))
