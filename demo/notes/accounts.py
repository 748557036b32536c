"""Who has an account at the notes server, what each wrote, and who may act for them: kept in one file."""

from __future__ import annotations

import json
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

IDENTITY, READ, WRITE = "openid", "notes:read", "notes:write"
SCOPES = {IDENTITY: "See your name and e-mail address", READ: "Read your notes", WRITE: "Write new notes"}
FIRST = (IDENTITY, READ)  # what an application should ask for at first
CODE_SECONDS = 120
ACCESS_SECONDS = 600  # short, so that the demonstration shows a refresh, too
REFRESH_SECONDS = 90 * 24 * 3600
_MOST_NOTES = 100


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with an account. `subject` names them in tokens."""

    subject: str
    name: str
    email: str


PEOPLE = {
    person.subject: person
    for person in (
        Person("mira", "Mira Santos", "mira@cafe.example"),
        Person("jonas", "Jonas Weber", "jonas@cafe.example"),
    )
}
FIRST_NOTES = {
    "mira": ["Ask Ines about the decaf beans", "Dentist on Thursday at four"],
    "jonas": ["Bring the bread knife back", "Try the lemon cake with less sugar"],
}


class Accounts(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """The authorization server's memory. `file` keeps it over a restart; None: it is forgotten.

    Refresh tokens are good for one use (RFC 9700 4.14.2): one that comes again ends everything of its consent.
    """

    def __init__(self, consent_url: str, file: Path | None = None) -> None:
        self.consent_url = consent_url
        self._file = file
        self._asking: dict[str, tuple[OAuthClientInformationFull, AuthorizationParams]] = {}
        self._codes: dict[str, AuthorizationCode] = {}
        stored = _read(file)
        self._clients: dict[str, dict[str, Any]] = stored.get("clients", {})
        self._tokens: dict[str, dict[str, Any]] = stored.get("tokens", {})
        self._notes: dict[str, list[str]] = stored.get("notes", FIRST_NOTES)

    # --- Notes ----------------------------------------------------------------------------------------------------

    def notes(self, subject: str) -> list[str]:
        return list(self._notes.get(subject, ()))

    def add_note(self, subject: str, text: str) -> int:
        """Keep a note; how many there are now."""
        notes = [*self.notes(subject), text][-_MOST_NOTES:]  # a demonstration does not grow for ever
        self._notes = self._notes | {subject: notes}
        self._save()
        return len(notes)

    # --- Clients --------------------------------------------------------------------------------------------------

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        stored = self._clients.get(client_id)
        return OAuthClientInformationFull.model_validate(stored) if stored is not None else None

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        client_info.scope = " ".join(SCOPES)  # any client may ask for any of them: the person decides
        assert client_info.client_id is not None
        self._clients[client_info.client_id] = client_info.model_dump(mode="json", exclude_none=True)
        self._save()

    # --- Consent ----------------------------------------------------------------------------------------------------

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        """The address of the consent page for this request."""
        request = secrets.token_urlsafe(16)
        self._asking[request] = (client, params)
        while len(self._asking) > 100:
            self._asking.pop(next(iter(self._asking)))
        return f"{self.consent_url}?request={request}"

    def asked(self, request: str) -> tuple[OAuthClientInformationFull, AuthorizationParams] | None:
        return self._asking.get(request)

    def decide(self, request: str, subject: str, allow: bool) -> str | None:
        """Where the browser goes after the person decided; None if nobody asked (any more)."""
        asked = self._asking.pop(request, None)
        if asked is None:
            return None
        client, params = asked
        back = str(params.redirect_uri)
        if not allow or subject not in PEOPLE:
            return construct_redirect_uri(back, error="access_denied", state=params.state)
        code = AuthorizationCode(
            code=secrets.token_urlsafe(24),
            scopes=params.scopes or [*FIRST],
            expires_at=time.time() + CODE_SECONDS,
            client_id=client.client_id or "",
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
            subject=subject,
        )
        self._codes[code.code] = code
        return construct_redirect_uri(back, code=code.code, state=params.state)

    # --- Tokens -----------------------------------------------------------------------------------------------------

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self._codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self._codes[authorization_code.code]
        return self._issue(authorization_code, authorization_code.scopes, secrets.token_hex(8))

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        stored = self._live(refresh_token, "refresh")
        if stored is None:
            return None
        return RefreshToken.model_validate({"token": refresh_token} | stored)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        stored = self._tokens[refresh_token.token]
        if stored["spent"]:
            self._forget_family(stored["family"])
            raise TokenError("invalid_grant", "This refresh token was used before.")
        stored["spent"] = True
        return self._issue(refresh_token, scopes, stored["family"])

    async def load_access_token(self, token: str) -> AccessToken | None:
        stored = self._live(token, "access")
        return AccessToken.model_validate({"token": token} | stored) if stored is not None else None

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.revoke(token.token, token.client_id)

    def revoke(self, token: str, client_id: str) -> None:
        """End everything that came from the same consent as `token`, if it is one of this client's."""
        stored = self._tokens.get(token)
        if stored is not None and stored["client_id"] == client_id:
            self._forget_family(stored["family"])

    def _live(self, token: str, kind: str) -> dict[str, Any] | None:
        stored = self._tokens.get(token)
        if stored is None or stored["kind"] != kind or stored["expires_at"] < time.time():
            return None
        return stored

    def _issue(self, of: AuthorizationCode | RefreshToken, scopes: list[str], family: str) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        now = int(time.time())
        same = {"client_id": of.client_id, "subject": of.subject, "resource": of.resource, "family": family}
        self._tokens[access] = same | {"kind": "access", "scopes": scopes, "expires_at": now + ACCESS_SECONDS}
        self._tokens[refresh] = same | {
            "kind": "refresh",
            "scopes": of.scopes,
            "expires_at": now + REFRESH_SECONDS,
            "spent": False,
        }
        self._save()
        return OAuthToken(
            access_token=access,
            token_type="Bearer",
            expires_in=ACCESS_SECONDS,
            scope=" ".join(scopes),
            refresh_token=refresh,
        )

    def _forget_family(self, family: str) -> None:
        self._tokens = {token: stored for token, stored in self._tokens.items() if stored["family"] != family}
        self._save()

    def _save(self) -> None:
        if self._file is None:
            return
        now = time.time()
        self._tokens = {token: stored for token, stored in self._tokens.items() if stored["expires_at"] > now}
        kept = {"clients": self._clients, "tokens": self._tokens, "notes": self._notes}
        new = self._file.with_suffix(".new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as text:
            json.dump(kept, text, indent=1, ensure_ascii=False)
        os.replace(new, self._file)


def _read(file: Path | None) -> dict[str, Any]:
    """What was kept; nothing if there is no file, or none that can be read."""
    try:
        stored = json.loads(file.read_text()) if file is not None else {}
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}
