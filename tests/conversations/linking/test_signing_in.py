"""The way to a sign-in and back, with a real authorization server: one's own, once, and only where begun."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import pytest_asyncio
from django.test import AsyncClient
from django.utils import timezone

from accounts.models import AuditRecord, Membership, Organization, User
from chatui.rows import in_rows
from conversations import supervisor
from conversations.supervisor import Supervisor
from mcpservers.models import LinkAttempt, LinkedAccount, MCPServer, ServerGrant
from tests.conversations.chat import Chat
from tests.conversations.linking.conftest import Browser, Enter
from tests.conversations.linking.test_pages import PAGE, words
from tests.fakes import authfaults
from tests.fakes.authpages import consent
from tests.fakes.authserver import FakeAuthServer
from tests.fakes.mcp_protected import ProtectedMCPServer

BEGIN = PAGE + "notes/begin"
CHAT = "/o/acme/c/00000000-0000-4000-8000-000000000000/"


@pytest_asyncio.fixture
async def auth() -> AsyncIterator[FakeAuthServer]:
    async with FakeAuthServer() as server:
        yield server


@pytest_asyncio.fixture
async def notes(
    house: Supervisor, auth: FakeAuthServer, organization: Organization, make_server: Callable[..., MCPServer]
) -> AsyncIterator[MCPServer]:
    async with ProtectedMCPServer(auth=auth) as server:
        yield await in_rows(make_server, organization, url=server.url)


def leads_to(html: str) -> str:
    """The address to which a page leaves by itself."""
    found = re.search(r'http-equiv="refresh" content="0;url=([^"]+)"', html)
    assert found is not None, html
    return unescape(found[1])


async def begin(browser: Browser, **values: Any) -> str:
    response = await browser.post(BEGIN, **values)
    assert response.status_code == 200, response.content
    return leads_to(response.content.decode())


async def back(url: str, **choice: Any) -> str:
    """What the authorization server sends the browser back to, as a path of ours."""
    parts = urlsplit(await consent(url, **choice))
    assert f"{parts.scheme}://{parts.netloc}" == "http://testserver"
    return f"{parts.path}?{parts.query}"


def news_of(html: str) -> Any:
    found = re.search(r'<script id="news" type="application/json">(.*?)</script>', html, re.DOTALL)
    return json.loads(found[1]) if found else None


async def accounts() -> int:
    return await LinkedAccount.objects.as_system().acount()


async def failures() -> list[tuple[Any, ...]]:
    """Who came, of which organization and server it was known to be, and why it failed; as the audit tells it."""
    rows = AuditRecord.objects.as_system().filter(action="link.failed").order_by("at")
    return [(row.actor_id, row.organization_id, row.server, row.details["reason"]) async for row in rows]


# --- As it should be --------------------------------------------------------------------------------------------------


async def test_a_link_alone_shows_where_it_leads_and_begins_nothing(
    as_user: Enter, bob: User, notes: MCPServer, auth: FakeAuthServer
) -> None:
    browser = await as_user(bob)
    html = await browser.page(f"{BEGIN}?scopes=notes:write&back={CHAT}&window=1")
    shown = words(html)
    assert "Connect Notes?" in shown
    assert urlsplit(notes.url).netloc in shown
    assert "notes:write" in shown
    assert 'http-equiv="refresh"' not in html
    assert auth.requests == []


async def test_from_the_page_to_the_consent_and_back_an_account_is_there(
    as_user: Enter, bob: User, notes: MCPServer, auth: FakeAuthServer
) -> None:
    browser = await as_user(bob)
    url = await begin(browser)
    assert url.startswith(auth.url("authorize"))
    response = await browser.get(await back(url))
    assert (response.status_code, response["Location"]) == (302, PAGE)
    account = await LinkedAccount.objects.as_system().aget()
    assert (account.user_id, account.server_id, account.is_default) == (bob.pk, notes.pk, True)
    shown = words(await browser.page(PAGE))
    assert f"Connected to Notes as {account.name}." in shown
    assert "Add another account" in shown


async def test_a_window_of_its_own_says_that_it_can_be_closed_and_tells_the_chat(
    as_user: Enter, bob: User, notes: MCPServer
) -> None:
    browser = await as_user(bob)
    async with await Chat.of(bob) as chat:
        response = await browser.get(await back(await begin(browser, window="1", back=CHAT)))
        told = await chat.until("connection.changed")
    html = response.content.decode()
    account = await LinkedAccount.objects.as_system().aget()
    assert response.status_code == 200
    assert f"Signed in as {account.name}" in words(html)
    assert f'href="{CHAT}"' in html
    assert news_of(html) == {
        "type": "signed-in",
        "organization": "acme",
        "server": "notes",
        "title": "Notes",
        "account": account.name,
    }
    assert told == {
        "type": "connection.changed",
        "organization": "acme",
        "server": "notes",
        "state": "connected",
        "account": account.name,
    }
    planted = [*account.tokens.values()]
    assert not [token for token in planted if token in html]


async def test_two_tabs_of_one_browser_do_not_disturb_each_other(
    as_user: Enter, bob: User, notes: MCPServer, auth: FakeAuthServer
) -> None:
    browser = await as_user(bob)
    first, second = await begin(browser), await begin(browser)
    for url, user in ((second, "grace"), (first, "ada")):
        assert (await browser.get(await back(url, user=user))).status_code == 302
    assert await accounts() == 2


async def test_the_value_of_the_browser_outlives_signing_in_again(as_user: Enter, bob: User, notes: MCPServer) -> None:
    browser = await as_user(bob)
    url = await begin(browser)
    await browser.client.aforce_login(bob)  # a new session key, as after a second factor
    assert (await browser.get(await back(url))).status_code == 302
    assert await accounts() == 1


async def test_disconnecting_revokes_and_says_so(
    as_user: Enter, bob: User, notes: MCPServer, auth: FakeAuthServer
) -> None:
    browser = await as_user(bob)
    await browser.get(await back(await begin(browser)))
    account = await LinkedAccount.objects.as_system().aget()
    path = f"{PAGE}accounts/{account.pk}/"
    await browser.post(path, action="rename", name=" Work  account ")
    assert "The account is called Work account now." in words(await browser.page(PAGE))
    await browser.post(path, action="default")
    await browser.post(path, action="disconnect")
    assert "Work account was disconnected from Notes. Its access was revoked there." in words(await browser.page(PAGE))
    assert await accounts() == 0
    assert auth.count("revoke") >= 1
    assert (await browser.post(path, action="disconnect")).status_code == 404


# --- As it must not be ------------------------------------------------------------------------------------------------


async def test_another_persons_callback_is_refused_and_nothing_is_stored(
    as_user: Enter, alice: User, bob: User, notes: MCPServer, auth: FakeAuthServer
) -> None:
    attacker, victim = await as_user(alice), await as_user(bob)
    await begin(victim)  # the victim has begun something, too
    path = await back(await begin(attacker))
    response = await victim.get(path)
    assert response.status_code in (400, 403)
    assert "Nothing was changed" in response.content.decode()
    assert (await accounts(), auth.count("token")) == (0, 0)
    assert await failures() == [(bob.pk, notes.organization_id, "notes", "used")]  # of who came, not whose it was
    # What was not the victim's is still the attacker's own, who may complete it for herself.
    assert (await attacker.get(path)).status_code == 302
    assert [account.user_id async for account in LinkedAccount.objects.as_system()] == [alice.pk]


async def test_the_same_person_in_another_browser_is_refused(
    as_user: Enter, bob: User, notes: MCPServer, auth: FakeAuthServer
) -> None:
    path = await back(await begin(await as_user(bob)))
    for other in (await as_user(bob), await as_user(None)):
        response = await other.get(path)
        assert response.status_code in (400, 401, 403)
        assert (await accounts(), auth.count("token")) == (0, 0)
    told = (notes.organization_id, "notes")
    assert await failures() == [(bob.pk, *told, "used"), (None, *told, "signed_out")]


async def test_a_callback_works_once_and_its_replay_keeps_the_account(
    as_user: Enter, bob: User, notes: MCPServer, auth: FakeAuthServer
) -> None:
    browser = await as_user(bob)
    path = await back(await begin(browser))
    assert (await browser.get(path)).status_code == 302
    again = await browser.get(path)
    assert again.status_code == 400
    assert (await accounts(), auth.count("token")) == (1, 1)
    assert await failures() == [(bob.pk, notes.organization_id, "notes", "used")]


async def test_a_sign_in_that_took_too_long_is_refused_in_words_and_recorded(
    as_user: Enter, bob: User, notes: MCPServer, auth: FakeAuthServer
) -> None:
    browser = await as_user(bob)
    path = await back(await begin(browser))
    await LinkAttempt.objects.as_system().aupdate(expires_at=timezone.now())
    response = await browser.get(path)
    assert response.status_code == 400
    assert "took longer than ten minutes" in words(response.content.decode())
    assert (await accounts(), auth.count("token")) == (0, 0)
    assert await failures() == [(bob.pk, notes.organization_id, "notes", "used")]


async def test_the_page_before_names_every_permission_that_is_asked_for(
    as_user: Enter, bob: User, notes: MCPServer, auth: FakeAuthServer
) -> None:
    browser = await as_user(bob)
    await browser.get(await back(await begin(browser)))
    account = await LinkedAccount.objects.as_system().aget()
    shown = await browser.page(f"{BEGIN}?account={account.pk}&scopes=notes:extra")
    listed = re.findall(r"<li[^>]*>\s*<code>([^<]+)</code>", shown)
    assert set(listed) == {*account.scopes, "notes:read", "notes:write", "notes:extra", "offline_access"}
    assert words(shown).split("Also wants")[1].split()[0] == "notes:extra"
    assert "Also wants" not in words(await browser.page(BEGIN))
    url = await begin(browser, account=str(account.pk), scopes="notes:extra")
    assert set(dict(parse_qsl(urlsplit(url).query))["scope"].split()) == set(listed)


async def test_declining_there_is_told_and_ends_the_attempt(
    as_user: Enter, bob: User, notes: MCPServer, auth: FakeAuthServer
) -> None:
    browser = await as_user(bob)
    path = await back(await begin(browser, window="1", back=CHAT), allow=False)
    response = await browser.get(path)
    html = response.content.decode()
    assert response.status_code == 403
    assert "You declined" in words(html)
    news = news_of(html)
    assert (news["type"], news["server"]) == ("sign-in-failed", "notes")
    assert f'action="{BEGIN}"' in html  # to try again
    assert (await browser.get(path.replace("error=access_denied", "code=x"))).status_code == 400
    assert (await accounts(), auth.count("token")) == (0, 0)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?code=PLANTED",
        "?state=PLANTED&code=PLANTED",
        "?state=a&state=b&code=PLANTED",
        "?error=PLANTED%3Cscript%3E&error_description=PLANTED&state=x",
        "?state=%00&code=%ff",
    ],
)
async def test_whatever_else_comes_back_is_a_page_that_repeats_nothing(
    house: Supervisor, as_user: Enter, bob: User, organization: Organization, query: str
) -> None:
    response = await (await as_user(bob)).get("/mcp/oauth/callback" + query)
    html = response.content.decode()
    assert response.status_code in (400, 403)
    assert "PLANTED" not in html
    assert words(html)
    assert response["Cache-Control"].startswith("max-age=0") or "no-store" in response["Cache-Control"]
    reason = "bad_answer" if "state=b" in query else "used"
    assert await failures() == [(bob.pk, None, "", reason)]
    assert "PLANTED" not in str([row async for row in AuditRecord.objects.as_system().values()])


async def test_a_parameter_that_comes_twice_is_recorded_and_leaves_the_attempt_as_it_is(
    as_user: Enter, bob: User, notes: MCPServer
) -> None:
    browser = await as_user(bob)
    path = await back(await begin(browser))
    assert (await browser.get(f"{path}&code=another")).status_code == 400
    assert await failures() == [(bob.pk, notes.organization_id, "notes", "bad_answer")]
    assert (await browser.get(path)).status_code == 302


async def test_a_visitor_who_comes_back_is_asked_to_sign_in_first(house: Supervisor, as_user: Enter) -> None:
    response = await (await as_user(None)).get("/mcp/oauth/callback?state=x&code=y")
    assert response.status_code == 401
    assert "Sign in, then connect again" in response.content.decode()
    assert await failures() == [(None, None, "", "signed_out")]


async def test_visitors_with_nothing_to_show_cannot_fill_the_audit(
    as_user: Enter, bob: User, notes: MCPServer, auth: FakeAuthServer
) -> None:
    visitor = await as_user(None)
    for number in range(3):
        assert (await visitor.get(f"/mcp/oauth/callback?state={number}&code=y")).status_code == 401
    assert await failures() == [(None, None, "", "signed_out")]
    path = await back(await begin(await as_user(bob)))
    assert (await visitor.get(path)).status_code == 401
    assert (await failures())[1:] == [(None, notes.organization_id, "notes", "signed_out")]


async def test_only_reading_comes_back(house: Supervisor, as_user: Enter, bob: User) -> None:
    browser = await as_user(bob)
    assert (await browser.post("/mcp/oauth/callback", code="x", state="y")).status_code == 405
    assert (await browser.client.head("/mcp/oauth/callback?state=x")).status_code == 405


async def test_a_restarting_server_keeps_the_answer_for_the_next_one(
    as_user: Enter, bob: User, notes: MCPServer
) -> None:
    browser = await as_user(bob)
    path = await back(await begin(browser))
    supervisor.current().draining = True
    assert (await browser.get(path)).status_code == 503
    supervisor.current().draining = False
    assert (await browser.get(path)).status_code == 302


@pytest.mark.parametrize("fault", [authfaults.html, authfaults.die, authfaults.status(500, "PLANTED trace")])
async def test_a_broken_sign_in_service_ends_on_a_page_that_says_what_can_be_done(
    as_user: Enter, alice: User, bob: User, notes: MCPServer, auth: FakeAuthServer, fault: Any
) -> None:
    browser, admin = await as_user(bob), await as_user(alice)
    path, hers = await back(await begin(browser)), await back(await begin(admin))
    auth.on("token", fault)
    response = await browser.get(path)
    shown = words(response.content.decode())
    assert response.status_code == 400
    assert "Notes was not connected" in shown
    assert "Try again" in shown
    assert "For you as an administrator" not in shown
    assert "PLANTED" not in shown
    assert "For you as an administrator" in words((await admin.get(hers)).content.decode())
    assert await accounts() == 0


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (authfaults.html, "no_metadata"),
        (authfaults.endless, "too_large"),
        (authfaults.redirect("http://169.254.169.254/PLANTED", 307), "address_refused"),
        ({"issuer": "https://PLANTED.example"}, "issuer_mismatch"),
        ({"registration_endpoint": None}, "no_registration"),
    ],
)
async def test_a_server_without_usable_metadata_is_said_at_the_beginning(
    as_user: Enter, bob: User, notes: MCPServer, auth: FakeAuthServer, fault: Any, reason: str
) -> None:
    if isinstance(fault, dict):
        auth.metadata_changes = fault
    else:
        for endpoint in ("metadata", "openid"):
            auth.on(endpoint, fault)
    response = await (await as_user(bob)).post(BEGIN, back=CHAT, window="1")
    html = response.content.decode()
    assert response.status_code == 400
    assert "Notes was not connected" in words(html)
    assert "administrator" in words(html) or "later" in words(html)
    assert "PLANTED" not in words(html)
    assert news_of(html)["type"] == "sign-in-failed"
    assert await failures() == [(bob.pk, notes.organization_id, "notes", reason)]
    assert (await accounts(), await LinkAttempt.objects.as_system().acount()) == (0, 0)


async def test_a_sign_in_leads_back_to_this_organization_and_nowhere_else(
    as_user: Enter, bob: User, notes: MCPServer
) -> None:
    browser = await as_user(bob)
    for path in ("https://evil.example/", "//evil.example", "/o/globex/"):
        response = await browser.get(await back(await begin(browser, back=path)))
        assert response["Location"] == PAGE


async def test_a_server_that_one_may_not_use_cannot_be_connected(
    as_user: Enter, bob: User, charlie: User, organization: Organization, notes: MCPServer
) -> None:
    assert (await (await as_user(charlie)).post(BEGIN)).status_code == 404
    browser = await as_user(bob)
    assert (await browser.post(BEGIN, account="00000000-0000-4000-8000-000000000000")).status_code == 404
    path = await back(await begin(browser))
    await Membership.objects.filter(user=bob).adelete()
    assert (await browser.get(path)).status_code in (400, 403)
    assert await accounts() == 0
    await Membership.objects.acreate(user=bob, organization=organization, role="member")
    await ServerGrant.objects.acreate(server=notes, user=bob, deny=True)
    assert (await browser.get(BEGIN)).status_code == 404


# --- Who we are -------------------------------------------------------------------------------------------------------


async def test_the_client_document_is_there_for_https_alone(settings: Any) -> None:
    plain = await AsyncClient().get("/mcp/oauth/client.json")
    assert plain.status_code == 404
    assert "https" in plain.json()["error"]["message"]
    settings.BASE_URL = "https://chat.example.org"
    response = await AsyncClient().get("/mcp/oauth/client.json")
    assert response["Cache-Control"] == "public, max-age=3600"
    document = response.json()
    assert document["client_id"] == "https://chat.example.org/mcp/oauth/client.json"
    assert document["redirect_uris"] == ["https://chat.example.org/mcp/oauth/callback"]
    assert document["token_endpoint_auth_method"] == "none"
