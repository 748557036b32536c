"""Servers that people define for themselves: what they may be, whose they are, and what is told of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from accounts.actors import Actor
from accounts.models import AuditRecord, Membership, Organization, Role, User
from chatui.errors import ChatUIError, InvalidRequestError, NotFoundError, PermissionDeniedError
from mcpservers import known_tools, own, pins
from mcpservers.acting import acting_target, identity_of
from mcpservers.authorizing import authorize_call
from mcpservers.definitions import findings
from mcpservers.doubles import doubles
from mcpservers.giving import given, reaches
from mcpservers.models import MCPServer, ServerGrant, ToolVersion, ToolView, UserVariables
from mcpservers.scope import Scope
from mcpservers.transports import UserPrincipal
from tests.fakes.own_servers import own as stored_own

pytestmark = pytest.mark.django_db
URL = "https://notes.example.org/mcp"
SECRET = "planted-secret"


@pytest.fixture
def mine(organization: Organization, bob: User, actor_of: Callable[[User], Actor]) -> Actor:
    organization.own_servers = "members"
    organization.save()
    return actor_of(bob)


def make(actor: Actor, **wanted: Any) -> MCPServer:
    return own.create(actor, {"title": "Notes", "url": URL} | wanted)


# --- What it may be -------------------------------------------------------------------------------------------------


def test_it_is_its_owners_alone_by_user_scope_and_never_at_a_private_address(mine: Actor) -> None:
    server = make(mine, headers={"Authorization": f"Bearer {SECRET}"})
    assert (server.owner_id, server.organization_id, server.slug) == (mine.user_id, mine.organization_id, "my-notes")
    target = acting_target(server, mine, {}, identity_of(mine, server))
    assert (target.scope, target.principal) == (Scope.USER, UserPrincipal(mine.user_id))
    assert target.allowances is None  # public addresses alone, whatever MCP_ALLOW_PRIVATE lists


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("url", "http://notes.example.org/mcp"),
        ("url", "https://127.0.0.1/mcp"),  # though the settings of the tests list it
        ("url", "http://localhost:8000/mcp"),
        ("url", "https://[::1]/mcp"),
        ("url", "https://0x7f.1/mcp"),
        ("url", "https://169.254.169.254/latest"),
        ("url", "https://me:secret@notes.example.org/mcp"),
        ("url", "ftp://notes.example.org"),
        ("url", "https://notes.example.org/${HOME}"),
        ("url", "https://{{TOKEN}}.example.org/"),
        ("url", "notes"),
        ("transport", "stdio"),
        ("headers", {"Authorization": "${OPENAI_API_KEY}"}),
        ("headers", {"Authorization": "{{openid.access_token}}"}),
        ("headers", {"Authorization": "{{obo.access_token}}"}),
        ("headers", {"X-Organization": "{{organization.slug}}"}),
        ("headers", {"X-Turn": "{{request.turn_id}}"}),
        ("headers", {"X-Key": "{{KEY}}"}),
        ("headers", {"X Key": "a"}),
        ("headers", {"X-Key": "a\r\nHost: b"}),
        ("variables", {"no name": {}}),
        ("title", " "),
    ],
)
def test_what_it_may_not_be_is_said_by_the_field_and_stores_nothing(mine: Actor, field: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        make(mine, **{field: value})
    assert refused.value.public_message.startswith(f"{field}: ")
    assert not MCPServer.objects.as_system().exists()
    server = make(mine)
    with pytest.raises(InvalidRequestError):
        own.change(mine, server.pk, {field: value})
    server.refresh_from_db()
    assert (server.url, server.headers, server.transport) == (URL, {}, "http")


def test_variables_of_its_own_and_its_owners_name_may_stand_in_it(mine: Actor) -> None:
    server = make(
        mine,
        url=f"{URL}?as={{{{user.username}}}}",
        headers={"Authorization": "Bearer {{TOKEN}}"},
        variables={"TOKEN": {"title": "Token", "sensitive": True}},
    )
    target = acting_target(server, mine, {"TOKEN": SECRET}, identity_of(mine, server))
    assert (target.url, dict(target.headers)) == (f"{URL}?as=bob", {"Authorization": f"Bearer {SECRET}"})


@pytest.mark.parametrize("field", ["oauth", "rules", "read_only"])
def test_an_administrators_word_is_not_in_it_whoever_saves_it(mine: Actor, field: str) -> None:
    server = make(mine)
    setattr(
        server, field, {"rules": [{"tool": "*", "do": "allow"}], "read_only": ["*"], "oauth": {"client_id": "c"}}[field]
    )
    assert field in {name for name, _ in findings(server, environment=["HOME"], kept=server)}


def test_the_database_itself_has_no_process_of_a_persons_own(mine: Actor, organization: Organization) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        MCPServer.objects.create(
            organization=organization, owner_id=mine.user_id, slug="my-x", title="X", transport="stdio", command="sh"
        )


# --- Names and numbers ----------------------------------------------------------------------------------------------


def test_names_of_its_tools_begin_as_no_others_do_and_none_is_there_twice(
    mine: Actor, organization: Organization, alice: User, actor_of: Callable[[User], Actor]
) -> None:
    long = "A very long title that does not fit"
    slugs = [make(mine, title=title).slug for title in ("Notes", "notes!", "笔记", "My", long, long)]
    assert slugs == [
        "my-notes",
        "my-notes-2",
        "my-server",
        "my-my",
        "my-a-very-long-title-tha",
        "my-a-very-long-title-t-2",
    ]
    assert make(actor_of(alice)).slug == "my-notes"  # nobody sees both
    theirs = MCPServer(organization=organization, slug="my-tools", title="Tools", url=URL)
    assert "slug" in {field for field, _ in findings(theirs)}


def test_an_older_server_of_the_organization_keeps_such_a_name_and_the_person_gets_another(
    mine: Actor, organization: Organization
) -> None:
    older = MCPServer.objects.create(organization=organization, slug="my-notes", title="Notes", url=URL)
    assert "slug" not in {field for field, _ in findings(older)}
    assert make(mine).slug == "my-notes-2"


def test_there_are_so_many_of_one_person_and_no_more(mine: Actor, alice: User, actor_of: Any, settings: Any) -> None:
    settings.MCP = settings.MCP | {"OWN_SERVERS": 2}
    first = make(mine)
    make(mine)
    with pytest.raises(own.TooManyServersError, match="2 servers"):
        make(mine)
    make(actor_of(alice))
    own.remove(mine, first.pk)
    make(mine)


# --- Whose it is ----------------------------------------------------------------------------------------------------


def test_nobody_else_finds_changes_deletes_or_calls_it_and_no_grant_gives_it(
    mine: Actor, organization: Organization, alice: User, charlie: User, actor_of: Callable[[User], Actor]
) -> None:
    server = make(mine)
    ServerGrant.objects.create(server=server, whole_organization=True)
    for other in (actor_of(alice), actor_of(charlie)):
        assert not MCPServer.objects.visible_to(other).exists()
        assert not given(other, server, server.grants.all())
        assert not reaches(other, server, server.grants.all())
        assert not authorize_call(other, server.pk, "read").allowed
        for act in (own.remove, own.owned, lambda who, key: own.change(replace(who, own_servers=True), key, {})):
            with pytest.raises(NotFoundError):
                act(other, server.pk)
    assert authorize_call(mine, server.pk, "read").allowed
    ServerGrant.objects.create(server=server, user_id=mine.user_id, deny=True)  # nor does any take it away
    assert authorize_call(mine, server.pk, "read").allowed


def test_who_may_have_any(organization: Organization, make_member: Any, actor_of: Callable[[User], Actor]) -> None:
    for role in Role:
        user = make_member(f"a-{role}", organization, role)
        for setting in ("nobody", "members"):
            Organization.objects.filter(pk=organization.pk).update(own_servers=setting)
            may = setting == "members" and role in (Role.MEMBER, Role.ADMIN, Role.OWNER)
            try:
                make(actor_of(user))
            except PermissionDeniedError:
                assert not may, (role, setting)
            else:
                assert may, (role, setting)


@pytest.mark.parametrize("event", ["setting", "role", "switch", "bar", "membership", "person"])
def test_what_ends_its_use_ends_it_at_the_next_call(
    mine: Actor, organization: Organization, bob: User, event: str
) -> None:
    server = make(mine)
    assert authorize_call(mine, server.pk, "read").allowed
    match event:
        case "setting":
            Organization.objects.filter(pk=organization.pk).update(own_servers="nobody")
        case "role":
            Membership.objects.filter(user=bob).update(role=Role.GUEST)
        case "switch":
            own.change(mine, server.pk, {"enabled": False})
        case "bar":
            MCPServer.objects.as_system().update(barred=True, enabled=False)
        case "membership":
            Membership.objects.filter(user=bob).update(is_active=False)
        case "person":
            bob.delete()
    found = authorize_call(mine, server.pk, "read")
    assert not found.allowed
    assert found.reason


def test_what_an_admin_switched_off_its_owner_can_delete_and_not_switch_on(mine: Actor) -> None:
    server = make(mine)
    MCPServer.objects.as_system().update(barred=True, enabled=False)
    for act in (
        lambda: own.change(mine, server.pk, {"enabled": True}),
        lambda: own.require_usable(mine, server.pk),
    ):
        with pytest.raises(PermissionDeniedError, match="administrator"):
            act()
    own.remove(mine, server.pk)


def test_where_nobody_may_have_any_more_what_there_is_can_be_seen_and_deleted(mine: Actor) -> None:
    server = make(mine)
    late = replace(mine, own_servers=False)
    for act in (
        lambda: make(late),
        lambda: own.change(late, server.pk, {}),
        lambda: own.require_usable(late, server.pk),
    ):
        with pytest.raises(PermissionDeniedError, match="organization"):
            act()
    assert own.all_of(late) == [server]
    own.remove(late, server.pk)


def test_a_key_needs_the_scope_that_administers(mine: Actor) -> None:
    for scopes, may in (({"chat"}, False), ({"chat", "approve", "read"}, False), ({"admin"}, True)):
        key = replace(mine, scopes=frozenset(scopes))
        try:
            server = make(key)
            own.remove(key, server.pk)
        except PermissionDeniedError:
            assert not may
        else:
            assert may
    server = make(mine)
    assert authorize_call(
        replace(mine, scopes=frozenset({"chat"})), server.pk, "read"
    ).allowed  # it acts for the person


# --- Changes --------------------------------------------------------------------------------------------------------


def test_headers_are_replaced_kept_and_removed(mine: Actor) -> None:
    server = make(mine, headers={"A": "1", "B": "2", "C": "3"})
    changed = own.change(mine, server.pk, {"headers": {"A": "one", "B": None, "D": "4"}})
    assert changed.server.headers == {"A": "one", "C": "3", "D": "4"}
    assert (changed.dropped, changed.server.revision) == ((), 2)
    assert own.change(mine, server.pk, {"title": "Notes"}).server.revision == 2  # nothing changed


def test_another_address_gets_nothing_of_what_was_stored_for_the_one_before(mine: Actor) -> None:
    server = make(mine, headers={"A": SECRET, "B": "2"}, variables={"TOKEN": {}})
    UserVariables.objects.create(server=server, user_id=mine.user_id, values={"TOKEN": SECRET})
    changed = own.change(mine, server.pk, {"url": "https://other.example.org/mcp", "headers": {"B": "two"}})
    assert changed.server.headers == {"B": "two"}
    assert changed.dropped == ("A", "TOKEN")
    assert not UserVariables.objects.exists()
    server.refresh_from_db()
    assert SECRET not in json.dumps(server.definition())


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite locks no rows")
def test_calls_and_messages_can_be_stored_while_it_is_added_or_changed(mine: Actor) -> None:
    """To refer to a row takes a share of its key, for which a plain lock would have to be waited for."""
    with CaptureQueriesContext(connection) as made:
        server = make(mine)
        own.change(mine, server.pk, {"title": "Mine"})
    locks = [query["sql"] for query in made if " FOR " in query["sql"]]
    assert [" FOR NO KEY UPDATE" in sql for sql in locks] == [True, True]


def test_everything_is_in_the_audit_and_no_value_is(mine: Actor) -> None:
    server = make(mine, headers={"Authorization": SECRET}, url=f"{URL}?key={SECRET}")
    own.change(mine, server.pk, {"enabled": False, "headers": {"Authorization": f"{SECRET}-2"}})
    own.remove(mine, server.pk)
    rows = list(AuditRecord.objects.as_system().order_by("at"))
    assert [row.action for row in rows] == ["definition.created", "definition.changed", "definition.deleted"]
    for row in rows:
        assert (row.actor_id, row.person_id, row.object_name) == (mine.user_id, mine.user_id, "my-notes")
        assert row.details["own"] is True
    assert rows[1].details == {"own": True, "fields": ["enabled", "headers"], "values": {"enabled": False}}
    assert SECRET not in str([vars(row) for row in rows])


def test_errors_never_hold_a_value(mine: Actor) -> None:
    for wanted in ({"headers": {"A": f"{SECRET}\n"}}, {"url": f"http://{SECRET}:{SECRET}@a.example.org"}):
        with pytest.raises(ChatUIError) as refused:
            make(mine, **wanted)
        assert SECRET not in f"{refused.value} {refused.value.public_message}"


# --- What others are told of its tools ------------------------------------------------------------------------------


def test_its_tools_are_nobody_elses_to_hear_of(
    mine: Actor, organization: Organization, alice: User, actor_of: Callable[[User], Actor]
) -> None:
    server, hers = make(mine), make(actor_of(alice), title="Hers")
    shared = MCPServer.objects.create(organization=organization, slug="wiki", title="Wiki", url=URL)
    definition = {"name": "secret_project_tool", "inputSchema": {"type": "object"}}
    version = ToolVersion.objects.create(
        server=server,
        tool=definition["name"],
        hash="h" * 64,
        definition=definition,
        name_skeleton="secret_project_tool",
    )
    view = ToolView.objects.create(server=server, owner_key=mine.user_id.hex, user_id=mine.user_id)
    view.sightings.create(version=version, listed=True, accepted=True)
    assert known_tools.subjects_of(organization.pk) == frozenset()
    alike = {"name": "secret_project_tool", "description": "See my-notes__secret_project_tool."}
    for other in (shared, hers):
        assert doubles(other.pk, [alike], [alike["name"]]) == [[]]


def test_what_waits_is_its_owners_to_accept(mine: Actor) -> None:
    server = make(mine)
    owner = pins.owner_of(acting_target(server, mine, {}, identity_of(mine, server)))
    view = ToolView.objects.create(server=server, owner_key=owner.key, user_id=mine.user_id)
    version = ToolVersion.objects.create(server=server, tool="read", hash="h" * 64, definition={"name": "read"})
    view.sightings.create(version=version, listed=True, accepted=False)
    words = authorize_call(mine, server.pk, "read").pins.refusal(owner, "h" * 64)
    assert "you" in words
    assert "admin" not in words
    assert [review.id for review in own.waiting_of(server)] == [version.pk]
    assert own.decide(mine, server.pk, [version.pk], ToolVersion.Decision.ACCEPTED) == []
    assert not authorize_call(mine, server.pk, "read").pins.refusal(owner, "h" * 64)
    entry = AuditRecord.objects.as_system().get(action="pin.accepted")
    assert entry.actor_id == mine.user_id


def test_a_stored_one_is_not_the_organizations_for_its_prefix(bob: User, organization: Organization) -> None:
    server = stored_own(bob, organization)
    assert not list(findings(server))
