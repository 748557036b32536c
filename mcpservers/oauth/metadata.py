"""Metadata documents of servers and issuers: where they are found, and what in them may be believed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import urlsplit

from chatui.netguard import AddressRefusedError, Extra, check_url
from mcpservers.errors import LinkError
from mcpservers.oauth.challenges import scopes_in
from mcpservers.oauth.config import is_web_address
from mcpservers.oauth.dpop import ALGORITHM

_LONGEST = 2000
_OPTIONAL = ("registration_endpoint", "revocation_endpoint", "userinfo_endpoint")


@dataclass(frozen=True, slots=True)
class Discovered:
    """Everything that linking needs to know; addresses are checked, what was not told is empty."""

    resource: str  # RFC 8707, byte for byte; "" where none is sent
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str = ""
    revocation_endpoint: str = ""
    userinfo_endpoint: str = ""
    scopes: tuple[str, ...] = ()  # to ask for at first
    scopes_supported: tuple[str, ...] = ()
    auth_methods: tuple[str, ...] = ()  # token_endpoint_auth_methods_supported
    prompts: tuple[str, ...] = ()  # prompt_values_supported
    dpop_algorithms: tuple[str, ...] = ()  # dpop_signing_alg_values_supported
    dpop: bool = False  # tokens are to be bound to a key of ours
    client_id_metadata: bool = False  # client_id_metadata_document_supported
    sends_iss: bool = False  # authorization_response_iss_parameter_supported
    pkce: bool = True  # S256 is announced; else an admin allowed that it is not
    resource_metadata: str = ""  # where the server's own metadata was found
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """As its row keeps it."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Discovered:
        known = {each.name for each in fields(cls)}
        kept: dict[str, Any] = {
            key: tuple(item) if isinstance(item, list) else item for key, item in value.items() if key in known
        }
        return cls(**kept)

    @property
    def host(self) -> str:
        """The host that the person will see while signing in."""
        return urlsplit(self.authorization_endpoint).netloc


# --- Where documents are ------------------------------------------------------------------------------------------


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}"


def literal_part(template: str) -> str:
    """A server's address without query and fragment, up to the first path segment that holds a placeholder."""
    bare = template.partition("#")[0].partition("?")[0]
    cut = min((at for at in (bare.find("{{"), bare.find("${")) if at >= 0), default=-1)
    return bare if cut < 0 else bare[: bare.rfind("/", 0, cut) + 1]


def resource_metadata_urls(url: str) -> list[str]:
    """RFC 9728, section 3.1: the well-known address of `url`, then the one of its origin."""
    origin, path = origin_of(url), urlsplit(url).path.rstrip("/")
    root = f"{origin}/.well-known/oauth-protected-resource"
    return [root + path, root] if path else [root]


def issuer_metadata_urls(issuer: str) -> list[str]:
    """RFC 8414, sections 3.1 and 5, and OpenID Connect Discovery 1.0, section 4.1, in the order that MCP asks for."""
    origin, path = origin_of(issuer), urlsplit(issuer).path.rstrip("/")
    oauth, openid = f"{origin}/.well-known/oauth-authorization-server", f"{origin}/.well-known/openid-configuration"
    if not path:
        return [oauth, openid]
    return [oauth + path, openid + path, f"{origin}{path}/.well-known/openid-configuration"]


def canonical_resource(url: str) -> str:
    """What stands for a server that does not say how it calls itself (MCP, canonical server URI)."""
    path = urlsplit(url).path
    return origin_of(url) + ("" if path == "/" else path)


# --- What they say ------------------------------------------------------------------------------------------------


def resource_in(document: Mapping[str, Any], url: str) -> str:
    """`resource` of a server's metadata, byte for byte. Raises `LinkError` unless it covers `url` (RFC 9728, 3.3)."""
    resource = document.get("resource")
    if not isinstance(resource, str) or not is_web_address(resource) or len(resource) > _LONGEST:
        raise LinkError(
            "resource_mismatch",
            "The server's sign-in data do not say for which address they are. Tell an administrator: its operator has "
            "to mend it.",
            for_admin=f"“resource” is missing or not an address in the metadata of {url}.",
        )
    if not _covers(resource, url):
        raise LinkError(
            "resource_mismatch",
            f"The server at {url} says that its sign-in is for {resource}, which is another address, "
            "so no sign-in is begun. An administrator can correct the address of the server.",
        )
    return resource


def _covers(resource: str, url: str) -> bool:
    if _place_of(resource) != _place_of(url):
        return False
    ours, theirs = urlsplit(url).path.rstrip("/") + "/", urlsplit(resource).path.rstrip("/") + "/"
    return ours.startswith(theirs)


def _place_of(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").rstrip("."), parts.port or (443 if parts.scheme == "https" else 80)


def issuers_in(document: Mapping[str, Any]) -> list[str]:
    """`authorization_servers` of a server's metadata, those that are addresses."""
    said = document.get("authorization_servers")
    return [each for each in said if is_web_address(each)][:10] if isinstance(said, list) else []


def binds_tokens(own: Mapping[str, Any], algorithms: Iterable[str], *, challenged: bool) -> bool:
    """Whether tokens are to be bound to a key of ours, by the server's metadata and its issuer's `algorithms`.

    Many issuers could, for servers that take bearer tokens alone: so the server itself has to say that it takes bound
    ones, in its challenge (RFC 9449, section 7.1) or in its metadata (RFC 9728, section 2).
    """
    taken, given = _words(own.get("dpop_signing_alg_values_supported")), tuple(algorithms)
    says = challenged or bool(taken) or own.get("dpop_bound_access_tokens_required") is True
    return says and all(ALGORITHM in each for each in (taken, given) if each)


def same_issuer(one: str, other: str) -> bool:
    """Equal texts (RFC 8414, 3.3); a host alone is the same address with its slash and without (RFC 3986, 6.2.3)."""
    bare = urlsplit(one).path in ("", "/") and urlsplit(other).path in ("", "/")
    return one == other or (bare and one.rstrip("/") == other.rstrip("/"))


def endpoints_in(
    document: Mapping[str, Any], issuer: str, *, allow_missing_pkce: bool, extra: Extra = ()
) -> dict[str, Any]:
    """The fields of `Discovered` that an issuer's metadata decide. Raises `LinkError` for what cannot be believed.

    `extra` is the guard's: None, for a person's own server, where nobody's allowance counts.
    """
    said = document.get("issuer")
    if not isinstance(said, str) or not same_issuer(said, issuer):
        shown = said if isinstance(said, str) else "nobody"
        raise LinkError(
            "issuer_mismatch",
            "The sign-in service says that it is another one, so no sign-in is begun. Tell an administrator.",
            for_admin=f"The metadata of {issuer} name {shown[:200]} as issuer (RFC 8414, section 3.3).",
        )
    warnings: list[str] = []
    found: dict[str, Any] = {"issuer": said}
    for name in ("authorization_endpoint", "token_endpoint"):
        found[name] = checked_endpoint(name, document.get(name), extra)
    for name in _OPTIONAL:
        try:
            found[name] = checked_endpoint(name, document[name], extra) if document.get(name) else ""
        except LinkError as error:
            found[name] = ""
            warnings.append(error.for_admin)
    return found | {
        "scopes_supported": scopes_in(document.get("scopes_supported")),
        "auth_methods": _words(document.get("token_endpoint_auth_methods_supported")),
        "prompts": _words(document.get("prompt_values_supported")),
        "dpop_algorithms": _words(document.get("dpop_signing_alg_values_supported")),
        "client_id_metadata": document.get("client_id_metadata_document_supported") is True,
        "sends_iss": document.get("authorization_response_iss_parameter_supported") is True,
        "pkce": _pkce(document.get("code_challenge_methods_supported"), issuer, allow_missing_pkce),
        "warnings": tuple(warnings),
    }


def checked_endpoint(name: str, value: object, extra: Extra = ()) -> str:
    """`value` if it is an address that may be used. Raises `LinkError`."""
    if not isinstance(value, str) or not is_web_address(value) or len(value) > _LONGEST:
        raise LinkError(
            "bad_metadata",
            "The sign-in service does not say where to sign in. Tell an administrator: its operator has to mend it.",
            for_admin=f"“{name}” is missing or not a web address in the metadata of the authorization server.",
        )
    try:
        check_url(value, extra=extra)
    except AddressRefusedError as error:
        detail = f"“{name}” of the authorization server: {error.public_message}"
        raise LinkError("address_refused", f"{error.public_message} Tell an administrator.", for_admin=detail) from None
    return value


def _pkce(methods: object, issuer: str, allow_missing: bool) -> bool:
    announced = _words(methods)
    if "S256" in announced:
        return True
    if announced or not allow_missing:
        what = f"announces only {', '.join(announced)}" if announced else "does not announce PKCE"
        hint = "" if announced else " If it knows S256 all the same, set “allow_missing_pkce” in the server's OAuth."
        raise LinkError(
            "no_pkce",
            "The sign-in service does not announce the protection (PKCE) that a safe sign-in needs. "
            "Tell an administrator.",
            for_admin=f"{issuer} {what}, so no sign-in is begun.{hint}",
        )
    return False


def _words(value: object) -> tuple[str, ...]:
    words: Iterable[Any] = value if isinstance(value, list) else ()
    return tuple(word for word in words if isinstance(word, str) and len(word) <= 100)[:50]
