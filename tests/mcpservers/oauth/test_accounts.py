"""The accounts of a person: which one is used, what it is called, and its end."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.actors import Actor
from accounts.models import AuditRecord, User
from chatui.errors import InvalidRequestError, NotFoundError
from chatui.rows import in_rows
from mcpservers.models import LinkedAccount, MCPServer, ServerGrant
from mcpservers.oauth import accounts, identity
from mcpservers.oauth.grants import Granted
from mcpservers.oauth.identity import claims_of, free_name, tidy_name
from tests.fakes import authfaults
from tests.fakes.authserver import FakeAuthServer, Heard
from tests.mcpservers.oauth.conftest import Link, Make
from tests.mcpservers.oauth.resource import Resource


@pytest.fixture
async def known(make_server: Make, resource: Resource) -> MCPServer:
    """A server whose authorization server tells who signs in."""
    return await make_server(resource.url, oauth={"scopes": ["openid", "email"]})


# --- Who it is --------------------------------------------------------------------------------------------------------


async def test_an_account_is_called_what_the_server_says(link: Link, known: MCPServer) -> None:
    account = await link(known, "grace")
    assert (account.name, account.subject) == ("grace@notes.example", "sub-grace")


async def test_where_the_id_token_tells_no_name_the_userinfo_does(
    link: Link, known: MCPServer, auth: FakeAuthServer
) -> None:
    auth.id_token_changes = {"email": None, "preferred_username": None, "name": None}
    assert (await link(known)).name == "ada@notes.example"
    assert auth.count("userinfo") == 1


@pytest.mark.parametrize("fault", [authfaults.html, authfaults.die, authfaults.endless, authfaults.status(403)])
async def test_an_ill_userinfo_costs_no_link(link: Link, known: MCPServer, auth: FakeAuthServer, fault: Any) -> None:
    auth.on("userinfo", fault)
    auth.id_token_changes = {"email": None, "preferred_username": None, "name": None}
    assert (await link(known)).name == "sub-ada"


async def test_userinfo_of_somebody_else_is_not_believed(link: Link, known: MCPServer, auth: FakeAuthServer) -> None:
    auth.id_token_changes = {"email": None, "preferred_username": None, "name": None}
    auth.on("userinfo", authfaults.said({"sub": "sub-grace", "email": "grace@notes.example"}))
    assert (await link(known)).name == "sub-ada"


async def test_a_token_is_sent_to_no_other_host_to_ask_who_it_is(
    link: Link, known: MCPServer, auth: FakeAuthServer, resource: Resource
) -> None:
    auth.metadata_changes = {"userinfo_endpoint": f"{resource.origin}/userinfo"}
    auth.id_token_changes = {"iss": "https://other.example"}
    assert (await link(known)).name == "Account 1"
    assert "/userinfo" not in resource.asked


async def test_accounts_without_a_name_are_counted(link: Link, server: MCPServer) -> None:
    assert [(await link(server)).name, (await link(server)).name] == ["Account 1", "Account 2"]


@pytest.mark.parametrize("email", ["Ünïcødé 名前@例え.jp", "a\u202eb\u200b\nc", "x" * 5000, 7, "", "   "])
async def test_odd_names_are_shown_as_one_line(link: Link, known: MCPServer, auth: FakeAuthServer, email: Any) -> None:
    auth.id_token_changes = {"email": email}
    account = await link(known)
    assert 0 < len(account.name) <= identity.LONGEST_NAME
    assert tidy_name(account.name) == account.name


@pytest.mark.parametrize(
    "token", ["", "a", "a.b.c", "a." + "e30" + ".c", "a.W10.c", "\ud800.\ud800", "a." + "x" * 100_000 + ".c"]
)
def test_an_id_token_that_is_none_tells_nothing(token: str) -> None:
    assert claims_of(token, "https://a.example", "c") == {}


def test_names_do_not_repeat() -> None:
    assert free_name("ada", ["grace"]) == "ada"
    assert free_name("ada", ["ada", "ada (2)"]) == "ada (3)"
    assert free_name("", ["Account 1"]) == "Account 2"


def test_what_came_with_the_tokens_names_the_account_too() -> None:
    assert identity._name(Granted("a", said={"workspace_name": "Acme"}).said) == "Acme"


# --- Linked again -----------------------------------------------------------------------------------------------------


async def test_the_same_person_linked_again_is_the_same_account(link: Link, known: MCPServer, actor: Actor) -> None:
    first = await link(known)
    await in_rows(accounts.rename, actor, first.pk, "Work")
    again = await link(known)
    assert (again.pk, again.name, again.version) == (first.pk, "Work", 2)


async def test_another_person_is_another_account_even_where_the_first_was_to_be_linked_again(
    link: Link, known: MCPServer
) -> None:
    ada = await link(known)
    grace = await link(known, "grace", account_id=ada.pk)
    assert grace.pk != ada.pk
    await ada.arefresh_from_db()
    assert (ada.name, ada.version, ada.is_default, grace.is_default) == ("ada@notes.example", 1, True, False)


async def test_an_account_that_stopped_working_is_mended_where_nobody_tells_who_it_is(
    link: Link, server: MCPServer
) -> None:
    first = await link(server)
    await LinkedAccount.objects.as_system().filter(pk=first.pk).aupdate(state="relink", tokens={})
    again = await link(server)
    assert (again.pk, again.state) == (first.pk, "ready")


async def test_where_the_default_stopped_working_a_new_account_takes_its_place(link: Link, known: MCPServer) -> None:
    ada = await link(known)
    await LinkedAccount.objects.as_system().filter(pk=ada.pk).aupdate(state="relink", tokens={})
    grace = await link(known, "grace")
    await ada.arefresh_from_db()
    assert (ada.is_default, grace.is_default) == (False, True)


async def test_an_account_of_somebody_else_cannot_be_linked_again(
    link: Link, server: MCPServer, alice: User, actor_of: Any
) -> None:
    account = await link(server)
    other = await in_rows(actor_of, alice)
    with pytest.raises(NotFoundError):
        await link(server, who=other, account_id=account.pk)


# --- Which one is used ------------------------------------------------------------------------------------------------


async def test_the_chosen_account_is_used_else_the_default_and_never_another_in_its_place(
    link: Link, known: MCPServer, actor: Actor
) -> None:
    def chosen(account_id: Any = None) -> Any:
        account = accounts.choose(actor, known, account_id)
        return account and account.name

    assert await in_rows(chosen) is None
    await link(known)
    grace = await link(known, "grace")
    assert await in_rows(chosen) == "ada@notes.example"
    assert await in_rows(chosen, grace.pk) == "grace@notes.example"
    await in_rows(accounts.make_default, actor, grace.pk)
    assert await in_rows(chosen) == "grace@notes.example"
    await accounts.disconnect(actor, grace.pk)
    assert await in_rows(chosen, grace.pk) is None
    assert await in_rows(chosen) == "ada@notes.example"


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite locks no rows")
async def test_the_order_among_accounts_keeps_nobody_from_naming_the_server(
    link: Link, known: MCPServer, actor: Actor
) -> None:
    """A foreign key to a server is checked with a lock that only a stronger one than ours would keep waiting."""

    def locks() -> list[str]:
        with CaptureQueriesContext(connection) as queries:
            accounts.make_default(actor, account.pk)
        return [query["sql"] for query in queries if " FOR " in query["sql"]]

    account = await link(known)
    assert [" FOR NO KEY UPDATE" in sql for sql in await in_rows(locks)] == [True]


async def test_everybody_has_accounts_of_their_own(
    link: Link, known: MCPServer, actor: Actor, alice: User, actor_of: Any
) -> None:
    account = await link(known)
    other = await in_rows(actor_of, alice)
    assert await in_rows(accounts.choose, other, known) is None
    assert await in_rows(accounts.choose, other, known, account.pk) is None
    for verb in (accounts.make_default, lambda who, pk: accounts.rename(who, pk, "Mine")):
        with pytest.raises(NotFoundError):
            await in_rows(verb, other, account.pk)


async def test_two_people_with_the_same_account_there_have_one_each(
    link: Link, known: MCPServer, actor: Actor, alice: User, actor_of: Any
) -> None:
    other = await in_rows(actor_of, alice)
    assert (await link(known)).pk != (await link(known, who=other)).pk


@pytest.mark.parametrize("name", ["", "  ", "\u200b", "grace@notes.example"])
async def test_a_name_that_says_nothing_or_is_taken_is_refused(
    link: Link, known: MCPServer, actor: Actor, name: str
) -> None:
    account = await link(known)
    await link(known, "grace")
    with pytest.raises(InvalidRequestError):
        await in_rows(accounts.rename, actor, account.pk, name)


# --- Its end ----------------------------------------------------------------------------------------------------------


async def test_disconnecting_revokes_and_forgets(
    link: Link, known: MCPServer, actor: Actor, auth: FakeAuthServer
) -> None:
    account = await link(known)
    token, refresh = account.tokens["access_token"], account.tokens["refresh_token"]
    done = await accounts.disconnect(actor, account.pk)
    assert (done.account, done.server_title, done.warning) == (account.name, "Notes", "")
    assert auth.valid(token) is None
    assert not auth.memory.tokens[refresh].active
    assert not await LinkedAccount.objects.as_system().aexists()
    record = await AuditRecord.objects.aget(action="link.revoked")
    assert (record.account_id, record.actor_id) == (account.pk, actor.user_id)


@pytest.mark.parametrize(
    "fault",
    [authfaults.status(500), authfaults.die, authfaults.endless, authfaults.redirect("https://evil.example", 307)],
)
async def test_a_revocation_that_fails_is_told_and_the_account_is_gone_all_the_same(
    link: Link, known: MCPServer, actor: Actor, auth: FakeAuthServer, fault: Any
) -> None:
    account = await link(known)
    auth.on("revoke", fault)
    done = await accounts.disconnect(actor, account.pk)
    assert done.warning
    assert account.tokens["refresh_token"] not in done.warning
    assert not await LinkedAccount.objects.as_system().aexists()


async def test_a_service_that_revokes_one_kind_of_token_alone_is_given_the_other_too(
    link: Link, known: MCPServer, actor: Actor, auth: FakeAuthServer
) -> None:
    async def of_access_alone(heard: Heard) -> web.StreamResponse:
        if heard.form["token_type_hint"] == "refresh_token":
            return await authfaults.refusal("unsupported_token_type")(heard)
        return await auth.usual(heard)

    account = await link(known)
    auth.on("revoke", of_access_alone)
    assert "HTTP 400" in (await accounts.disconnect(actor, account.pk)).warning
    assert auth.valid(account.tokens["access_token"]) is None


async def test_an_account_whose_tokens_are_gone_is_not_said_to_be_revoked(
    link: Link, known: MCPServer, actor: Actor, auth: FakeAuthServer
) -> None:
    account = await link(known)
    known.url += "/elsewhere"
    await known.asave()  # nothing follows it there
    assert "end the access there" in (await accounts.disconnect(actor, account.pk)).warning
    assert auth.count("revoke") == 0


async def test_where_nothing_can_be_revoked_the_person_is_told(
    link: Link, known: MCPServer, actor: Actor, auth: FakeAuthServer
) -> None:
    auth.metadata_changes = {"revocation_endpoint": None}
    account = await link(known)
    assert "end the access there" in (await accounts.disconnect(actor, account.pk)).warning


async def test_a_manager_may_disconnect_anybody_s_and_nobody_else_may(
    link: Link, known: MCPServer, actor: Actor, alice: User, charlie: User, actor_of: Any, make_member: Any
) -> None:
    account = await link(known)
    owner, stranger = await in_rows(actor_of, alice), await in_rows(actor_of, charlie)
    colleague = await in_rows(lambda: actor_of(make_member("dave", known.organization)))
    for who in (stranger, colleague):
        with pytest.raises(NotFoundError):
            await accounts.disconnect(who, account.pk)
    done = await accounts.disconnect(owner, account.pk)
    assert done.user_id == actor.user_id
    record = await AuditRecord.objects.aget(action="link.revoked")
    assert (record.actor_id, record.person_id) == (owner.user_id, actor.user_id)
    with pytest.raises(NotFoundError):
        await accounts.disconnect(owner, uuid4())


async def test_an_account_can_be_disconnected_after_its_server_was_taken_away(
    link: Link, known: MCPServer, actor: Actor
) -> None:
    account = await link(known)
    await ServerGrant.objects.filter(server=known).adelete()
    await accounts.disconnect(actor, account.pk)
    assert not await LinkedAccount.objects.as_system().aexists()
