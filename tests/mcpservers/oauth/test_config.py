"""The `oauth` of a definition: what is refused when it is saved."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from mcpservers.definitions import findings
from mcpservers.models import MCPServer
from mcpservers.oauth.config import oauth_findings

KEY = ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.mark.parametrize(
    "oauth",
    [
        None,
        {},
        {"client_id": "c"},
        {"client_id": "c", "client_secret": "s", "scopes": ["a"], "auth_method": "client_secret_post"},
        {"scopes": "a b", "dpop": False},
        {"issuer": "https://login.example.org/tenant", "allow_missing_pkce": True, "resource": False},
        {"authorization_endpoint": "https://a.example/au", "token_endpoint": "https://a.example/to"},
        {"grant": "client_credentials", "client_id": "c", "private_key": KEY},
        {"grant": "jwt-bearer", "client_id": "c", "assertion": "a.b.c\n"},
        {"obo": {}},
        {"obo": {"grant": "jwt-bearer", "scopes": ["api://x/.default"]}, "client_id": "c", "client_secret": "s"},
    ],
)
def test_what_can_work_is_taken(oauth: Any) -> None:
    assert list(oauth_findings(oauth)) == []


@pytest.mark.parametrize(
    ("oauth", "word"),
    [
        ("yes", "described"),
        ([], "described"),
        ({"clientid": "c"}, "clientid"),
        ({"client_id": 3}, "client_id"),
        ({"scopes": ["a b"]}, "scopes"),
        ({"scopes": [1]}, "scopes"),
        ({"issuer": "javascript:alert(1)"}, "issuer"),
        ({"issuer": "https://user:pass@a.example"}, "issuer"),
        ({"token_endpoint": "https://a.example/#x"}, "token_endpoint"),
        ({"authorization_endpoint": "https://a.example/au"}, "token_endpoint"),
        ({"auth_method": "magic", "client_id": "c"}, "auth_method"),
        ({"client_secret": "s"}, "client_id"),
        ({"client_id": "c", "client_secret": "s", "private_key": KEY}, "both"),
        ({"client_id": "c", "private_key": "-----BEGIN NOTHING"}, "PEM"),
        ({"client_id": "c", "auth_method": "private_key_jwt"}, "private_key"),
        ({"grant": "password"}, "grant"),
        ({"grant": "client_credentials", "client_id": "c"}, "client_secret"),
        ({"grant": "client_credentials", "client_id": "c", "client_secret": "s", "obo": {}}, "both"),
        ({"grant": "jwt-bearer", "client_id": "c"}, "assertion"),
        ({"grant": "jwt-bearer", "assertion": "a.b.c"}, "client_id"),
        ({"grant": "jwt-bearer", "client_id": "c", "assertion": ["a.b.c"]}, "assertion"),
        ({"grant": "jwt-bearer", "client_id": "c", "assertion": "a.b\n.c"}, "line breaks"),
        ({"grant": "jwt-bearer", "client_id": "c", "assertion": "a.b.c", "obo": {}}, "both"),
        ({"client_id": "c", "assertion": "a.b.c"}, "jwt-bearer"),
        ({"resource": True}, "resource"),
        ({"allow_missing_pkce": "yes"}, "allow_missing_pkce"),
        ({"dpop": "ES256"}, "dpop"),
        ({"obo": []}, "obo"),
        ({"obo": {"grant": "magic"}}, "obo.grant"),
        ({"obo": {"token_endpoint": "ftp://a"}}, "obo.token_endpoint"),
        ({"obo": {"who": "me"}}, "who"),
    ],
)
def test_what_cannot_work_is_told_by_its_key(oauth: Any, word: str) -> None:
    found = list(oauth_findings(oauth))
    assert any(word in message for message in found), found


def test_no_finding_repeats_a_secret() -> None:
    oauth = {
        "client_secret": "canary-1",
        "private_key": "canary-2",
        "assertion": "canary 3 canary-4",
        "auth_method": "canary",
        "scopes": [1],
    }
    assert not any("canary-" in message for message in oauth_findings(oauth))


def test_a_definition_with_odd_oauth_is_refused_where_it_is_saved() -> None:
    server = MCPServer(slug="notes", title="Notes", url="https://notes.example/mcp", oauth={"client_secret": "s"})
    assert [field for field, _ in findings(server)] == ["oauth"]
    server.oauth = {}
    assert list(findings(server)) == []


# --- What a token is bound to -----------------------------------------------------------------------------------------


def binding(**fields: Any) -> str:
    values = {"slug": "notes", "title": "Notes", "url": "https://notes.example/mcp", "oauth": {"client_id": "c"}}
    return MCPServer(**(values | fields)).oauth_binding()


@pytest.mark.parametrize(
    "fields",
    [
        {"title": "Other"},
        {"url": "https://NOTES.example/mcp"},
        {"url": "https://notes.example/mcp?key=1"},
        {"headers": {"X-A": "b"}},
        {"oauth": {"client_id": "c", "client_secret": "new", "scopes": ["a"], "allow_missing_pkce": True}},
    ],
)
def test_what_does_not_change_where_a_token_goes_keeps_the_link(fields: Any) -> None:
    assert binding(**fields) == binding()


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "http://notes.example/mcp"},
        {"url": "https://notes.example:8443/mcp"},
        {"url": "https://notes.example/other"},
        {"url": "https://notes.example.org/mcp"},
        {"oauth": {"client_id": "d"}},
        {"oauth": {"client_id": "c", "issuer": "https://other.example"}},
        {"oauth": {"client_id": "c", "token_endpoint": "https://other.example/t"}},
        {"oauth": None},
    ],
)
def test_what_changes_where_a_token_goes_ends_the_link(fields: Any) -> None:
    assert binding(**fields) != binding()


def test_saying_what_was_learnt_ends_no_link() -> None:
    assert binding(oauth=None) == binding(oauth={})
