"""The token and revocation endpoints of the fake authorization server: who the client is, and what it is given."""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus, urlencode

import jwt
from aiohttp import web

from tests.fakes.authpages import check_resource, find_client
from tests.fakes.authstate import JSON, Client, OAuthRefusal, Person, Token, bent, within, words
from tests.fakes.proofs import ProofRefused

if TYPE_CHECKING:
    from tests.fakes.authserver import FakeAuthServer, Heard

ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
REFRESH_SECONDS = 30 * 24 * 3600


async def token(heard: Heard) -> web.StreamResponse:
    """RFC 6749 4 and 5."""
    if heard.method != "POST":
        return web.Response(status=405)
    grant = GRANTS.get(heard.form.get("grant_type", ""))
    if grant is None:
        raise OAuthRefusal("unsupported_grant_type")
    client = await authenticate(heard)
    jkt = _proved(heard)
    said = bent(_bound(heard.server, client, grant(heard.server, client, heard.form), jkt), heard.server.token_changes)
    if grant is _refresh:
        said = bent(said, heard.server.refresh_changes)
    headers = {"Cache-Control": "no-store"}
    if heard.server.proofs.nonce:
        headers["DPoP-Nonce"] = heard.server.proofs.nonce
    if heard.server.form_encoded:
        body = urlencode({name: str(value) for name, value in said.items()})
        return web.Response(text=body, content_type="application/x-www-form-urlencoded", headers=headers)
    return web.json_response(said, headers=headers)


def _proved(heard: Heard) -> str:
    """The thumbprint of the key that the request proves, "" without a proof (RFC 9449 5). Before any grant is spent."""
    server, proof = heard.server, heard.headers.get("dpop", "")
    jkt = ""
    if server.dpop and proof:
        try:
            jkt = server.proofs.check(proof, heard.method, server.url("token"))
        except ProofRefused as refused:
            raise OAuthRefusal(refused.error, refused.description) from None
    old = server.memory.find(heard.form.get("refresh_token", ""), "refresh")
    if old is not None and old.jkt and old.jkt != jkt:
        raise OAuthRefusal("invalid_grant", "the refresh token is bound to another key")
    return jkt


def _bound(server: FakeAuthServer, client: Client, said: JSON, jkt: str) -> JSON:
    """What was granted, bound to the key: a public client's refresh token always, the access token as is wanted."""
    access, refresh = (server.memory.tokens.get(str(said.get(name))) for name in ("access_token", "refresh_token"))
    if refresh is not None and client.auth_method == "none":
        refresh.jkt = jkt
    if access is None or not jkt or "token_type" in server.token_changes:
        return said
    access.jkt = jkt
    return said | {"token_type": "DPoP"}


async def revoke(heard: Heard) -> web.StreamResponse:
    """RFC 7009: a refresh token takes everything of its consent with it; an unknown token is no error."""
    client = await authenticate(heard)
    found = heard.server.memory.tokens.get(heard.form.get("token", ""))
    if found is not None and found.client_id != client.id:
        raise OAuthRefusal("invalid_grant", "the token is another client's")
    if found is not None and found.kind == "refresh":
        heard.server.memory.revoke_family(found.family)
    elif found is not None:
        found.revoked = True
    return web.Response(status=200)


# --- Who the client is ------------------------------------------------------------------------------------------------


async def authenticate(heard: Heard) -> Client:
    """The client, by exactly the method that it is registered with. Raises `OAuthRefusal` invalid_client."""
    method, client_id, secret = credentials(heard)
    client = await find_client(heard.server, client_id)
    either = client.auth_method == "client_secret" and method in ("client_secret_basic", "client_secret_post")
    if method != client.auth_method and not either:
        raise OAuthRefusal("invalid_client", f"registered for {client.auth_method}, came with {method}", 401)
    if method == "private_key_jwt":
        _check_assertion(heard.server, client, secret)
    elif secret != client.secret:
        raise OAuthRefusal("invalid_client", "wrong secret", 401)
    return client


def credentials(heard: Heard) -> tuple[str, str, str]:
    """(method, client id, secret or assertion) as the request carries them. RFC 6749 2.3.1: Basic is form-encoded."""
    form = heard.form
    scheme, _, encoded = heard.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        if "client_secret" in form:
            raise OAuthRefusal("invalid_request", "two ways to authenticate at once")
        client_id, _, secret = base64.b64decode(encoded).decode().partition(":")
        return "client_secret_basic", unquote_plus(client_id), unquote_plus(secret)
    if form.get("client_assertion_type") == ASSERTION:
        claims = _unverified(form.get("client_assertion", ""))
        return "private_key_jwt", form.get("client_id") or str(claims.get("sub", "")), form["client_assertion"]
    if "client_secret" in form:
        return "client_secret_post", form.get("client_id", ""), form["client_secret"]
    return "none", form.get("client_id", ""), ""


def _unverified(assertion: str) -> JSON:
    try:
        claims: JSON = jwt.decode(assertion, options={"verify_signature": False})
    except jwt.InvalidTokenError as error:
        raise OAuthRefusal("invalid_client", f"no JWT: {error}", 401) from None
    return claims


def _check_assertion(server: FakeAuthServer, client: Client, assertion: str) -> None:
    """RFC 7523 3: issuer and subject are the client, the audience is us, it has not expired and was not seen."""
    keys = [jwt.PyJWK(key).key for key in client.metadata.get("jwks", {}).get("keys", ())] or [client.key]
    audience = [server.issuer, server.url("token")]
    required = {"require": ["iss", "sub", "aud", "exp", "jti"]}
    trouble = ""
    for key in keys:
        try:
            claims = jwt.decode(
                assertion, key, ["RS256", "ES256"], audience=audience, issuer=client.id, options=required
            )
        except (jwt.InvalidTokenError, ValueError) as error:
            trouble = str(error)
            continue
        if claims["sub"] != client.id or claims["jti"] in server.memory.assertions:
            trouble = "another subject, or used before"
            continue
        server.memory.assertions.add(claims["jti"])
        return
    raise OAuthRefusal("invalid_client", trouble, 401)


# --- What it is given -------------------------------------------------------------------------------------------------


def _code(server: FakeAuthServer, client: Client, form: dict[str, str]) -> JSON:
    code = server.memory.find(form.get("code", ""), "code")
    if code is None or code.client_id != client.id:
        raise OAuthRefusal("invalid_grant", "unknown code")
    if code.spent:
        server.memory.revoke_family(code.family)  # RFC 6749 4.1.2: used twice, so somebody has stolen it
    if not code.active:
        raise OAuthRefusal("invalid_grant", "the code was used or has expired")
    code.spent = True
    if form.get("redirect_uri") != code.redirect_uri:
        raise OAuthRefusal("invalid_grant", "another redirect_uri")
    if challenge(form.get("code_verifier", "")) != code.challenge:
        raise OAuthRefusal("invalid_grant", "the verifier does not fit the challenge")
    _same_resource(server, code, form)
    return _answer(server, code, code.scopes)


def challenge(verifier: str) -> str:
    """RFC 7636 4.2, S256."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def _refresh(server: FakeAuthServer, client: Client, form: dict[str, str]) -> JSON:
    """With rotation: a token that is used again revokes everything that came from the same consent."""
    old = server.memory.find(form.get("refresh_token", ""), "refresh")
    if old is None or old.client_id != client.id:
        raise OAuthRefusal("invalid_grant", "unknown refresh token")
    if old.spent:
        server.memory.revoke_family(old.family)
    if not old.active:
        raise OAuthRefusal("invalid_grant", "the refresh token was used, revoked, or has expired")
    scopes = words(form.get("scope")) or old.scopes
    if not within(scopes, old.scopes):
        raise OAuthRefusal("invalid_scope", "wider than what was allowed")
    _same_resource(server, old, form)
    old.spent = server.rotate
    return _answer(server, old, scopes, again=server.rotate)


def _same_resource(server: FakeAuthServer, first: Token, form: dict[str, str]) -> None:
    check_resource(server, form.get("resource", ""))
    if form.get("resource", first.resource) != first.resource:
        raise OAuthRefusal("invalid_target", f"the consent was for {first.resource!r}")


def _credentials(server: FakeAuthServer, client: Client, form: dict[str, str]) -> JSON:
    if client.auth_method == "none":
        raise OAuthRefusal("unauthorized_client", "a public client has no account of its own")
    scopes = words(form.get("scope")) or server.default_scopes
    if not within(scopes, server.scopes):
        raise OAuthRefusal("invalid_scope", "unknown scope")
    check_resource(server, form.get("resource", ""))
    return _access(server, client_id=client.id, person=None, scopes=scopes, resource=form.get("resource", ""))


def _exchange(server: FakeAuthServer, client: Client, form: dict[str, str]) -> JSON:
    """RFC 8693: a person's token for one that another audience takes, or for an assertion of who the person is."""
    if form.get("requested_token_type") == ID_JAG:
        return _assertion(server, client, form)
    if form.get("subject_token_type") not in (ACCESS_TOKEN, ID_TOKEN):
        raise OAuthRefusal("invalid_request", "subject_token_type")
    person = _subject(server, form.get("subject_token", ""), form["subject_token_type"])
    return _on_behalf(server, client, person, form) | {"issued_token_type": ACCESS_TOKEN}


def _assertion(server: FakeAuthServer, client: Client, form: dict[str, str]) -> JSON:
    """draft-ietf-oauth-identity-assertion-authz-grant: our word for a person, for one issuer and one client there."""
    if form.get("subject_token_type") != ID_TOKEN or not form.get("audience"):
        raise OAuthRefusal("invalid_request", "an identity assertion wants an identity token and an audience")
    person, now = _subject(server, form.get("subject_token", ""), ID_TOKEN), int(time.time())
    said = {"iss": server.issuer, "sub": person.subject, "aud": form["audience"], "resource": form.get("resource", "")}
    said |= {"client_id": server.known_elsewhere_as, "iat": now, "exp": now + 300, "jti": secrets.token_hex(8)}
    signed = jwt.encode(said, server.key, "RS256", headers={"typ": "oauth-id-jag+jwt"})
    return {"access_token": signed, "issued_token_type": ID_JAG, "token_type": "N_A", "expires_in": 300}


def _jwt_bearer(server: FakeAuthServer, client: Client, form: dict[str, str]) -> JSON:
    """RFC 7523 with a workload's token; as Entra ID wants it, with the person's; or with the word of `trusts`."""
    if server.workloads:
        return _workload(server, client, form)
    if server.trusts is not None:
        return _vouched(server, server.trusts, client, form)
    if form.get("requested_token_use") != "on_behalf_of":
        raise OAuthRefusal("invalid_request", "requested_token_use")
    return _on_behalf(server, client, _subject(server, form.get("assertion", ""), ACCESS_TOKEN), form)


def _workload(server: FakeAuthServer, client: Client, form: dict[str, str]) -> JSON:
    """A platform's word for what runs on it, which may be a public client."""
    assertion = form.get("assertion", "")
    try:
        issuer = jwt.decode(assertion, options={"verify_signature": False}).get("iss", "")
        if issuer not in server.workloads:
            raise OAuthRefusal("invalid_grant", f"{issuer!r} is not trusted")
        required = {"require": ["sub", "aud", "exp"]}
        jwt.decode(assertion, server.workloads[issuer], ["ES256"], audience=server.issuer, options=required)
    except jwt.InvalidTokenError as error:
        raise OAuthRefusal("invalid_grant", f"{error}: {assertion}") from None  # servers repeat what they refuse
    scopes = words(form.get("scope")) or server.default_scopes
    if not within(scopes, server.scopes):
        raise OAuthRefusal("invalid_scope", "unknown scope")
    check_resource(server, form.get("resource", ""))
    return _access(server, client_id=client.id, person=None, scopes=scopes, resource=form.get("resource", ""))


def _vouched(server: FakeAuthServer, by: FakeAuthServer, client: Client, form: dict[str, str]) -> JSON:
    assertion = form.get("assertion", "")
    try:
        if jwt.get_unverified_header(assertion).get("typ") != "oauth-id-jag+jwt":
            raise OAuthRefusal("invalid_grant", "no identity assertion")
        key = by.key.public_key()
        said = jwt.decode(assertion, key, ["RS256"], audience=server.issuer, issuer=by.issuer)
    except jwt.InvalidTokenError as error:
        raise OAuthRefusal("invalid_grant", str(error)) from None
    if said["client_id"] != client.id or said["jti"] in server.memory.assertions:
        raise OAuthRefusal("invalid_grant", "another client's, or used before")
    server.memory.assertions.add(said["jti"])
    person = next(person for person in server.people if person.subject == said["sub"])
    return _on_behalf(server, client, person, form | {"resource": said["resource"]})


def _on_behalf(server: FakeAuthServer, client: Client, person: Person, form: dict[str, str]) -> JSON:
    if client.auth_method == "none":
        raise OAuthRefusal("unauthorized_client", "a public client may not act for others")
    check_resource(server, form.get("resource", ""))
    scopes = words(form.get("scope")) or server.default_scopes
    return _access(
        server,
        client_id=client.id,
        person=person,
        scopes=scopes,
        resource=form.get("resource", ""),
        audience=form.get("audience", ""),
        actor=client.id,
    )


def _subject(server: FakeAuthServer, value: str, kind: str) -> Person:
    if kind == ACCESS_TOKEN:
        found = server.valid(value)
        if found is not None and found.person is not None:
            return found.person
    else:
        try:
            said = jwt.decode(value, server.key.public_key(), ["RS256"], options={"verify_aud": False})
        except jwt.InvalidTokenError as error:
            raise OAuthRefusal("invalid_grant", f"subject_token: {error}") from None
        person = next((person for person in server.people if person.subject == said["sub"]), None)
        if person is not None:
            return person
    raise OAuthRefusal("invalid_grant", "the person's token is not valid")


GRANTS = {
    "authorization_code": _code,
    "refresh_token": _refresh,
    "client_credentials": _credentials,
    "urn:ietf:params:oauth:grant-type:token-exchange": _exchange,
    "urn:ietf:params:oauth:grant-type:jwt-bearer": _jwt_bearer,
}


def _answer(server: FakeAuthServer, first: Token, scopes: tuple[str, ...], again: bool = True) -> JSON:
    """Tokens of the consent that `first` (a code or refresh token) belongs to; `again`: with a refresh token."""
    same: dict[str, Any] = {
        "client_id": first.client_id,
        "person": first.person,
        "resource": first.resource,
        "family": first.family,
    }
    said = _access(server, scopes=scopes, **same)
    offline = server.refresh == "always" or (server.refresh == "offline_access" and "offline_access" in first.scopes)
    if again and offline:
        said["refresh_token"] = server.memory.issue(
            "refresh", seconds=REFRESH_SECONDS, scopes=first.scopes, **same
        ).value
    if "openid" in scopes and first.person is not None:
        said["id_token"] = id_token(server, first)
    return said


def _access(server: FakeAuthServer, **fields: Any) -> JSON:
    access = server.memory.issue("access", seconds=server.expires_in, **fields)
    return {
        "access_token": access.value,
        "token_type": "Bearer",
        "expires_in": server.expires_in,
        "scope": " ".join(access.scopes),
    }


def claims(person: Person) -> JSON:
    return {
        "sub": person.subject,
        "name": person.name,
        "preferred_username": person.username,
        "email": person.email,
        "email_verified": True,
    }


def id_token(server: FakeAuthServer, of: Token) -> str:
    """OpenID Connect Core 2, signed with RS256."""
    assert of.person is not None
    now = int(time.time())
    said = {"iss": server.issuer, "aud": of.client_id, "iat": now, "exp": now + 3600} | claims(of.person)
    if of.nonce:
        said["nonce"] = of.nonce
    return jwt.encode(bent(said, server.id_token_changes), server.key, "RS256", headers={"kid": server.key_id})
