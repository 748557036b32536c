"""What of a metadata document is believed, and where documents are looked for."""

from __future__ import annotations

from typing import Any

import pytest

from mcpservers.errors import LinkError
from mcpservers.oauth import metadata
from mcpservers.oauth.metadata import Discovered

AS = {
    "issuer": "https://a.example",
    "authorization_endpoint": "https://a.example/au",
    "token_endpoint": "https://a.example/to",
    "code_challenge_methods_supported": ["S256"],
}


def endpoints(issuer: str = "https://a.example", allow: bool = False, **changes: Any) -> dict[str, Any]:
    document = {key: value for key, value in (AS | changes).items() if value is not None}
    return metadata.endpoints_in(document, issuer, allow_missing_pkce=allow)


def test_where_metadata_of_a_server_are() -> None:
    root = "https://mcp.example/.well-known/oauth-protected-resource"
    assert metadata.resource_metadata_urls("https://mcp.example/a/mcp?x=1") == [root + "/a/mcp", root]
    assert metadata.resource_metadata_urls("https://MCP.example/") == [root]


def test_where_metadata_of_an_issuer_are() -> None:
    assert metadata.issuer_metadata_urls("https://a.example/") == [
        "https://a.example/.well-known/oauth-authorization-server",
        "https://a.example/.well-known/openid-configuration",
    ]
    assert metadata.issuer_metadata_urls("https://a.example/t/1") == [
        "https://a.example/.well-known/oauth-authorization-server/t/1",
        "https://a.example/.well-known/openid-configuration/t/1",
        "https://a.example/t/1/.well-known/openid-configuration",
    ]


@pytest.mark.parametrize(
    "resource",
    ["https://mcp.example", "https://mcp.example/", "https://mcp.example/mcp", "https://mcp.example/mcp/"],
)
def test_a_resource_is_kept_byte_for_byte(resource: str) -> None:
    assert metadata.resource_in({"resource": resource}, "https://mcp.example/mcp") == resource


@pytest.mark.parametrize(
    "resource",
    [
        "http://mcp.example/mcp",
        "https://evil.example/mcp",
        "https://mcp.example:444/mcp",
        "https://mcp.example/mc",
        "https://mcp.example/mcp/more",
        "https://mcp.example.evil.example/mcp",
        "https://mcp.example@evil.example/mcp",
        "mcp",
        "",
        None,
        7,
    ],
)
def test_a_resource_of_another_address_is_refused(resource: Any) -> None:
    with pytest.raises(LinkError) as raised:
        metadata.resource_in({"resource": resource}, "https://mcp.example/mcp")
    assert raised.value.reason == "resource_mismatch"


def test_a_resource_that_lost_its_tls_is_refused_with_both_addresses() -> None:
    with pytest.raises(LinkError) as raised:
        metadata.resource_in({"resource": "http://mcp.example/mcp"}, "https://mcp.example/mcp")
    assert "http://mcp.example/mcp" in raised.value.public_message
    assert "https://mcp.example/mcp" in raised.value.public_message


def test_a_server_that_does_not_name_itself_is_its_address() -> None:
    assert metadata.canonical_resource("https://MCP.example/") == "https://mcp.example"
    assert metadata.canonical_resource("https://mcp.example/mcp") == "https://mcp.example/mcp"
    assert metadata.literal_part("https://mcp.example/{{KEY}}/mcp?x={{Y}}") == "https://mcp.example/"
    assert metadata.literal_part("https://mcp.example/a/mcp?x=1#f") == "https://mcp.example/a/mcp"


@pytest.mark.parametrize("issuer", ["https://evil.example", "https://a.example/x", "http://a.example", None, 3])
def test_metadata_of_another_issuer_are_refused(issuer: Any) -> None:
    with pytest.raises(LinkError) as raised:
        metadata.endpoints_in(AS | {"issuer": issuer}, "https://a.example", allow_missing_pkce=False)
    assert raised.value.reason == "issuer_mismatch"


def test_the_slash_of_a_bare_host_makes_no_other_issuer() -> None:
    assert endpoints(issuer="https://a.example/")["issuer"] == "https://a.example"
    with pytest.raises(LinkError):
        metadata.endpoints_in(AS | {"issuer": "https://a.example/t/"}, "https://a.example/t", allow_missing_pkce=False)


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "//a.example/x",
        "https://",
        "https://u:p@a.example/",
        "https://a.example/\n",
        "http://a.example/plain",
        "https://good.example\\@evil.example/",
        "https://169.254.169.254/latest",
        "https://10.0.0.1/",
        "https://[::1]/",
        "https://0x7f.1/",
        "https://a.example/" + "x" * 3000,
        None,
        {"a": 1},
    ],
)
@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint"])
def test_an_endpoint_that_may_not_be_used_ends_it(name: str, address: Any, settings: Any) -> None:
    settings.MCP_ALLOW_PRIVATE = []
    with pytest.raises(LinkError) as raised:
        endpoints(**{name: address})
    assert raised.value.reason in ("bad_metadata", "address_refused")


def test_for_a_person_s_own_server_no_endpoint_is_where_an_operator_allows_others(settings: Any) -> None:
    settings.MCP_ALLOW_PRIVATE = ["10.0.0.1"]
    document = AS | {"issuer": "https://a.example", "authorization_endpoint": "http://10.0.0.1/authorize"}
    assert metadata.endpoints_in(document, "https://a.example", allow_missing_pkce=False)
    with pytest.raises(LinkError) as raised:
        metadata.endpoints_in(document, "https://a.example", allow_missing_pkce=False, extra=None)
    assert raised.value.reason == "address_refused"
    assert "MCP_ALLOW_PRIVATE" not in raised.value.public_message


def test_an_odd_endpoint_that_is_not_needed_is_left_out_with_a_warning() -> None:
    found = endpoints(registration_endpoint="javascript:alert(1)", revocation_endpoint=7)
    assert found["registration_endpoint"] == found["revocation_endpoint"] == ""
    assert len(found["warnings"]) == 2


def test_where_pkce_is_not_announced_an_admin_has_to_allow_it() -> None:
    with pytest.raises(LinkError) as raised:
        endpoints(code_challenge_methods_supported=None)
    assert raised.value.reason == "no_pkce"
    assert "allow_missing_pkce" in raised.value.for_admin
    assert endpoints(code_challenge_methods_supported=None, allow=True)["pkce"] is False


@pytest.mark.parametrize("methods", [["plain"], ["s256"], ["none", "plain"]])
def test_where_only_less_than_s256_is_announced_nobody_can_allow_it(methods: list[str]) -> None:
    with pytest.raises(LinkError):
        endpoints(code_challenge_methods_supported=methods, allow=True)


def test_odd_lists_are_read_as_far_as_they_go() -> None:
    found = endpoints(
        scopes_supported="a b", token_endpoint_auth_methods_supported={"x": 1}, prompt_values_supported=[1]
    )
    assert found["scopes_supported"] == ("a", "b")
    assert found["auth_methods"] == found["prompts"] == ()


def test_what_is_stored_is_what_was_found() -> None:
    found = Discovered(resource="https://mcp.example", scopes=("a",), **endpoints())
    stored = found.as_json() | {"of a later release": 1}
    assert Discovered.from_json({key: list(v) if isinstance(v, tuple) else v for key, v in stored.items()}) == found
