"""A request to a token endpoint and what its answer is worth: RFC 6749, sections 5.1 and 5.2, as servers write it."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from chatui.text import shorten
from mcpservers.errors import LinkError
from mcpservers.oauth import dpop
from mcpservers.oauth.challenges import scopes_in
from mcpservers.oauth.client_auth import Credentials
from mcpservers.oauth.web import Answer, Web
from mcpservers.visible import visible

LONGEST_TOKEN = 64 * 1024
LONGEST_LIFE = 10 * 365 * 86400.0
AHEAD_SECONDS = 300.0  # before a token expires it is renewed, if it lives long enough
# RFC 9110, 5.5: what may stand in a header's value; a token of ours goes there.
_TOKEN = re.compile(r"[\x21-\x7e]+\Z")
_SECRET_FIELDS = ("code", "code_verifier", "refresh_token", "assertion", "subject_token")
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_BEGINNING = 24  # characters by which a secret is recognized
_PASSING = dpop.PROOF_ERRORS | {"temporarily_unavailable", "server_error", "slow_down", "authorization_pending"}
_BOUND = dpop.SCHEME.lower()


@dataclass(frozen=True, slots=True)
class Granted:
    """Tokens. `seconds` is how long the access token lives (None: not known); `said` is the rest of the answer.

    With a `key` the request had a proof of it: then it is needed to refresh, whatever `kind` the access token is of.
    """

    access_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)
    id_token: str = field(default="", repr=False)
    scopes: tuple[str, ...] | None = None  # None: as asked for
    seconds: float | None = None
    said: Mapping[str, Any] = field(default_factory=dict, repr=False)
    kind: str = "bearer"  # in lower case
    key: str = field(default="", repr=False)

    @property
    def token(self) -> str:
        """The access token, as it is to be sent."""
        return dpop.token_in(self.tokens())

    def tokens(self, kept: Mapping[str, Any] | None = None) -> dict[str, str]:
        """As they are stored; a refresh token that the answer left out stays (RFC 6749, section 6).

        Unless it is bound to a key that is given up with this.
        """
        found, kept = {"access_token": self.access_token}, kept or {}
        if self.key:
            found[dpop.KEY] = self.key
        if self.kind == _BOUND:
            found[dpop.KIND] = dpop.SCHEME
        same = kept.get(dpop.KEY, self.key) == self.key
        refresh = self.refresh_token or str((same and kept.get("refresh_token")) or "")
        if refresh:
            found["refresh_token"] = refresh
        return found

    def times(self, now: datetime, *, renewable: bool) -> dict[str, datetime | None]:
        """When it expires, and when it is to be renewed ahead of that."""
        if self.seconds is None:
            return {"expires_at": None, "refresh_at": None}
        ahead = min(AHEAD_SECONDS, self.seconds / 4)
        due = now + timedelta(seconds=self.seconds - ahead)
        return {"expires_at": now + timedelta(seconds=self.seconds), "refresh_at": due if renewable else None}


class GrantRefusedError(Exception):
    """The token endpoint said no, in its own words made safe. `passing`: the same request may succeed later."""

    def __init__(self, error: str, description: str = "", *, passing: bool = False, status: int = 400) -> None:
        super().__init__(f"{error}: {description}" if description else error)
        self.error, self.description, self.passing, self.status = error, description, passing, status

    def without(self, secrets: Iterable[str]) -> GrantRefusedError:
        """The same, if the server repeated none of `secrets`, nor how one begins; else without its words."""
        beginnings = [secret[:_BEGINNING] for secret in secrets if secret]  # what was said is cut, maybe within one
        if not any(each in str(self) for each in beginnings):
            return self
        error = "refused" if any(each in self.error for each in beginnings) else self.error
        return GrantRefusedError(error, passing=self.passing, status=self.status)

    @property
    def of_client(self) -> bool:
        """Whether it is us that the server does not know, not the grant that it does not take."""
        return self.error in ("invalid_client", "unauthorized_client")


async def request_token(
    web: Web,
    endpoint: str,
    issuer: str,
    credentials: Credentials,
    form: Mapping[str, str],
    kinds: Collection[str] = ("bearer",),
    *,
    key: str = "",
) -> Granted:
    """The tokens, of one of the `kinds`, that `endpoint` gives for `form`; with a `key` it may bind them to that.

    Raises `GrantRefusedError`; `LinkError` for what is no answer.
    """
    answer = await _asked(web, endpoint, issuer, credentials, form, key)
    if key and _wants_nonce(answer):
        answer = await _asked(web, endpoint, issuer, credentials, form, key)
    try:
        return replace(granted(answer, (*kinds, _BOUND) if key else kinds), key=key)
    except GrantRefusedError as error:
        secrets = [credentials.secret, *(form[name] for name in _SECRET_FIELDS if name in form)]
        raise error.without(secrets) from None  # servers repeat what they refuse


async def _asked(
    web: Web, endpoint: str, issuer: str, credentials: Credentials, form: Mapping[str, str], key: str
) -> Answer:
    """One request; whatever is signed for it is good for this one alone. The issuer's nonce is remembered."""
    headers, proof = credentials.apply(issuer)
    if key:
        nonce = dpop.OF_ISSUERS.of(endpoint, key)
        headers = {**headers, dpop.PROOF: dpop.proof("POST", endpoint, key=key, nonce=nonce)}
    answer = await web.post_form(endpoint, {**form, **proof}, headers)
    if key:
        dpop.OF_ISSUERS.keep(endpoint, key, answer.headers)
    return answer


def _wants_nonce(answer: Answer) -> bool:
    """RFC 9449, section 8: the grant was not looked at."""
    refused = answer.status in (400, 401) and dpop.NONCE in answer.headers
    return refused and (answer.fields() or {}).get("error") == dpop.WANTS_NONCE


def granted(answer: Answer, kinds: Collection[str] = ("bearer",)) -> Granted:
    """What an answer of a token endpoint grants. Raises as `request_token`."""
    said = answer.fields()
    if answer.status != 200:
        raise _refusal(answer, said or {})
    if said is None:
        raise _unusable(answer, "is not JSON")
    token = said.get("access_token")
    if not isinstance(token, str) or not token:
        if isinstance(said.get("error"), str):
            raise _refusal(answer, said)  # HTTP 200 with an error, as some servers do
        raise _unusable(answer, "holds no access_token")
    if len(token) > LONGEST_TOKEN or not _TOKEN.match(token):
        raise _unusable(answer, "holds a token that no header can carry")
    kind = said.get("token_type", "bearer")
    if not isinstance(kind, str) or kind.strip().lower() not in kinds:
        raise _unusable(answer, "holds a token of a kind that was not asked for")
    return Granted(
        access_token=token,
        refresh_token=_text(said.get("refresh_token")),
        id_token=_text(said.get("id_token")),
        scopes=scopes_in(said["scope"]) if isinstance(said.get("scope"), str | list) else None,
        seconds=lifetime(said.get("expires_in")),
        said={key: value for key, value in said.items() if not key.endswith("token")},
        kind=kind.strip().lower(),
    )


def lifetime(expires_in: object) -> float | None:
    """Seconds that a token lives, at most ten years; None where the server does not say it in a number."""
    if isinstance(expires_in, str) and re.fullmatch(r"\s*\d{1,15}(\.\d{1,9})?\s*", expires_in):
        expires_in = float(expires_in)
    if isinstance(expires_in, bool) or not isinstance(expires_in, int | float):
        return None
    if isinstance(expires_in, float) and not math.isfinite(expires_in):
        return None
    return float(max(0, min(expires_in, LONGEST_LIFE)))


def _text(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= LONGEST_TOKEN else ""


def _refusal(answer: Answer, said: Mapping[str, Any]) -> GrantRefusedError:
    error = said.get("error")
    if not isinstance(error, str) or not error:
        error, known = f"HTTP {answer.status}", False
    else:
        error, known = shorten(visible(error), 100), True
    description = said.get("error_description")
    words = shorten(visible(description), 300) if isinstance(description, str) else ""
    passing = answer.status == 429 or answer.status >= 500 or error in _PASSING or not known
    return GrantRefusedError(error, words, passing=passing, status=answer.status)


def _unusable(answer: Answer, what: str) -> LinkError:
    return LinkError(
        "bad_answer",
        "The sign-in service answered with something that is no token, so nothing was linked. "
        "Try again later, or tell an administrator.",
        for_admin=f"The answer of {answer.url} {what} (HTTP {answer.status}, {answer.content_type or 'untyped'}).",
    )
