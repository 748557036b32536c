"""The fake authorization server refuses what a real one refuses: tests that lean on it prove something."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.fakes.authfaults import endless, once, refusal
from tests.fakes.authgrants import challenge
from tests.fakes.authpages import ConsentRefusedError, consent, consent_now, query_of
from tests.fakes.authserver import FakeAuthServer, serving

BACK = "https://chat.example/mcp/oauth/callback"
RESOURCE = "https://mcp.example/mcp"
VERIFIER = "v" * 43
JSON = dict[str, Any]


@pytest.fixture
async def auth() -> AsyncIterator[FakeAuthServer]:
    async with FakeAuthServer() as server:
        server.configure("app", redirect_uris=(BACK,))
        yield server


def asking(auth: FakeAuthServer, **changes: str | None) -> str:
    asked = {
        "response_type": "code",
        "client_id": "app",
        "redirect_uri": BACK,
        "state": "s1",
        "code_challenge": challenge(VERIFIER),
        "code_challenge_method": "S256",
        "resource": RESOURCE,
        "scope": "notes:read openid",
    } | changes
    query = {name: value for name, value in asked.items() if value is not None}
    return f"{auth.metadata()['authorization_endpoint']}?{urlencode(query)}"


async def post(auth: FakeAuthServer, *, endpoint: str = "token", **form: str | None) -> httpx2.Response:
    headers = {"Authorization": basic} if (basic := form.pop("basic", None)) else {}
    data = {"client_id": "app"} | form
    async with httpx2.AsyncClient(trust_env=False) as http:
        wanted = {name: value for name, value in data.items() if value is not None}
        return await http.post(auth.url(endpoint), data=wanted, headers=headers)


async def redeem(auth: FakeAuthServer, **changes: str | None) -> httpx2.Response:
    code = query_of(await consent(asking(auth)))["code"]
    form = {"code": code, "redirect_uri": BACK, "code_verifier": VERIFIER, "resource": RESOURCE} | changes
    return await post(auth, grant_type="authorization_code", **form)


async def refresh(auth: FakeAuthServer, token: str, **form: str) -> httpx2.Response:
    return await post(auth, grant_type="refresh_token", refresh_token=token, **form)


async def test_a_code_becomes_tokens_of_the_chosen_person(auth: FakeAuthServer) -> None:
    back = query_of(await consent(asking(auth), user="grace"))
    assert (back["state"], back["iss"]) == ("s1", auth.issuer)
    answer = await post(
        auth, grant_type="authorization_code", code=back["code"], redirect_uri=BACK, code_verifier=VERIFIER
    )
    said = answer.json()
    token = auth.valid(said["access_token"], RESOURCE)
    assert token is not None
    assert token.person is not None
    assert (token.person.username, token.scopes) == ("grace", ("notes:read", "openid"))
    key = jwt.PyJWK(auth.jwks()["keys"][0])
    assert jwt.decode(said["id_token"], key, audience="app", issuer=auth.issuer)["sub"] == "sub-grace"
    assert auth.valid(said["access_token"], "https://other.example/mcp") is None


@pytest.mark.parametrize(
    "changes",
    [{"code_verifier": "w" * 43}, {"code_verifier": None}, {"redirect_uri": BACK + "2"}, {"code": "made-up"}],
    ids=str,
)
async def test_a_code_is_refused_without_its_verifier_and_address(auth: FakeAuthServer, changes: JSON) -> None:
    answer = await redeem(auth, **changes)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
    assert not auth.memory.issued("access")


async def test_a_code_used_twice_takes_its_tokens_back(auth: FakeAuthServer) -> None:
    first = (await redeem(auth)).json()
    code = auth.last("token").form["code"]
    again = await redeem(auth, code=code)
    assert again.json()["error"] == "invalid_grant"
    assert auth.valid(first["access_token"]) is None


async def test_a_token_request_for_another_resource_is_refused(auth: FakeAuthServer) -> None:
    answer = await redeem(auth, resource="https://mcp.example/mcp/")
    assert answer.json()["error"] == "invalid_target"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"scope": "notes:read everything"}, "invalid_scope"),
    ],
    ids=str,
)
async def test_a_bad_authorization_request_comes_back_with_its_error(
    auth: FakeAuthServer, changes: JSON, error: str
) -> None:
    back = query_of(await consent(asking(auth, **changes)))
    assert (back["error"], back["state"]) == (error, "s1")
    assert "code" not in back


@pytest.mark.parametrize("changes", [{"client_id": "stranger"}, {"redirect_uri": "https://evil.example/"}], ids=str)
async def test_nobody_is_sent_to_an_address_that_is_not_registered(auth: FakeAuthServer, changes: JSON) -> None:
    with pytest.raises(ConsentRefusedError, match="Refused"):
        await consent(asking(auth, **changes))


async def test_saying_no_gives_no_code(auth: FakeAuthServer) -> None:
    back = query_of(await consent(asking(auth), allow=False))
    assert back["error"] == "access_denied"
    assert not auth.memory.issued("code")


async def test_a_refresh_token_is_good_for_one_use_and_a_second_revokes_everything(auth: FakeAuthServer) -> None:
    first = (await redeem(auth)).json()
    second = (await refresh(auth, first["refresh_token"])).json()
    assert second["refresh_token"] != first["refresh_token"]
    assert auth.valid(second["access_token"])
    reused = await refresh(auth, first["refresh_token"])
    assert reused.json()["error"] == "invalid_grant"
    assert auth.valid(second["access_token"]) is None
    assert (await refresh(auth, second["refresh_token"])).json()["error"] == "invalid_grant"


async def test_of_refreshes_at_once_with_one_token_exactly_one_succeeds(auth: FakeAuthServer) -> None:
    first = (await redeem(auth)).json()
    answers = await asyncio.gather(*(refresh(auth, first["refresh_token"]) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 400, 400, 400]


async def test_without_rotation_a_refresh_gives_no_new_refresh_token(auth: FakeAuthServer) -> None:
    auth.rotate = False
    first = (await redeem(auth)).json()
    for _ in range(2):
        answer = await refresh(auth, first["refresh_token"])
        assert answer.status_code == 200
        assert "refresh_token" not in answer.json()


async def test_a_refresh_never_widens_scopes_and_keeps_to_its_resource(auth: FakeAuthServer) -> None:
    token = (await redeem(auth)).json()["refresh_token"]
    assert (await refresh(auth, token, scope="notes:write")).json()["error"] == "invalid_scope"
    assert (await refresh(auth, token, resource="https://x.example")).json()["error"] == "invalid_target"
    assert (await refresh(auth, token)).status_code == 200


async def test_revoking_a_refresh_token_ends_its_access_tokens(auth: FakeAuthServer) -> None:
    first = (await redeem(auth)).json()
    assert (await post(auth, endpoint="revoke", token=first["refresh_token"])).status_code == 200
    assert auth.valid(first["access_token"]) is None
    assert (await post(auth, endpoint="revoke", token="unknown")).status_code == 200


async def test_a_client_may_use_the_method_alone_that_it_is_registered_with(auth: FakeAuthServer) -> None:
    auth.configure("app:1", "p%ss:w/rd")
    grant = {"grant_type": "client_credentials"}
    right = "Basic YXBwJTNBMTpwJTI1c3MlM0F3JTJGcmQ="  # base64 of app%3A1:p%25ss%3Aw%2Frd
    assert (await post(auth, client_id=None, basic=right, **grant)).status_code == 200
    posted = await post(auth, client_id="app:1", client_secret="p%ss:w/rd", **grant)
    assert (posted.status_code, posted.json()["error"]) == (401, "invalid_client")
    raw = await post(auth, client_id=None, basic="Basic YXBwOjE6cCVzczp3L3Jk", **grant)  # not form-encoded
    assert raw.json()["error"] == "invalid_client"


async def test_a_client_assertion_is_checked_and_good_for_one_use(auth: FakeAuthServer) -> None:
    key, other = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    auth.configure("robot", auth_method="private_key_jwt", key=public.decode())

    async def come(signer: Any = key, **changes: Any) -> int:
        claims = {"iss": "robot", "sub": "robot", "aud": auth.issuer, "exp": time.time() + 60, "jti": uuid4().hex}
        form = {
            "grant_type": "client_credentials",
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            "client_assertion": jwt.encode(claims | changes, signer, "ES256"),
        }
        return (await post(auth, client_id=None, **form)).status_code

    assert await come(jti="one") == 200
    assert await come(jti="one") == 401
    assert await come(aud="https://other.example") == 401
    assert await come(exp=time.time() - 60) == 401
    assert await come(other) == 401


async def test_a_persons_token_is_exchanged_in_both_forms(auth: FakeAuthServer) -> None:
    auth.configure("chat", "secret", auth_method="client_secret_post")
    own = (await redeem(auth)).json()
    kind = "urn:ietf:params:oauth:token-type:access_token"
    exchange = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token": own["access_token"],
        "subject_token_type": kind,
        "audience": "notes",
    }
    bearer = {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": own["access_token"],
        "requested_token_use": "on_behalf_of",
        "scope": "api://notes/.default",
    }
    for form in (exchange, bearer):
        said = (await post(auth, client_id="chat", client_secret="secret", **form)).json()
        token = auth.valid(said["access_token"])
        assert token is not None
        assert token.person is not None
        assert (token.person.username, token.actor) == ("ada", "chat")
    auth.memory.expire_all()
    refused = await post(auth, client_id="chat", client_secret="secret", **exchange)
    assert refused.json()["error"] == "invalid_grant"


async def test_a_registered_client_is_held_to_the_answer_not_to_its_wish(auth: FakeAuthServer) -> None:
    auth.registration_changes = {"token_endpoint_auth_method": "client_secret_post"}
    async with httpx2.AsyncClient(trust_env=False) as http:
        wish = {"redirect_uris": [BACK], "token_endpoint_auth_method": "none"}
        said = (await http.post(auth.url("register"), json=wish)).json()
    assert said["token_endpoint_auth_method"] == "client_secret_post"
    form = {"client_id": said["client_id"], "client_secret": said["client_secret"]}
    assert (await post(auth, grant_type="client_credentials", **form)).status_code == 200


async def test_a_client_may_be_a_document(auth: FakeAuthServer) -> None:
    auth.documents = True
    url = "https://chat.example/client.json"
    auth.planted[url] = {"client_id": url, "redirect_uris": [BACK], "token_endpoint_auth_method": "none"}
    assert "code" in query_of(await consent(asking(auth, client_id=url)))
    auth.planted[url + "2"] = auth.planted[url]
    with pytest.raises(ConsentRefusedError):
        await consent(asking(auth, client_id=url + "2"))


async def test_an_issuer_with_a_path_has_its_documents_at_their_places() -> None:
    async with (
        FakeAuthServer(path="/tenant1", metadata_at=frozenset({"oauth", "openid", "openid-inserted"})) as auth,
        httpx2.AsyncClient(trust_env=False, base_url=auth.origin) as http,
    ):
        for path in (
            "/.well-known/oauth-authorization-server/tenant1",
            "/.well-known/openid-configuration/tenant1",
            "/tenant1/.well-known/openid-configuration",
        ):
            assert (await http.get(path)).json()["issuer"] == f"{auth.origin}/tenant1"
        assert (await http.get("/.well-known/oauth-authorization-server")).status_code == 404


async def test_faults_replace_an_answer_and_go_away_again(auth: FakeAuthServer) -> None:
    auth.on("token", once(refusal("invalid_client", 401)))
    assert (await redeem(auth)).status_code == 401
    assert (await redeem(auth)).status_code == 200
    auth.on("metadata", endless)
    where = auth.origin + "/.well-known/oauth-authorization-server"
    async with httpx2.AsyncClient(trust_env=False) as http, http.stream("GET", where) as answer:
        read = 0
        async for piece in answer.aiter_bytes():
            read += len(piece)
            if read > 2**20:
                break
    assert auth.count("metadata") == 1


async def test_what_it_says_can_be_bent(auth: FakeAuthServer) -> None:
    auth.metadata_changes = {"issuer": "https://evil.example", "code_challenge_methods_supported": None}
    assert auth.metadata()["issuer"] == "https://evil.example"
    assert "code_challenge_methods_supported" not in auth.metadata()
    auth.redirect_changes = {"state": None}
    assert "state" not in query_of(await consent(asking(auth)))
    auth.token_changes, auth.form_encoded = {"access_token": None, "token_type": "bearer"}, True
    answer = await redeem(auth)
    assert answer.headers["content-type"].startswith("application/x-www-form-urlencoded")
    assert "token_type=bearer" in answer.text
    assert "access_token" not in answer.text


def test_it_serves_synchronous_tests_from_a_thread() -> None:
    with serving(FakeAuthServer()) as auth:
        auth.configure("app", redirect_uris=(BACK,))
        assert "code" in query_of(consent_now(asking(auth)))
