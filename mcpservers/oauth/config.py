"""The keys of a server's `oauth`, and what can be wrong with them. Pure; `docs/how-to/link-accounts.md` lists them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

AUTH_METHODS = ("client_secret_basic", "client_secret_post", "private_key_jwt", "none")
WORKLOAD = "jwt-bearer"
MACHINE_GRANTS = ("client_credentials", WORKLOAD)  # with which the organization has one account
GRANTS = ("authorization_code", *MACHINE_GRANTS)
OBO_GRANTS = ("token-exchange", "jwt-bearer", "id-jag")
SECRETS = ("client_secret", "private_key", "assertion")
_TEXTS = (*SECRETS, "client_id", "key_id", "key_algorithm", "prompt")
_ADDRESSES = ("issuer", "authorization_endpoint", "token_endpoint", "revocation_endpoint")
_SWITCHES = ("allow_missing_pkce", "dpop", "legacy_endpoints", "share_tools")
KEYS = frozenset({*_TEXTS, *_ADDRESSES, *_SWITCHES, "scopes", "auth_method", "grant", "resource", "obo"})
OBO_KEYS = frozenset({"grant", "scopes", "audience", "token_endpoint", "resource"})


def addresses(oauth: Mapping[str, Any]) -> list[str]:
    """To whom its secrets are sent, or speak: what is stated of the issuer's addresses."""
    obo = oauth.get("obo")
    exchange = obo.get("token_endpoint") if isinstance(obo, Mapping) else ""
    return [str(oauth.get(key) or "") for key in _ADDRESSES] + [str(exchange or "")]


def oauth_findings(oauth: Any) -> Iterator[str]:
    """What would keep `oauth` (None: as discovered) from working, in words that never hold a secret."""
    if oauth is None:
        return
    if not isinstance(oauth, Mapping):
        yield "OAuth is described by client_id, client_secret, scopes and other keys; {} means: as discovered."
        return
    yield from (f"There is no key “{key}”." for key in oauth if key not in KEYS)
    yield from _kinds(oauth)
    yield from _grant(oauth)
    yield from _key(oauth)
    if oauth.get("obo") is not None:
        yield from _on_behalf(oauth["obo"], oauth)


def _kinds(oauth: Mapping[str, Any]) -> Iterator[str]:
    for key in _TEXTS:
        if not isinstance(oauth.get(key) or "", str):
            yield f"{key} is a text."
    for key in _SWITCHES:
        if not isinstance(oauth.get(key, False), bool):
            yield f"{key} is true or false."
    for key in _ADDRESSES:
        if oauth.get(key) and not is_web_address(oauth[key]):
            yield f"{key} is an address that starts with https:// (or http:// where the operator allows the host)."
    if not _is_scopes(oauth.get("scopes")):
        yield "scopes is a list of texts without spaces."
    if oauth.get("auth_method") and oauth["auth_method"] not in AUTH_METHODS:
        yield f"auth_method is one of {', '.join(AUTH_METHODS)}."
    if not isinstance(oauth.get("resource") or "", str) or oauth.get("resource") is True:
        yield "resource is a text, or false to send none."
    if bool(oauth.get("authorization_endpoint")) and not oauth.get("token_endpoint"):
        yield "authorization_endpoint needs token_endpoint beside it."


def _grant(oauth: Mapping[str, Any]) -> Iterator[str]:
    grant = oauth.get("grant") or "authorization_code"
    if grant not in GRANTS:
        yield f"grant is one of {', '.join(GRANTS)}."
    if any(oauth.get(key) for key in ("client_secret", "private_key", "auth_method")) and not oauth.get("client_id"):
        yield "A secret, a key or an auth_method belongs to a client_id, which is missing."
    if oauth.get("client_secret") and oauth.get("private_key"):
        yield "A client has a client_secret or a private_key, not both."
    if grant == "client_credentials" and not (
        oauth.get("client_id") and (oauth.get("client_secret") or oauth.get("private_key"))
    ):
        yield "client_credentials needs a client_id and a client_secret or a private_key."
    if grant in MACHINE_GRANTS and oauth.get("obo") is not None:
        yield f"A server has a machine account ({grant}) or is called on behalf of users (obo), not both."
    yield from _workload(oauth)


def _workload(oauth: Mapping[str, Any]) -> Iterator[str]:
    assertion, wanted = oauth.get("assertion"), oauth.get("grant") == WORKLOAD
    if wanted and not (oauth.get("client_id") and assertion):
        yield f"{WORKLOAD} needs a client_id and an assertion, the workload's token."
    if assertion and not wanted:
        yield f"An assertion belongs to grant {WORKLOAD}."
    if isinstance(assertion, str) and len(assertion.split()) > 1:
        yield "assertion is one token, without spaces or line breaks in it."


def _key(oauth: Mapping[str, Any]) -> Iterator[str]:
    pem = oauth.get("private_key")
    if oauth.get("auth_method") == "private_key_jwt" and not pem:
        yield "private_key_jwt needs a private_key."
    if not pem or not isinstance(pem, str) or pem.startswith("${"):
        return
    try:
        load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        yield "private_key is not a private key in PEM without a passphrase."


def _on_behalf(obo: Any, oauth: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(obo, Mapping):
        yield "obo is described by grant, scopes, audience, resource and token_endpoint."
        return
    yield from (f"obo has no key “{key}”." for key in obo if key not in OBO_KEYS)
    if (obo.get("grant") or OBO_GRANTS[0]) not in OBO_GRANTS:
        yield f"obo.grant is one of {', '.join(OBO_GRANTS)}."
    if not _is_scopes(obo.get("scopes")):
        yield "obo.scopes is a list of texts without spaces."
    if obo.get("token_endpoint") and not is_web_address(obo["token_endpoint"]):
        yield "obo.token_endpoint is an address that starts with https://."
    if any(not isinstance(obo.get(key) or "", str) for key in ("audience", "resource")):
        yield "obo.audience and obo.resource are texts."
    if obo.get("grant") == "id-jag" and not oauth.get("client_id"):
        yield "obo.grant id-jag needs the client_id that the server's authorization server knows."


def _is_scopes(value: Any) -> bool:
    if value is None or isinstance(value, str):
        return True
    return isinstance(value, list) and all(isinstance(item, str) and item and " " not in item for item in value)


def is_web_address(value: Any) -> bool:
    """Whether `value` is an absolute http(s) address without user name, password or fragment."""
    if not isinstance(value, str) or any(character.isspace() or ord(character) < 32 for character in value):
        return False
    try:
        parts = urlsplit(value)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.username is None
            and not parts.fragment
            and parts.port != 0
        )
    except ValueError:
        return False
