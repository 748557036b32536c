"""The client ID metadata document: who we are as an OAuth client, served at its own address. Pure."""

from __future__ import annotations

from typing import Any


def client_id() -> str:
    """The address of the document, which is our client id where authorization servers know such documents."""
    raise NotImplementedError


def redirect_uri() -> str:
    """The address that authorization servers send the browser back to."""
    raise NotImplementedError


def document() -> dict[str, Any]:
    """The document, as JSON (draft-ietf-oauth-client-id-metadata-document)."""
    raise NotImplementedError
