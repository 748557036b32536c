"""Linking in two requests, against a real authorization server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.utils import timezone

from accounts.actors import Actor
from accounts.models import AuditRecord, Membership, User
from chatui.errors import NotFoundError, PermissionDeniedError
from chatui.rows import in_rows
from mcpservers.errors import LinkError
from mcpservers.models import LinkAttempt, LinkedAccount, MCPServer, OAuthClient, ServerGrant
from mcpservers.oauth import attempts, client_metadata, discovery, flow
from mcpservers.oauth.discovery import discover
from tests.fakes import authfaults
from tests.fakes.authgrants import challenge
from tests.fakes.authpages import consent, query_of
from tests.fakes.authserver import FakeAuthServer
from tests.mcpservers.oauth.conftest import BROWSER, Link, Make, tokens_of
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


# --- Who may ----------------------------------------------------------------------------------------------------------


async def test_a_server_of_another_organization_is_not_there(server: MCPServer, charlie: User, actor_of: Any) -> None:
    stranger = await in_rows(actor_of, charlie)
    with pytest.raises(NotFoundError):
        await begun(stranger, server)


async def test_a_server_that_is_not_granted_is_not_linked(actor: Actor, server: MCPServer) -> None:
    await ServerGrant.objects.filter(server=server).adelete()
    with pytest.raises(PermissionDeniedError):
        await begun(actor, server)


async def test_a_denied_tool_does_not_deny_the_server(actor: Actor, server: MCPServer) -> None:
    await ServerGrant.objects.acreate(server=server, user_id=actor.user_id, tool="delete_*", deny=True)
    await begun(actor, server)
    await ServerGrant.objects.acreate(server=server, user_id=actor.user_id, deny=True)
    with pytest.raises(PermissionDeniedError):
        await begun(actor, server)


async def leave(actor: Actor, server: MCPServer) -> None:
    await Membership.objects.filter(user_id=actor.user_id).aupdate(is_active=False)


async def ungrant(actor: Actor, server: MCPServer) -> None:
    await ServerGrant.objects.filter(server=server).adelete()


async def switch_off(actor: Actor, server: MCPServer) -> None:
    await MCPServer.objects.as_system().filter(pk=server.pk).aupdate(enabled=False)


async def test_a_server_that_is_off_is_not_begun_at_and_that_is_recorded(actor: Actor, server: MCPServer) -> None:
    await switch_off(actor, server)
    with pytest.raises(LinkError, match="switched off") as raised:
        await begun(actor, server)
    assert raised.value.status == 409
    entry = await AuditRecord.objects.aget(action="link.failed")
    assert (entry.actor_id, entry.server, entry.details) == (actor.user_id, "notes", {"reason": "off"})


async def move(actor: Actor, server: MCPServer) -> None:
    server.url = "https://evil.example/mcp"
    await server.asave()


@pytest.mark.parametrize(
    ("change", "reason"), [(leave, "not_allowed"), (ungrant, "not_allowed"), (switch_off, "changed"), (move, "changed")]
)
async def test_what_changed_meanwhile_ends_the_sign_in_before_anything_is_redeemed(
    actor: Actor, server: MCPServer, auth: FakeAuthServer, change: Callable[..., Any], reason: str
) -> None:
    query = await answer(actor, server)
    await change(actor, server)
    assert (await refused(actor.user_id, query)).reason == reason
    assert auth.count("token") == 0
    assert await accounts() == 0


async def test_a_server_that_moves_while_the_code_is_redeemed_links_nothing(
    actor: Actor, server: MCPServer, auth: FakeAuthServer
) -> None:
    query, gate = await answer(actor, server), asyncio.Event()
    auth.on("token", authfaults.after(gate))
    completing = asyncio.create_task(refused(actor.user_id, query))
    await auth.heard("token")
    await move(actor, server)
    gate.set()
    assert (await completing).reason == "changed"
    assert await accounts() == 0


async def test_nobody_links_an_account_at_a_machine_s_server(
    actor: Actor, make_server: Make, resource: Resource
) -> None:
    machine = {"grant": "client_credentials", "client_id": "c", "client_secret": "s"}
    for slug, oauth, reason in [("a", machine, "machine"), ("b", {"obo": {}}, "on_behalf")]:
        with pytest.raises(LinkError) as raised:
            await begun(actor, await make_server(resource.url, slug, oauth=oauth))
        assert raised.value.reason == reason
        assert raised.value.server_slug == slug


@pytest.mark.parametrize(
    "path",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/\t/evil.example", "x"],
)
async def test_a_sign_in_leads_back_to_this_site_alone(actor: Actor, server: MCPServer, path: str) -> None:
    query = await answer(actor, server, return_to=path)
    assert (await flow.complete(actor.user_id, query, browser=BROWSER)).return_to == ""


async def test_a_failed_beginning_is_told_and_recorded(actor: Actor, server: MCPServer, auth: FakeAuthServer) -> None:
    auth.on("metadata", authfaults.status(500))
    with pytest.raises(LinkError) as raised:
        await begun(actor, server, return_to="/o/acme/")
    assert (raised.value.server_id, raised.value.return_to) == (server.pk, "/o/acme/")
    assert (await AuditRecord.objects.aget(action="link.failed")).server == "notes"
    with pytest.raises(LinkError):
        await begun(actor, server, browser="")


BEGINNINGS: list[tuple[str, Any, str]] = [
    ("html instead of JSON", authfaults.html, "no_metadata"),
    ("an endless answer", authfaults.endless, "too_large"),
    ("a redirect to a private address", authfaults.redirect("http://10.0.0.1/", 307), "address_refused"),
    ("a dead server", authfaults.die, "unreachable"),
    ("another issuer", {"issuer": "https://evil.example"}, "issuer_mismatch"),
    ("no endpoint", {"token_endpoint": None}, "bad_metadata"),
    ("an endpoint at a private address", {"token_endpoint": "https://10.0.0.1/t"}, "address_refused"),
    ("a script for an endpoint", {"authorization_endpoint": "javascript:alert(1)//"}, "bad_metadata"),
    ("no PKCE", {"code_challenge_methods_supported": None}, "no_pkce"),
    ("no registration", {"registration_endpoint": None}, "no_registration"),
]


@pytest.mark.parametrize(("fault", "reason"), [each[1:] for each in BEGINNINGS], ids=[each[0] for each in BEGINNINGS])
async def test_a_beginning_at_bad_metadata_is_told_recorded_and_leaves_nothing(
    actor: Actor, server: MCPServer, auth: FakeAuthServer, fault: Any, reason: str
) -> None:
    if isinstance(fault, dict):
        auth.metadata_changes = fault
    else:
        auth.on("metadata", fault)
        auth.on("openid", fault)
    with pytest.raises(LinkError) as raised:
        await begun(actor, server)
    assert raised.value.reason == reason
    assert "administrator" in raised.value.public_message or "later" in raised.value.public_message
    entry = await AuditRecord.objects.aget(action="link.failed")
    assert (entry.actor_id, entry.server_id, entry.details) == (actor.user_id, server.pk, {"reason": reason})
    assert entry.reason
    left = [await rows.objects.as_system().acount() for rows in (LinkedAccount, LinkAttempt, OAuthClient)]
    assert left == [0, 0, 0]


# --- Scopes -----------------------------------------------------------------------------------------------------------


async def test_a_step_up_asks_for_everything_together(
    link: Link, actor: Actor, make_server: Make, resource: Resource
) -> None:
    server = await make_server(resource.url, oauth={"scopes": ["openid"]})
    account = await link(server, scopes=["notes:read"])
    assert set(account.scopes) >= {"openid", "notes:read"}
    account = await link(server, account_id=account.pk, scopes=["notes:write"])
    assert set(account.scopes) >= {"openid", "notes:read", "notes:write"}
    again = await begun(actor, server, account_id=account.pk, scopes=["notes:read"])
    assert set(again.scopes) == set(account.scopes)


async def test_what_is_shown_before_is_what_is_asked_for(
    link: Link, actor: Actor, make_server: Make, resource: Resource, auth: FakeAuthServer
) -> None:
    resource.changes = {"scopes_supported": ["notes:read"]}
    server = await make_server(resource.url, oauth={"scopes": ["openid"]})
    assert flow.scopes_for(server, None, more=["notes:write"]) == ("openid", "notes:write")
    account = await link(server)
    known = await in_rows(discovery.known, server)
    asked = await begun(actor, server, account_id=account.pk, scopes=["notes:write"])
    assert flow.scopes_for(server, known, account, ["notes:write"]) == asked.scopes
    assert "offline_access" in asked.scopes
    server.oauth = {"scopes": ["email"]}  # entered anew, and nothing is discovered since
    await server.asave()
    known = await in_rows(discovery.known, server)
    assert flow.scopes_for(server, known) == (await begun(actor, server)).scopes == ("email", "offline_access")


async def test_without_any_scope_named_none_is_asked_for(actor: Actor, server: MCPServer, auth: FakeAuthServer) -> None:
    auth.metadata_changes = {"scopes_supported": None}
    assert "scope" not in query_of((await begun(actor, server)).url)


async def test_to_stay_signed_in_is_asked_for_where_it_can_be(
    actor: Actor, server: MCPServer, auth: FakeAuthServer
) -> None:
    asked = query_of((await begun(actor, server)).url)
    assert "offline_access" in asked["scope"].split()
    assert asked["prompt"] == "consent"


async def test_an_admin_s_prompt_counts(actor: Actor, make_server: Make, resource: Resource) -> None:
    for slug, prompt in [("a", ""), ("b", "login")]:
        server = await make_server(resource.url, slug, oauth={"prompt": prompt})
        assert query_of((await begun(actor, server)).url).get("prompt", "") == prompt


# --- Which client -----------------------------------------------------------------------------------------------------


async def test_a_configured_client_is_used_whatever_else_is_offered(
    link: Link, make_server: Make, auth: FakeAuthServer, resource: Resource
) -> None:
    auth.documents = True
    auth.configure("preset-1", "s", redirect_uris=("http://testserver/mcp/oauth/callback",))
    server = await make_server(resource.url, oauth={"client_id": "preset-1", "client_secret": "s"})
    account = await link(server)
    assert auth.count("register") == 0
    assert auth.last("authorize").query["client_id"] == "preset-1"
    assert account.client is not None
    assert account.client.secrets == {}
    assert auth.last("token").headers["authorization"].startswith("Basic ")
    assert "client_secret" not in auth.last("token").form


async def test_a_new_secret_counts_at_once(
    link: Link, make_server: Make, auth: FakeAuthServer, resource: Resource
) -> None:
    client = auth.configure("preset-1", "old")
    server = await make_server(resource.url, oauth={"client_id": "preset-1", "client_secret": "old"})
    account = await link(server)
    client.secret = "new"
    server.oauth = {"client_id": "preset-1", "client_secret": "new"}
    await server.asave()
    assert await tokens_of(account).renewed(account.tokens["access_token"])


async def test_our_document_is_the_client_where_it_is_read(
    link: Link, server: MCPServer, auth: FakeAuthServer, settings: Any
) -> None:
    settings.MCP_CLIENT_METADATA_URL = "https://chat.example/client.json"
    auth.documents = True
    auth.planted = {client_metadata.client_id(): client_metadata.document()}
    account = await link(server)
    assert auth.count("register") == 0
    assert auth.last("token").form["client_id"] == "https://chat.example/client.json"
    assert account.client is not None
    assert account.client.source == OAuthClient.Source.METADATA


async def test_where_our_document_is_not_to_be_had_we_register(
    link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    auth.documents = True  # and BASE_URL is not https
    account = await link(server)
    assert account.client is not None
    assert (account.client.source, auth.count("register")) == (OAuthClient.Source.DYNAMIC, 1)


async def test_a_registration_is_made_once_and_used_again(
    link: Link, server: MCPServer, auth: FakeAuthServer, alice: User, actor_of: Any
) -> None:
    await link(server)
    await link(server, "grace", who=await in_rows(actor_of, alice))
    assert auth.count("register") == 1
    sent = auth.last("register").json
    assert sent["redirect_uris"] == ["http://testserver/mcp/oauth/callback"]
    assert sent["application_type"] == "web"


async def test_registrations_at_the_same_time_end_in_one_client(
    actor: Actor, server: MCPServer, auth: FakeAuthServer
) -> None:
    found = await asyncio.gather(*(begun(actor, server) for _ in range(3)))
    ids = {query_of(each.url)["client_id"] for each in found}
    assert len(ids) == 1
    for each in found:
        await flow.complete(actor.user_id, query_of(await consent(each.url)), browser=BROWSER)


@pytest.mark.parametrize("method", ["none", "client_secret_basic", "client_secret_post"])
async def test_the_method_of_the_registration_s_answer_counts(
    link: Link, server: MCPServer, auth: FakeAuthServer, method: str
) -> None:
    auth.registration_changes = {"token_endpoint_auth_method": method}
    await link(server)
    heard = auth.last("token")
    assert ("authorization" in heard.headers) == (method == "client_secret_basic")
    assert ("client_secret" in heard.form) == (method == "client_secret_post")


async def test_a_registration_that_was_forgotten_is_made_anew_after_one_more_sign_in(
    link: Link, actor: Actor, server: MCPServer, auth: FakeAuthServer
) -> None:
    query = await answer(actor, server)
    auth.forget_clients()
    error = await refused(actor.user_id, query)
    assert error.reason == "client_forgotten"
    assert not await OAuthClient.objects.as_system().aexists()
    assert auth.count("register") == 1
    await link(server)
    assert auth.count("register") == 2


async def test_a_configured_client_that_is_refused_stays(
    actor: Actor, make_server: Make, auth: FakeAuthServer, resource: Resource
) -> None:
    auth.configure("preset-1", "right")
    server = await make_server(resource.url, oauth={"client_id": "preset-1", "client_secret": "canary-wrong"})
    error = await refused(actor.user_id, await answer(actor, server))
    assert error.reason == "client_refused"
    assert "client_secret" in error.for_admin
    assert "canary" not in error.for_admin
    assert await OAuthClient.objects.as_system().aexists()


async def test_an_expired_registration_is_made_anew(actor: Actor, server: MCPServer, auth: FakeAuthServer) -> None:
    auth.registration_changes = {"client_secret_expires_at": 1_000_000}
    await begun(actor, server)
    await begun(actor, server)
    assert auth.count("register") == 2


async def test_another_address_of_ours_is_registered_anew(
    actor: Actor, server: MCPServer, auth: FakeAuthServer, settings: Any
) -> None:
    await begun(actor, server)
    settings.BASE_URL = "http://elsewhere"
    assert query_of((await begun(actor, server)).url)["redirect_uri"].startswith("http://elsewhere/")
    assert auth.count("register") == 2


@pytest.mark.parametrize(
    "fault",
    [
        authfaults.html,
        authfaults.said({"client_id": ""}, 201),
        authfaults.said({"client_id": 7}, 201),
        authfaults.said({"client_id": "x" * 5000}, 201),
        authfaults.said([], 201),
        authfaults.refusal("invalid_redirect_uri", 400, "not \u202ehere"),
        authfaults.status(403),
    ],
)
async def test_a_registration_that_fails_tells_the_admin_what_to_register(
    actor: Actor, server: MCPServer, auth: FakeAuthServer, fault: Any
) -> None:
    auth.on("register", fault)
    with pytest.raises(LinkError) as raised:
        await begun(actor, server)
    assert raised.value.reason == "registration_refused"
    assert "http://testserver/mcp/oauth/callback" in raised.value.for_admin
    assert "\u202e" not in raised.value.for_admin
    assert not await OAuthClient.objects.as_system().aexists()


async def test_where_nobody_can_register_the_admin_is_told(
    actor: Actor, server: MCPServer, auth: FakeAuthServer
) -> None:
    auth.registration = False
    with pytest.raises(LinkError) as raised:
        await begun(actor, server)
    assert raised.value.reason == "no_registration"
    assert "client_id" in raised.value.for_admin


async def test_an_authorization_server_without_a_word_of_pkce_is_used_on_an_admin_s_word(
    link: Link, make_server: Make, auth: FakeAuthServer, resource: Resource, actor: Actor
) -> None:
    auth.metadata_changes = {"code_challenge_methods_supported": None}
    with pytest.raises(LinkError):
        await begun(actor, await make_server(resource.url, "strict"))
    await link(await make_server(resource.url, "lenient", oauth={"allow_missing_pkce": True}))
    assert auth.last("authorize").query["code_challenge_method"] == "S256"
