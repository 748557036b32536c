"""Linking in two requests, against a real authorization server."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.utils import timezone

from accounts.actors import Actor
from accounts.models import AuditRecord, User
from chatui.rows import in_rows
from mcpservers.errors import LinkError
from mcpservers.models import LinkAttempt, LinkedAccount, MCPServer
from mcpservers.oauth import attempts, flow
from mcpservers.oauth.discovery import discover
from tests.fakes import authfaults
from tests.fakes.authgrants import challenge
from tests.fakes.authpages import consent, query_of
from tests.fakes.authserver import FakeAuthServer
from tests.mcpservers.oauth.conftest import BROWSER, Link, tokens_of
from tests.mcpservers.oauth.resource import Resource


async def begun(actor: Actor, server: MCPServer, **options: Any) -> flow.Begun:
    options.setdefault("browser", BROWSER)
    return await flow.begin(actor, server.pk, **options)


async def answer(
    actor: Actor, server: MCPServer, user: str = "ada", allow: bool = True, **options: Any
) -> dict[str, str]:
    return query_of(await consent((await begun(actor, server, **options)).url, user, allow))


async def refused(user_id: Any, query: dict[str, str], browser: str = BROWSER) -> LinkError:
    with pytest.raises(LinkError) as raised:
        await flow.complete(user_id, query, browser=browser)
    return raised.value


async def accounts() -> int:
    return await LinkedAccount.objects.as_system().acount()


# --- When all is well -------------------------------------------------------------------------------------------------


async def test_an_account_is_linked_and_its_token_is_one_that_the_server_takes(
    link: Link, server: MCPServer, auth: FakeAuthServer, resource: Resource, actor: Actor
) -> None:
    account = await link(server, return_to="/o/acme/connections/")
    assert auth.valid(await tokens_of(account).current(), resource.url) is not None
    assert (account.user_id, account.issuer, account.is_default) == (actor.user_id, auth.issuer, True)
    assert account.binding == server.oauth_binding()
    assert account.resource == resource.url
    record = await AuditRecord.objects.aget(action="link.created")
    assert (record.actor_id, record.account_id, record.server) == (actor.user_id, account.pk, "notes")


async def test_what_is_asked_for_is_what_the_specifications_want(
    actor: Actor, server: MCPServer, auth: FakeAuthServer, resource: Resource
) -> None:
    auth.metadata_changes = {"code_challenge_methods_supported": ["plain", "S256"]}
    found = await begun(actor, server)
    asked = query_of(found.url)
    assert asked["response_type"] == "code"
    assert asked["code_challenge_method"] == "S256"
    assert asked["resource"] == resource.url
    assert asked["redirect_uri"] == "http://testserver/mcp/oauth/callback"
    assert found.host == urlsplit(auth.origin).netloc
    query = query_of(await consent(found.url))
    await flow.complete(actor.user_id, query, browser=BROWSER)
    sent = auth.last("token").form
    assert challenge(sent["code_verifier"]) == asked["code_challenge"]
    assert sent["resource"] == asked["resource"]
    assert sent["redirect_uri"] == asked["redirect_uri"]


@pytest.mark.parametrize("slash", ["", "/"])
async def test_the_resource_is_sent_as_the_server_wrote_it_every_time(
    link: Link, server: MCPServer, auth: FakeAuthServer, resource: Resource, slash: str
) -> None:
    resource.changes = {"resource": resource.origin + slash}
    account = await link(server)
    await tokens_of(account).renewed(account.tokens["access_token"])
    sent = [heard.query["resource"] for heard in auth.requests_of("authorize")]
    sent += [heard.form["resource"] for heard in auth.requests_of("token")]
    assert sent == [resource.origin + slash] * 3


async def test_a_query_of_the_authorization_endpoint_is_kept(
    actor: Actor, server: MCPServer, auth: FakeAuthServer
) -> None:
    auth.metadata_changes = {"authorization_endpoint": auth.url("authorize?tenant=a&state=evil&scope=evil")}
    asked = query_of((await begun(actor, server)).url)
    assert asked["tenant"] == "a"
    assert asked["state"] != "evil"
    assert asked.get("scope") != "evil"


async def test_begun_again_nothing_is_asked_of_the_network(
    actor: Actor, server: MCPServer, auth: FakeAuthServer, resource: Resource
) -> None:
    await begun(actor, server)
    before = len(auth.requests) + len(resource.asked)
    await begun(actor, server)
    assert len(auth.requests) + len(resource.asked) == before


async def test_two_tabs_are_two_sign_ins(actor: Actor, server: MCPServer, auth: FakeAuthServer) -> None:
    first, second = await begun(actor, server), await begun(actor, server)
    for each in (first, second):
        await flow.complete(actor.user_id, query_of(await consent(each.url)), browser=BROWSER)
        sent = auth.last("token").form
        assert challenge(sent["code_verifier"]) == query_of(each.url)["code_challenge"]
    assert auth.count("token") == 2


async def test_what_is_stored_is_stored_before_anybody_hears_of_it(
    actor: Actor, server: MCPServer, auth: FakeAuthServer
) -> None:
    """Whoever gives up waiting for the answer loses nothing: the token was redeemed, so it is kept."""
    query, gate = await answer(actor, server), asyncio.Event()
    auth.on("token", authfaults.after(gate))
    waiting = asyncio.create_task(flow.complete(actor.user_id, query, browser=BROWSER))
    await auth.heard("token")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.set()
    while not await accounts():  # noqa: ASYNC110 - nothing tells when a cancelled request's work is done
        await asyncio.sleep(0.01)


# --- Once, by the right person, in the right browser ------------------------------------------------------------------


async def test_another_user_s_callback_is_refused_and_changes_nothing(
    actor: Actor, server: MCPServer, auth: FakeAuthServer, alice: User
) -> None:
    query = await answer(actor, server)
    assert (await refused(alice.pk, query)).reason == "used"
    assert auth.count("token") == 0
    assert await accounts() == 0
    await flow.complete(actor.user_id, query, browser=BROWSER)  # the right one still can


@pytest.mark.parametrize("browser", ["another browser", ""])
async def test_another_browser_s_callback_is_refused(
    actor: Actor, server: MCPServer, auth: FakeAuthServer, browser: str
) -> None:
    query = await answer(actor, server)
    error = await refused(actor.user_id, query, browser)
    assert (error.reason, error.status, error.server_slug) == ("used", 400, "")
    assert auth.count("token") == 0
    assert await accounts() == 0


async def test_a_replay_harms_nothing(actor: Actor, server: MCPServer, auth: FakeAuthServer) -> None:
    query = await answer(actor, server)
    done = await flow.complete(actor.user_id, query, browser=BROWSER)
    error = await refused(actor.user_id, query)
    assert error.reason == "used"
    assert auth.count("token") == 1
    account = await LinkedAccount.objects.as_system().select_related("server").aget(pk=done.account_id)
    assert auth.valid(await tokens_of(account).current()) is not None


async def test_a_double_click_redeems_once(actor: Actor, server: MCPServer, auth: FakeAuthServer) -> None:
    query = await answer(actor, server)
    results = await asyncio.gather(
        *(flow.complete(actor.user_id, query, browser=BROWSER) for _ in range(4)), return_exceptions=True
    )
    assert sum(isinstance(each, flow.Completed) for each in results) == 1
    assert auth.count("token") == 1


async def test_an_error_uses_the_sign_in_up(actor: Actor, server: MCPServer, auth: FakeAuthServer) -> None:
    query = await answer(actor, server, allow=False, return_to="/o/acme/c/1/")
    error = await refused(actor.user_id, query)
    assert (error.reason, error.server_id, error.return_to) == ("declined", server.pk, "/o/acme/c/1/")
    assert (await refused(actor.user_id, {"code": "x", "state": query["state"]})).reason == "used"
    assert auth.count("token") == 0
    told = AuditRecord.objects.filter(action="link.failed").order_by("at")
    assert [entry.details["reason"] async for entry in told] == ["declined", "used"]


async def test_a_sign_in_takes_ten_minutes_at_most(actor: Actor, server: MCPServer) -> None:
    query = await answer(actor, server)
    row = await LinkAttempt.objects.as_system().aget()
    assert timedelta(minutes=9) < row.expires_at - timezone.now() <= timedelta(minutes=10)
    await LinkAttempt.objects.as_system().aupdate(expires_at=timezone.now())
    assert (await refused(actor.user_id, query)).reason == "used"


@pytest.mark.parametrize("query", [{}, {"code": "x"}, {"state": ""}, {"state": "\ud800", "code": "x"}, {"error": "x"}])
async def test_a_callback_without_a_state_of_ours_is_refused(actor: Actor, query: dict[str, str]) -> None:
    assert (await refused(actor.user_id, query)).reason == "used"


async def test_of_state_and_browser_only_digests_are_kept(actor: Actor, server: MCPServer) -> None:
    found = query_of((await begun(actor, server)).url)
    kept = json.dumps([list(row.values()) async for row in LinkAttempt.objects.as_system().values()], default=str)
    assert found["state"] not in kept
    assert BROWSER not in kept


async def test_sign_ins_that_nobody_completed_are_forgotten(actor: Actor, server: MCPServer) -> None:
    await begun(actor, server)
    await LinkAttempt.objects.as_system().aupdate(expires_at=timezone.now() - timedelta(hours=1))
    await begun(actor, server)
    assert await in_rows(attempts.forget_old) == 1
    assert await LinkAttempt.objects.as_system().acount() == 1


# --- What the authorization server answers ----------------------------------------------------------------------------


@pytest.mark.parametrize("iss", ["https://evil.example", None, "SLASH"])
async def test_an_answer_of_another_issuer_is_refused(
    actor: Actor, server: MCPServer, auth: FakeAuthServer, iss: str | None
) -> None:
    auth.redirect_changes = {"iss": auth.issuer + "/" if iss == "SLASH" else iss}
    error = await refused(actor.user_id, await answer(actor, server))
    assert error.reason == "issuer_mismatch"
    assert auth.count("token") == 0


async def test_an_issuer_that_does_not_announce_its_name_need_not_tell_it_but_may_not_lie(
    actor: Actor, server: MCPServer, auth: FakeAuthServer
) -> None:
    auth.metadata_changes = {"authorization_response_iss_parameter_supported": None}
    auth.redirect_changes = {"iss": None}
    await flow.complete(actor.user_id, await answer(actor, server), browser=BROWSER)
    auth.redirect_changes = {"iss": "https://evil.example"}
    assert (await refused(actor.user_id, await answer(actor, server))).reason == "issuer_mismatch"


async def test_a_false_issuer_is_noticed_before_its_error_is_believed(
    actor: Actor, server: MCPServer, auth: FakeAuthServer
) -> None:
    auth.redirect_changes = {"iss": "https://evil.example"}
    assert (await refused(actor.user_id, await answer(actor, server, allow=False))).reason == "issuer_mismatch"


async def test_an_error_is_told_in_visible_words(actor: Actor, server: MCPServer, auth: FakeAuthServer) -> None:
    auth.redirect_changes = {"code": None, "error": "invalid_scope", "error_description": "<b>no</b>\u202e" + "x" * 999}
    error = await refused(actor.user_id, await answer(actor, server))
    assert error.reason == "refused"
    assert "invalid_scope" in error.public_message
    assert "\u202e" not in error.public_message
    assert len(error.public_message) < 500


async def test_an_answer_without_a_code_is_refused(actor: Actor, server: MCPServer, auth: FakeAuthServer) -> None:
    auth.redirect_changes = {"code": None}
    assert (await refused(actor.user_id, await answer(actor, server))).reason == "bad_answer"


async def test_the_metadata_of_the_beginning_count_at_the_end(
    actor: Actor, server: MCPServer, auth: FakeAuthServer, resource: Resource
) -> None:
    """A server that names another issuer meanwhile gets neither our code nor our secret sent there."""
    query = await answer(actor, server)
    async with FakeAuthServer() as evil:
        resource.changes = {"authorization_servers": [evil.issuer]}
        await discover(server, fresh=True)
        await flow.complete(actor.user_id, query, browser=BROWSER)
        assert evil.count("token") == 0
    assert auth.count("token") == 1


FAULTS: list[tuple[Any, str]] = [
    (authfaults.html, "bad_answer"),
    (authfaults.said({"error": "authorization_pending"}), "unreachable"),
    (authfaults.said({}), "bad_answer"),
    (authfaults.said({"access_token": "a", "token_type": "mac"}), "bad_answer"),
    (authfaults.refusal("invalid_grant"), "refused"),
    (authfaults.refusal("server_error", 500), "unreachable"),
    (authfaults.status(503), "unreachable"),
    (authfaults.die, "unreachable"),
    (authfaults.endless, "too_large"),
    (authfaults.redirect("http://127.0.0.1:1/steal", 307), "redirected"),
    (authfaults.redirect("https://evil.example/steal", 308), "redirected"),
]


@pytest.mark.parametrize(("fault", "expected"), FAULTS)
async def test_an_ill_token_endpoint_leaves_no_half_made_link(
    actor: Actor, server: MCPServer, auth: FakeAuthServer, fault: Any, expected: str
) -> None:
    auth.on("token", fault)
    query = await answer(actor, server)
    error = await refused(actor.user_id, query)
    assert error.reason == expected
    assert await accounts() == 0
    assert query["code"] not in f"{error} {error.public_message} {error.for_admin}"
    assert (await AuditRecord.objects.aget(action="link.failed")).details == {"reason": expected}


@pytest.mark.parametrize("lives", [None, "soon", "3600abc", 0, "60"])
async def test_an_odd_lifetime_links_all_the_same(
    link: Link, server: MCPServer, auth: FakeAuthServer, lives: Any
) -> None:
    auth.token_changes = {"expires_in": lives}
    account = await link(server)
    if lives == 0:
        assert account.expires_at is not None
        assert account.expires_at <= timezone.now()
    elif lives == "60":
        assert account.expires_at is not None
    else:
        assert account.expires_at is None
    assert await tokens_of(account).current()
    assert auth.count("token") == (2 if lives == 0 else 1)


async def test_a_form_encoded_answer_links(link: Link, server: MCPServer, auth: FakeAuthServer) -> None:
    auth.form_encoded = True
    assert auth.valid(await tokens_of(await link(server)).current()) is not None
