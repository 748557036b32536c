"""`WWW-Authenticate`, as servers write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpservers.oauth.challenges import Challenge, parse_challenge, scopes_in


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", Challenge()),
        ("Basic realm=x", Challenge()),
        ('Bearer realm="x"', Challenge()),
        ("bearer scope=a", Challenge(scope=("a",))),
        ('Bearer scope="a b  a"', Challenge(scope=("a", "b"))),
        ('Bearer resource_metadata="https://a/x,y"', Challenge(resource_metadata="https://a/x,y")),
        ('Basic realm="Bearer scope=a", Bearer scope="b"', Challenge(scope=("b",))),
        ('Bearer scope="a", Basic realm="r", error="no"', Challenge(scope=("a",))),
        ('Bearer Error = "insufficient_scope" , SCOPE="a"', Challenge("insufficient_scope", ("a",))),
        (r'Bearer error_description="say \"hi\""', Challenge(description='say "hi"')),
        ('Bearer scope="a', Challenge()),
        ("Bearer error=invalid_token", Challenge("invalid_token")),
        ('DPoP resource_metadata="https://a/x"', Challenge(resource_metadata="https://a/x", dpop=True)),
        ('Bearer, dpop algs="ES256 PS256"', Challenge(dpop=True)),
        ('DPoP algs="PS256", Bearer scope="a"', Challenge(scope=("a",))),
        (
            'Bearer scope="a", DPoP error="use_dpop_nonce"',
            Challenge("use_dpop_nonce", ("a",), dpop=True, refused_proof="use_dpop_nonce"),
        ),
        ('DPoP error="invalid_token"', Challenge("invalid_token", dpop=True)),
        ('Basic error="use_dpop_nonce"', Challenge()),
    ],
)
def test_the_first_challenges_of_the_kinds_that_we_answer_count(header: str, expected: Challenge) -> None:
    assert parse_challenge(header) == expected


def test_hidden_characters_of_a_challenge_are_not_kept() -> None:
    said = parse_challenge('Bearer error_description="a\u202eb", scope="x\u200b good"')
    assert said.description == "ab"
    assert said.scope == ("good",)


@given(st.text(max_size=300))
def test_no_header_is_too_odd(header: str) -> None:
    parse_challenge(header)
    parse_challenge("Bearer " + header)


def test_a_very_long_header_is_read_in_part() -> None:
    assert parse_challenge("Bearer " + 'a="' * 100_000) == Challenge()


@pytest.mark.parametrize("value", [None, 3, {"a": 1}, [1, None, "a b"], '"'])
def test_what_is_no_scope_is_left_out(value: object) -> None:
    assert scopes_in(value) == ()
