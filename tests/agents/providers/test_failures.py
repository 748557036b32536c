"""Which of an endpoint's words are shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from agents.providers.failures import detail_of, mask, retry_after

SECRETS = ("my-own-key-1", "abc")


@pytest.mark.parametrize(
    "text",
    [
        "key my-own-key-1 is wrong",
        "Incorrect API key provided: sk-proj-abcdEFGH1234.",
        "Incorrect API key provided: sk-ab***********WXYZ.",
        "Authorization: Bearer abcd.efgh-1234",
        '{"authorization": "Bearer abcdefgh1234"}',
        "api_key=abcdefgh1234 was refused",
        "token: abcdefgh1234",
        "AIzaSyA-abcdefghijklmnop1234",
        "eyJhbGciOiJIUzI1.eyJzdWIiOiIx.c2lnbmF0dXJl",
        "gsk_abcdefgh1234",
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str) -> None:
    masked = mask(text, SECRETS)
    assert "•••" in masked
    for secret in ("my-own-key-1", "1234", "WXYZ", "c2lnbmF0dXJl"):
        assert secret not in masked


@pytest.mark.parametrize("text", ["connect to 10.1.2.3:8000 failed", "http://localhost:8080/x", "192.168.0.7 is down"])
def test_internal_addresses_are_masked(text: str) -> None:
    masked = mask(text)
    assert "•••" in masked
    assert not any(address in masked for address in ("10.1.2.3", "localhost", "192.168.0.7"))


@pytest.mark.parametrize(
    "text",
    [
        "The model `gpt-5-mini` does not exist",
        "max_tokens is too large: 10000. This model supports at most 4096 completion tokens",
        "Unsupported value: 'temperature' does not support 0.2",
        "Invalid schema for function 'get_weather'",
        "Version 1.10.2 is required",
        "a basic error",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert mask(text, SECRETS) == text


def test_a_detail_is_one_short_line() -> None:
    assert detail_of("a\n\nb\x00 \ud83d") == "a b\ufffd \ufffd"
    assert len(detail_of("x" * 5000)) == 300


def test_retry_after_is_seconds_or_a_date_or_nothing() -> None:
    assert retry_after({"retry-after": "7"}) == 7
    assert retry_after({"retry-after": "0.5"}) == 0.5
    assert retry_after({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=60))
    assert 50 < (retry_after({"retry-after": later}) or 0) <= 60
    assert retry_after({"retry-after": format_datetime(datetime.now(UTC) - timedelta(hours=1))}) == 0
    for value in ("", "soon", "-5", "Wed, 99 Foo 2020", "nan", "1e400"):
        assert retry_after({"retry-after": value}) is None
    assert retry_after({}) is None
    assert retry_after({"retry-after": "9" * 400}) == retry_after({"retry-after-ms": "9" * 400}) == 365 * 86400
