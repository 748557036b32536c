"""The client ID metadata document: who we are as an OAuth client, served at its own address. Pure."""

from __future__ import annotations

from typing import Any

from django.conf import settings

NAME = "chatui"
CALLBACK = "/mcp/oauth/callback"
DOCUMENT = "/mcp/oauth/client.json"


def client_id() -> str:
    """The address of the document, which is our client id where authorization servers know such documents."""
    return str(settings.MCP_CLIENT_METADATA_URL) or settings.BASE_URL + DOCUMENT


def is_served() -> bool:
    """Whether there is such a document: it is named by https, or not at all (section 3 of its draft)."""
    return client_id().startswith("https://")


def redirect_uri() -> str:
    """The address that authorization servers send the browser back to."""
    return str(settings.BASE_URL) + CALLBACK


def description() -> dict[str, Any]:
    """What we tell of ourselves, in a document or at a registration (RFC 7591, section 2)."""
    return {
        "client_name": NAME,
        "client_uri": settings.BASE_URL,
        "redirect_uris": [redirect_uri()],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "application_type": "web",
    }


def document() -> dict[str, Any]:
    """The document, as JSON (draft-ietf-oauth-client-id-metadata-document). Such a client is public."""
    return {"client_id": client_id(), **description(), "token_endpoint_auth_method": "none"}
