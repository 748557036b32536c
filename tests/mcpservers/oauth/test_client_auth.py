"""How we prove who we are at a token endpoint."""

from __future__ import annotations

import base64
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from mcpservers.errors import LinkError
from mcpservers.oauth.client_auth import Credentials, method_for


def pem(key: Any) -> str:
    return str(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


def test_basic_has_both_parts_form_encoded_and_no_secret_in_the_body() -> None:
    headers, form = Credentials("app:1", "client_secret_basic", "p%ss:w/rd é").apply("https://a.example")
    pair = "app%3A1:p%25ss%3Aw%2Frd+%C3%A9"
    assert headers == {"authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
    assert form == {"client_id": "app:1"}  # which servers built with the official Python SDK want there


def test_post_has_both_in_the_body_and_no_header() -> None:
    assert Credentials("c", "client_secret_post", "s").apply("x") == ({}, {"client_id": "c", "client_secret": "s"})


def test_a_public_client_says_who_it_is() -> None:
    assert Credentials("c", "none").apply("x") == ({}, {"client_id": "c"})


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (rsa.generate_private_key(65537, 2048), "RS256"),
        (ec.generate_private_key(ec.SECP256R1()), "ES256"),
        (ec.generate_private_key(ec.SECP384R1()), "ES384"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ],
)
def test_an_assertion_is_signed_with_what_fits_the_key_and_meant_for_the_issuer(key: Any, algorithm: str) -> None:
    credentials = Credentials("c", "private_key_jwt", private_key=pem(key), key_id="k1")
    (_, form), (_, again) = credentials.apply("https://a.example"), credentials.apply("https://a.example")
    claims = jwt.decode(form["client_assertion"], key.public_key(), [algorithm], audience="https://a.example")
    assert claims["iss"] == claims["sub"] == form["client_id"] == "c"
    assert claims["exp"] - claims["iat"] <= 300
    assert jwt.get_unverified_header(form["client_assertion"])["kid"] == "k1"
    assert claims["jti"] != jwt.decode(again["client_assertion"], options={"verify_signature": False})["jti"]


@pytest.mark.parametrize("algorithm", ["RS256", "nonsense"])
def test_a_key_that_cannot_sign_is_an_error_for_the_admin(algorithm: str) -> None:
    key = pem(ec.generate_private_key(ec.SECP256R1()))
    with pytest.raises(LinkError) as raised:
        Credentials("c", "private_key_jwt", private_key=key, key_algorithm=algorithm).apply("x")
    assert "BEGIN" not in str(raised.value)


@pytest.mark.parametrize(
    ("supported", "secret", "key", "wanted", "expected"),
    [
        ((), True, False, "", "client_secret_basic"),
        (("client_secret_basic",), True, False, "", "client_secret_basic"),
        (("client_secret_post",), True, False, "", "client_secret_post"),
        (("client_secret_post", "client_secret_basic"), True, False, "", "client_secret_basic"),
        (("client_secret_basic",), True, False, "client_secret_post", "client_secret_post"),
        (("client_secret_basic",), False, False, "", "none"),
        ((), False, True, "", "private_key_jwt"),
    ],
)
def test_the_method_follows_the_definition_then_the_metadata(
    supported: tuple[str, ...], secret: bool, key: bool, wanted: str, expected: str
) -> None:
    assert method_for(supported, secret=secret, key=key, wanted=wanted) == expected


def test_no_repr_shows_a_secret() -> None:
    assert "canary" not in repr(Credentials("c", "client_secret_basic", "canary-1", "canary-2"))
