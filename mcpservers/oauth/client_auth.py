"""How we prove to an authorization server who we are: RFC 6749, section 2.3.1, and RFC 7523, section 2.2. Pure."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote_plus
from uuid import uuid4

from mcpservers.errors import LinkError
from mcpservers.models import MCPServer, OAuthClient

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Credentials:
    """A client as it shows itself at a token endpoint. Its `repr` shows no secret."""

    client_id: str
    method: str
    secret: str = field(default="", repr=False)
    private_key: str = field(default="", repr=False)  # PEM
    key_id: str = ""
    key_algorithm: str = ""

    def apply(self, issuer: str) -> tuple[dict[str, str], dict[str, str]]:
        """The headers and the form fields that prove it to `issuer`. Raises `LinkError` for a key that cannot sign."""
        match self.method:
            case "client_secret_basic":
                # Both parts are form-encoded first, which RFC 6749 asks for and few remember.
                pair = f"{quote_plus(self.client_id)}:{quote_plus(self.secret)}"
                header = "Basic " + base64.b64encode(pair.encode()).decode()
                # Servers built with the official Python SDK look for the id in the form, whatever the method.
                return {"authorization": header}, {"client_id": self.client_id}
            case "client_secret_post":
                return {}, {"client_id": self.client_id, "client_secret": self.secret}
            case "private_key_jwt":
                form = {"client_assertion_type": ASSERTION_TYPE, "client_assertion": self._assertion(issuer)}
                return {}, {"client_id": self.client_id, **form}
        return {}, {"client_id": self.client_id}

    def _assertion(self, issuer: str) -> str:
        import jwt  # slow to import, and few servers need it
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        now = int(time.time())
        claims = {
            "iss": self.client_id,
            "sub": self.client_id,
            "aud": issuer,
            "iat": now,
            "exp": now + ASSERTION_SECONDS,
            "jti": uuid4().hex,
        }
        try:
            key = load_pem_private_key(self.private_key.encode(), None)
            headers = {"kid": self.key_id} if self.key_id else None
            return jwt.encode(claims, self.private_key, self.key_algorithm or _algorithm(key), headers=headers)
        except (ValueError, TypeError, NotImplementedError, jwt.PyJWTError):
            detail = "The private_key in the server's OAuth cannot sign (key_algorithm may be wrong)."
            raise LinkError(
                "client_refused", "The sign-in is not set up well. Tell an administrator.", for_admin=detail
            ) from None


def _algorithm(key: PrivateKeyTypes) -> str:
    """The algorithm that a key signs with, unless the definition says otherwise (RFC 7518, section 3.1; RFC 8037)."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if isinstance(key, EllipticCurvePrivateKey):
        return {384: "ES384", 521: "ES512"}.get(key.curve.key_size, "ES256")
    return "EdDSA" if isinstance(key, Ed25519PrivateKey) else "RS256"


def method_for(supported: Iterable[str], *, secret: bool, key: bool, wanted: str = "") -> str:
    """How a client that has a secret, a key or neither proves itself where `supported` is known (empty: it is not)."""
    if wanted:
        return wanted
    if key:
        return "private_key_jwt"
    if not secret:
        return "none"
    known = tuple(supported)
    # RFC 8414, section 2: where nothing is said it is client_secret_basic.
    return (
        "client_secret_post"
        if "client_secret_post" in known and "client_secret_basic" not in known
        else "client_secret_basic"
    )


def credentials_of(client: OAuthClient, server: MCPServer) -> Credentials:
    """The credentials of `client`; of a configured one as the definition has them now."""
    if client.source != OAuthClient.Source.CONFIGURED:
        return Credentials(client.client_id, client.auth_method, str(client.secrets.get("client_secret") or ""))
    return configured(server, client.auth_method)


def configured(server: MCPServer, method: str) -> Credentials:
    """The credentials that the definition holds."""
    oauth = server.oauth or {}
    return Credentials(
        client_id=str(oauth.get("client_id") or ""),
        method=method,
        secret=str(oauth.get("client_secret") or ""),
        private_key=str(oauth.get("private_key") or ""),
        key_id=str(oauth.get("key_id") or ""),
        key_algorithm=str(oauth.get("key_algorithm") or ""),
    )


def configured_method(server: MCPServer, supported: Iterable[str]) -> str:
    """How the configured client proves itself."""
    oauth = server.oauth or {}
    wanted = str(oauth.get("auth_method") or "")
    return method_for(
        supported, secret=bool(oauth.get("client_secret")), key=bool(oauth.get("private_key")), wanted=wanted
    )
