"""The page of connections: every server with its state and one's own accounts, forms that need no script."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.actors import Actor
from accounts.models import Membership, Organization, Role, User
from chatui.rows import in_rows
from conversations.supervisor import Supervisor
from mcpservers import catalogue, connections
from mcpservers.acting import acting_target, identity_of
from mcpservers.catalogue import ServerState
from mcpservers.errors import ServerUnavailableError
from mcpservers.models import LinkedAccount, MCPServer, ServerGrant, UserVariables
from tests.conversations.linking.conftest import Enter

PAGE = "/o/acme/connections/"
MakeServer = Callable[..., MCPServer]
MakeAccount = Callable[..., LinkedAccount]


def words(html: str) -> str:
    """What a reader sees, with single spaces."""
    return " ".join(re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", html, flags=re.DOTALL).split())


async def test_visitors_are_led_to_sign_in_and_strangers_find_nothing(
    house: Supervisor, as_user: Enter, alice: User, charlie: User
) -> None:
    answer = await (await as_user(None)).get(PAGE)
    assert answer.status_code == 302
    assert answer["Location"] == f"/accounts/login/?next={PAGE}"
    assert (await (await as_user(charlie)).get(PAGE)).status_code == 404
    assert (await (await as_user(alice)).get("/o/globex/connections/")).status_code == 404


async def test_without_a_server_the_page_says_who_can_help(house: Supervisor, as_user: Enter, bob: User) -> None:
    shown = words(await (await as_user(bob)).page(PAGE))
    assert "There is no server for you yet" in shown
    assert "Open the administration" not in shown


async def test_an_auditor_who_may_not_chat_is_told_so(
    house: Supervisor, as_user: Enter, organization: Organization, make_member: Callable[..., User]
) -> None:
    otto = await in_rows(make_member, "otto", organization, Role.AUDITOR)
    answer = await (await as_user(otto)).get(PAGE)
    assert answer.status_code == 403
    shown = answer.content.decode()
    assert "does not include" in shown
    assert '<a class="button" href="/o/acme/">' in shown  # and not back to this same page


async def test_each_server_shows_its_state_what_it_wants_and_who_uses_it(
    house: Supervisor, as_user: Enter, bob: User, organization: Organization, make_server: MakeServer, make_agent: Any
) -> None:
    def prepare() -> None:
        off = make_server(organization, "off", title="Old wiki", enabled=False)
        setup = make_server(
            organization, "tickets", headers={"X-Key": "{{KEY}}"}, oauth=None, variables={"KEY": {"title": "Your key"}}
        )
        make_server(organization, "machine", title="Robot", oauth={"grant": "client_credentials"})
        make_agent(organization, servers=[off, setup])
        hidden = make_server(organization, "hidden", title="Secret server")
        ServerGrant.objects.create(server=hidden, user=bob, deny=True)

    await in_rows(prepare)
    shown = words(await (await as_user(bob)).page(PAGE))
    assert "Old wiki 127.0.0.1:9 Switched off by an administrator" in shown
    assert "Tickets 127.0.0.1:9 Needs setup" in shown
    assert "Your key" in shown
    assert "Used by Helper" in shown
    assert "with an account of the organization" in shown
    assert "Secret server" not in shown


@pytest.mark.parametrize(
    ("role", "state", "words_of"),
    [
        ("member", "error", "It fails. If this stays so, tell an administrator."),
        ("admin", "error", "It fails. Test it in the administration"),
        ("member", "unknown", "It fails. Look again"),
    ],
)
async def test_what_is_wrong_comes_with_a_way_out(
    house: Supervisor,
    as_user: Enter,
    bob: User,
    organization: Organization,
    make_server: MakeServer,
    monkeypatch: pytest.MonkeyPatch,
    role: str,
    state: Any,
    words_of: str,
) -> None:
    def prepare() -> None:
        Membership.objects.filter(user=bob).update(role=role)
        make_server(organization, "wiki", title="Wiki", oauth=None)

    async def states(*_: Any) -> list[ServerState]:
        return [ServerState("wiki", "Wiki", state, "It fails.")]

    await in_rows(prepare)
    monkeypatch.setattr(catalogue, "server_states", states)
    assert words_of in words(await (await as_user(bob)).page(PAGE))


async def test_a_server_that_keeps_failing_says_when_it_is_tried_again(
    house: Supervisor,
    as_user: Enter,
    bob: User,
    organization: Organization,
    make_server: MakeServer,
    actor_of: Callable[[User], Actor],
    unused_tcp_port: int,
) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}/mcp"
    server = await in_rows(make_server, organization, "wiki", title="Wiki", oauth=None, url=url)
    actor = await in_rows(actor_of, bob)
    target = await in_rows(lambda: acting_target(server, actor, {}, identity_of(actor, server)))
    for _ in range(3):
        with pytest.raises(ServerUnavailableError):
            async with connections.manager().borrow(target):
                raise AssertionError
    browser = await as_user(bob)
    html = await browser.page(PAGE)
    assert "Not working" in words(html)
    shown = re.search(r'It is tried again <time datetime="([^"]+)"', html)
    assert shown is not None
    (told,) = (await browser.get("/api/v1/connections")).json()["items"]
    for text in (shown[1], told["retry_at"]):
        assert timedelta(0) < datetime.fromisoformat(text) - timezone.now() <= timedelta(seconds=30)


async def test_ones_own_accounts_are_listed_with_what_they_may_and_nobody_elses(
    house: Supervisor,
    as_user: Enter,
    alice: User,
    bob: User,
    organization: Organization,
    make_server: MakeServer,
    make_account: MakeAccount,
) -> None:
    def prepare() -> None:
        server = make_server(organization)
        make_account(server, bob, "ada", is_default=True)
        make_account(server, bob, "grace", scopes=["notes:read", "notes:write"])
        make_account(server, alice, "alice's own")
        other = make_server(organization, "calendar")
        make_account(other, bob, "moved", binding="0" * 32)
        make_account(other, bob, "ended", state="relink", last_error="The server no longer accepts it.")

    await in_rows(prepare)
    html = await (await as_user(bob)).page(PAGE)
    shown = words(html)
    assert "ada default" in shown
    assert "notes:write" in shown
    assert "Not used yet" in shown
    assert "was changed since. Connect again." in shown
    assert "The server no longer accepts it." in shown
    assert "alice's own" not in html
    assert "planted-" not in html  # no token, neither in words nor in the data for scripts


async def test_values_are_stored_by_a_form_and_never_shown_again(
    house: Supervisor, as_user: Enter, bob: User, organization: Organization, make_server: MakeServer
) -> None:
    variables = {"KEY": {"title": "Your key", "sensitive": True}, "REGION": {"title": "Region"}}
    await in_rows(make_server, organization, "tickets", headers={"X-Key": "{{KEY}}"}, oauth=None, variables=variables)
    browser = await as_user(bob)
    answer = await browser.post(PAGE + "tickets/variables/", **{"v-KEY": "s3cret", "v-REGION": "eu"})
    assert (answer.status_code, answer["Location"]) == (302, PAGE)
    html = await browser.page(PAGE)
    assert "Stored." in words(html)
    assert "s3cret" not in html
    await browser.post(PAGE + "tickets/variables/", **{"v-KEY": "", "v-REGION": "", "clear": "REGION"})
    assert (await UserVariables.objects.aget()).values == {"KEY": "s3cret"}
    await browser.post(PAGE + "tickets/variables/", **{"v-OTHER": "x"})
    assert "this server has no such variable" in words(await browser.page(PAGE))
    assert (await browser.post(PAGE + "nothing/variables/", **{"v-KEY": "x"})).status_code == 404


async def test_a_form_from_elsewhere_changes_nothing(
    house: Supervisor,
    as_user: Enter,
    bob: User,
    organization: Organization,
    make_server: MakeServer,
    make_account: MakeAccount,
) -> None:
    account = await in_rows(lambda: make_account(make_server(organization), bob))
    browser = await as_user(bob)
    for path in (f"accounts/{account.pk}/", "notes/variables/", "notes/begin"):
        answer = await browser.client.post(PAGE + path, {"action": "disconnect"})
        assert answer.status_code == 403, path
    assert await LinkedAccount.objects.aexists()


async def test_who_has_left_the_organization_reaches_nothing_of_it(
    house: Supervisor,
    as_user: Enter,
    bob: User,
    organization: Organization,
    make_server: MakeServer,
    make_account: MakeAccount,
) -> None:
    account = await in_rows(lambda: make_account(make_server(organization), bob))
    browser = await as_user(bob)
    await Membership.objects.filter(user=bob).adelete()
    for path in ("", "notes/begin"):
        assert (await browser.get(PAGE + path)).status_code == 404
    assert (await browser.post(PAGE + f"accounts/{account.pk}/", action="default")).status_code == 404


def test_the_end_of_a_person_or_an_organization_is_the_end_of_the_links(
    alice: User, bob: User, organization: Organization, make_server: MakeServer, make_account: MakeAccount
) -> None:
    server = make_server(organization)
    make_account(server, alice, "alice")
    make_account(server, bob, "bob")
    bob.delete()
    assert [account.name for account in LinkedAccount.objects.as_system()] == ["alice"]
    organization.delete()
    assert not LinkedAccount.objects.as_system().exists()


@pytest.mark.parametrize("path", ["accounts/00000000-0000-4000-8000-000000000000/"])
async def test_what_a_form_asks_for_must_be_something(
    house: Supervisor, as_user: Enter, bob: User, organization: Organization, path: str
) -> None:
    browser = await as_user(bob)
    assert (await browser.post(PAGE + path, action="explode")).status_code == 404
    assert (await browser.get(PAGE + path)).status_code == 405
