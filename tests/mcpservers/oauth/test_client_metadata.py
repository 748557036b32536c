"""The document that says who we are."""

from __future__ import annotations

from typing import Any

from mcpservers.oauth import client_metadata


def test_the_document_is_named_by_its_own_address_and_holds_no_secret() -> None:
    document = client_metadata.document()
    assert document["client_id"] == "http://testserver/mcp/oauth/client.json"
    assert document["redirect_uris"] == ["http://testserver/mcp/oauth/callback"]
    assert document["token_endpoint_auth_method"] == "none"
    assert set(document["grant_types"]) == {"authorization_code", "refresh_token"}
    assert "client_secret" not in document


def test_it_can_stand_elsewhere(settings: Any) -> None:
    settings.MCP_CLIENT_METADATA_URL = "https://public.example/chatui.json"
    assert client_metadata.document()["client_id"] == "https://public.example/chatui.json"
    assert client_metadata.document()["redirect_uris"] == ["http://testserver/mcp/oauth/callback"]
