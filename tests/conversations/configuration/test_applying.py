"""A file becomes rows; again, it changes nothing; what cannot be is refused with its path and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import Group, Membership, Organization, User
from agents.models import Agent, AgentGrant, ModelEndpoint, ModelProfile
from conversations.configuration.plan import Plan
from conversations.configuration.problems import ConfigurationError
from conversations.models import Conversation
from mcpservers import peers
from mcpservers.models import MCPServer, ServerGrant, ToolSighting, ToolVersion, ToolView, UserVariables
from tests.conversations.configuration.conftest import SECRETS

pytestmark = pytest.mark.django_db
Apply = Callable[..., Plan]


def acme(**changes: Any) -> dict[str, Any]:
    return {"organizations": {"acme": changes}}


def refused(apply: Apply, changes: Any, **options: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        apply(changes, **options)
    return [str(problem) for problem in caught.value.problems]


def test_the_example_becomes_rows(apply: Apply) -> None:
    apply()
    alice, bob = User.objects.get(username="alice"), User.objects.get(username="bob")
    assert alice.check_password("canary-password")
    assert not alice.is_superuser
    assert not bob.has_usable_password()
    assert Membership.objects.get(user=alice).role == "admin"
    assert [m.user for m in Group.objects.get(slug="analysts").memberships.all()] == [bob]
    endpoint = ModelEndpoint.objects.as_system().get()
    assert (endpoint.base_url, endpoint.api_key) == ("http://127.0.0.1:9/v1", "canary-key")
    assert endpoint.headers == {"X-Team": "canary-secret"}
    profile = ModelProfile.objects.as_system().get()
    assert (profile.name, float(profile.input_price or 0), profile.images) == ("gpt-5-mini", 0.25, True)
    tickets, clock = MCPServer.objects.as_system().order_by("-slug")
    assert tickets.headers == {"Authorization": "Bearer {{TICKETS_TOKEN}}", "X-Key": "canary-secret"}
    assert tickets.variables == {"TICKETS_TOKEN": {"title": "Personal token", "description": "", "sensitive": True}}
    assert tickets.rules == [{"tool": "delete_*", "do": "deny"}, {"tool": "*", "do": "ask"}]
    assert (clock.transport, clock.command, clock.args) == ("stdio", "python", ["-m", "demo.mcp_server"])
    assert {(g.group and g.group.slug, g.user and g.user.username, g.deny) for g in tickets.grants.all()} == {
        ("analysts", None, False),
        (None, "bob", True),
    }
    agent = Agent.objects.as_system().get()
    assert agent.model == profile
    assert [(s.server.slug, s.tools) for s in agent.servers.all()] == [("tickets", ["search", "get_*"]), ("clock", [])]
    assert (agent.max_rounds, agent.temperature, agent.top_p) == (10, 0.3, None)
    assert AgentGrant.objects.get(agent=agent).whole_organization


def test_applied_again_it_changes_nothing_and_writes_nothing(apply: Apply) -> None:
    apply()
    with CaptureQueriesContext(
        connection,
    ) as captured:
        plan = apply()
    assert not plan
    assert [q["sql"] for q in captured if not q["sql"].startswith(("SELECT", "SAVEPOINT", "RELEASE"))] == []


def test_a_plan_tells_what_applying_does_and_changes_nothing(apply: Apply) -> None:
    plan = apply(plan_only=True)
    assert not Organization.objects.exists()
    assert not User.objects.exists()
    assert plan.changes == apply().changes


def test_a_plan_shows_a_changed_field_and_never_a_secret(apply: Apply) -> None:
    first = "\n".join(apply().lines())
    changes = acme(
        endpoints={"main": {"retries": 3, "api_key": "canary-new"}},
        servers={"tickets": {"headers": {"X-Key": "canary-new"}}},
        agents={"helper": {"instructions": "Key: ${SECRET}"}},
    )
    lines = list(apply(changes | {"users": {"alice": {"password": "canary-new"}}}).lines())
    assert "~ organizations.acme.endpoints.main" in lines
    assert "    retries: 2 → 3" in lines
    assert "    api_key: «changed»" in lines
    assert "    headers: «changed»" in lines
    assert "    password: «changed»" in lines
    assert "    instructions: «changed»" in lines  # its text came from the environment
    assert "canary" not in first + "\n".join(lines)
    assert User.objects.get(username="alice").check_password("canary-new")


def test_a_changed_server_gets_a_new_revision_and_an_unchanged_one_keeps_its(apply: Apply) -> None:
    apply()
    before = {s.slug: (s.revision, s.updated_at) for s in MCPServer.objects.as_system()}
    apply(acme(servers={"tickets": {"timeout": 30}}))
    after = {s.slug: (s.revision, s.updated_at) for s in MCPServer.objects.as_system()}
    assert after["tickets"][0] == before["tickets"][0] + 1
    assert after["clock"] == before["clock"]


def test_an_absent_key_is_the_default(apply: Apply) -> None:
    apply()
    apply(acme(agents={"helper": {"temperature": ..., "grants": ...}}, servers={"tickets": {"read_only": ...}}))
    agent = Agent.objects.as_system().get()
    assert agent.temperature is None
    assert not agent.grants.exists()
    assert MCPServer.objects.as_system().get(slug="tickets").read_only == []


def test_what_the_file_does_not_state_of_a_user_is_left_alone(apply: Apply) -> None:
    apply({"users": {"alice": {"superuser": True}}})
    apply({"users": {"alice": {"superuser": ..., "password": ..., "email": ...}}})
    alice = User.objects.get(username="alice")
    assert (alice.is_superuser, alice.email) == (True, "alice@example.org")
    assert alice.check_password("canary-password")


def test_nothing_is_deleted_without_prune(apply: Apply) -> None:
    apply()
    plan = apply({"organizations": {"acme": {"name": "Acme", **dict.fromkeys(SECTIONS, ...)}}})
    assert not plan
    assert Agent.objects.as_system().exists()


SECTIONS = ("members", "groups", "endpoints", "servers", "agents")


def test_prune_deletes_what_the_file_does_not_name_but_no_user_conversation_or_organization(apply: Apply) -> None:
    apply()
    other = Organization.objects.create(slug="globex", name="Globex")
    bob, agent = User.objects.get(username="bob"), Agent.objects.as_system().get()
    conversation = Conversation.objects.create(
        organization=agent.organization, owner=bob, agent=agent, active_at=timezone.now()
    )
    plan = apply({"users": ..., "organizations": {"acme": dict.fromkeys(SECTIONS, ...)}}, prune=True)
    assert {change.action for change in plan.changes} == {"delete"}
    for rows in (Agent, MCPServer, ModelProfile, ModelEndpoint):
        assert not rows.objects.as_system().exists()
    assert not Group.objects.exists()
    assert not Membership.objects.exists()
    assert User.objects.count() == 2
    conversation.refresh_from_db()
    assert conversation.agent is None
    assert Organization.objects.filter(pk=other.pk).exists()


def test_prune_takes_a_model_from_under_an_agent_that_moves_to_another(apply: Apply) -> None:
    apply()
    apply(
        acme(
            endpoints={"main": {"models": {"gpt": ..., "new": {"name": "n"}}}}, agents={"helper": {"model": "main/new"}}
        ),
        prune=True,
    )
    assert [profile.slug for profile in ModelProfile.objects.as_system()] == ["new"]


def test_a_member_who_was_switched_off_is_switched_on_by_the_file(apply: Apply) -> None:
    apply()
    Membership.objects.update(is_active=False)
    apply()
    assert Membership.objects.active().count() == 2


def test_grants_and_group_members_are_values_of_their_object(apply: Apply) -> None:
    apply()
    changes = acme(
        groups={"analysts": {"name": "Analysts", "members": ["alice", "bob"]}},
        servers={"tickets": {"grants": [{"group": "analysts", "tool": "get_*"}]}},
    )
    lines = list(apply(changes).lines())
    assert '    members: ["bob"] → ["alice", "bob"]' in lines
    grant = ServerGrant.objects.get(server__slug="tickets")
    assert (grant.tool, grant.deny) == ("get_*", False)
    assert not apply(changes)


def test_an_address_that_changes_drops_what_users_entrusted_to_the_old_one(apply: Apply) -> None:
    apply()
    server = MCPServer.objects.as_system().get(slug="tickets")
    UserVariables.objects.create(server=server, user=User.objects.get(username="bob"), values={"TICKETS_TOKEN": "x"})
    apply(acme(servers={"tickets": {"timeout": 30}}))
    assert UserVariables.objects.exists()
    plan = apply(acme(servers={"tickets": {"url": "https://elsewhere.example.org/mcp"}}))
    assert not UserVariables.objects.exists()
    assert any("dropped" in note for note in plan.notes)


def test_oauth_is_stored_without_showing_its_secret(apply: Apply) -> None:
    changes = acme(servers={"tickets": {"oauth": {"client_id": "c", "client_secret": "${SECRET}"}}})
    plan = apply(changes)
    assert MCPServer.objects.as_system().get(slug="tickets").oauth == {
        "client_id": "c",
        "client_secret": "canary-secret",
    }
    assert "canary" not in "\n".join(plan.lines())
    assert not apply(changes)


def test_the_plan_tells_each_servers_scope_and_why(apply: Apply) -> None:
    plan = apply(plan_only=True)
    notes = [note for note in plan.notes if " scope. " in note]
    assert any(note.startswith("organizations.acme.servers.tickets: user scope.") for note in notes)
    assert any(note.startswith("organizations.acme.servers.clock: app scope.") for note in notes)


def test_the_plan_names_a_model_as_the_file_does(apply: Apply) -> None:
    assert any('model: "main/gpt"' in line for line in apply(plan_only=True).lines())


def test_a_file_without_names_keeps_the_names_that_there_are(apply: Apply) -> None:
    apply()
    Organization.objects.update(name="Acme & Sons")
    apply(acme(name=..., agents={"helper": {"name": ...}}, servers={"tickets": {"title": ...}}))
    assert Organization.objects.get().name == "Acme & Sons"
    assert Agent.objects.as_system().get().name == "Helper"
    assert MCPServer.objects.as_system().get(slug="tickets").title == "Ticket system"


def test_an_existing_member_may_be_referred_to_without_being_in_the_file(apply: Apply) -> None:
    apply()
    apply({"users": ..., "organizations": {"acme": {"members": ...}}})
    assert Membership.objects.count() == 2


REFUSED: dict[str, tuple[Any, str]] = {
    "unknown key at the top": ({"organisations": {}}, "organisations: unknown key"),
    "unknown key deep down": (
        acme(endpoints={"main": {"models": {"gpt": {"contxt": 1}}}}),
        "organizations.acme.endpoints.main.models.gpt.contxt: unknown key",
    ),
    "missing key": (
        acme(endpoints={"main": {"base_url": ...}}),
        "organizations.acme.endpoints.main.base_url: is required",
    ),
    "wrong type": (
        acme(agents={"helper": {"max_rounds": "many"}}),
        "organizations.acme.agents.helper.max_rounds: must be a valid integer",
    ),
    "out of range": (acme(agents={"helper": {"temperature": 9}}), "organizations.acme.agents.helper.temperature: "),
    "number for text": (
        acme(endpoints={"main": {"api_key": 12345}}),
        "organizations.acme.endpoints.main.api_key: must be text",
    ),
    "unknown role": (acme(members={"alice": "boss"}), "organizations.acme.members.alice: must be "),
    "member who is no user": (acme(members={"zoe": "member"}), "organizations.acme.members.zoe: there is no user"),
    "group member who is no member": (
        acme(groups={"analysts": ["zoe"]}),
        "organizations.acme.groups.analysts[0]: “zoe” is not a member",
    ),
    "unknown model": (
        acme(agents={"helper": {"model": "main/x"}}),
        "organizations.acme.agents.helper.model: there is no model “main/x”",
    ),
    "model without endpoint": (acme(agents={"helper": {"model": "gpt"}}), "agents.helper.model: must be written as"),
    "unknown server": (
        acme(agents={"helper": {"servers": ["x"], "tools": ...}}),
        "organizations.acme.agents.helper.servers[0]: there is no server “x”",
    ),
    "tools of a server that the agent has not": (
        acme(agents={"helper": {"servers": ["clock"]}}),
        "organizations.acme.agents.helper.tools.tickets: is not one of this agent's servers",
    ),
    "server named twice": (
        acme(agents={"helper": {"servers": ["clock", "clock"], "tools": ...}}),
        "servers[1]: “clock”",
    ),
    "unknown group in a grant": (
        acme(servers={"clock": {"grants": [{"group": "x"}]}}),
        "organizations.acme.servers.clock.grants[0].group: there is no group “x”",
    ),
    "grant to a stranger": (
        acme(agents={"helper": {"grants": [{"user": "zoe"}]}}),
        "organizations.acme.agents.helper.grants[0].user: “zoe” is not a member",
    ),
    "grant to two": (
        acme(servers={"clock": {"grants": [{"user": "bob", "organization": True}]}}),
        "organizations.acme.servers.clock.grants[0]: a grant names exactly one of",
    ),
    "grant to nobody": (
        acme(servers={"clock": {"grants": [{"deny": True}]}}),
        "clock.grants[0]: a grant names exactly",
    ),
    "rule without decision": (
        acme(servers={"clock": {"rules": [{"tool": "*"}]}}),
        "organizations.acme.servers.clock.rules[0].do: is required",
    ),
    "decision that is none": (
        acme(servers={"clock": {"rules": [{"tool": "*", "do": "maybe"}]}}),
        "organizations.acme.servers.clock.rules[0].do: must be 'allow', 'ask' or 'deny'",
    ),
    "server slug with underscore": (
        acme(servers={"my_server": {"url": "https://a.example/mcp"}}),
        "organizations.acme.servers.my_server: ",
    ),
    "http without url": (acme(servers={"tickets": {"url": ...}}), "organizations.acme.servers.tickets.url: "),
    "no http url": (
        acme(servers={"tickets": {"url": "file:///etc/passwd"}}),
        "organizations.acme.servers.tickets.url: ",
    ),
    "placeholder in the host": (
        acme(servers={"tickets": {"url": "https://{{TICKETS_TOKEN}}.example.org/"}}),
        "organizations.acme.servers.tickets.url: A placeholder may stand in the path",
    ),
    "undeclared placeholder": (
        acme(servers={"tickets": {"headers": {"A": "{{NOBODY}}"}}}),
        "organizations.acme.servers.tickets.headers: {{NOBODY}} is neither",
    ),
    "stdio without command": (acme(servers={"clock": {"command": ...}}), "organizations.acme.servers.clock.command: "),
    "stdio with url": (
        acme(servers={"clock": {"url": "https://a.example"}}),
        "organizations.acme.servers.clock.url: A local process has no URL",
    ),
    "budgets": (
        acme(budgets=[{"per": "user", "tokens_per_week": 1}]),
        "organizations.acme.budgets.0.tokens_per_week: unknown key",
    ),
    "two users with one address": ({"users": {"bob": {"email": "ALICE@example.org"}}}, "users.bob: "),
    "username that is none": ({"users": {"a b": {}}}, "users.a b: "),
    "list for a mapping": ({"users": ["alice"]}, "users: must be a mapping"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_with_its_path_and_nothing_is_written(apply: Apply, name: str) -> None:
    changes, expected = REFUSED[name]
    messages = refused(apply, changes)
    assert any(expected in message for message in messages), messages
    assert not any(secret in message for message in messages for secret in SECRETS.values())
    assert not User.objects.exists()
    assert not Organization.objects.exists()


def test_all_problems_are_told_at_once_and_none_follows_from_another(apply: Apply) -> None:
    changes = acme(endpoints={"main": {"base_url": "ftp://x"}}, servers={"clock": {"url": "https://a.example"}})
    assert [message.split(":")[0] for message in refused(apply, changes)] == [
        "organizations.acme.endpoints.main.base_url",
        "organizations.acme.servers.clock.url",
    ]


def test_a_wrong_user_is_not_told_a_second_time_as_a_missing_one(apply: Apply) -> None:
    (message,) = refused(apply, {"users": {"alice": {"email": "no address"}}})
    assert message.startswith("users.alice.email: ")


def test_an_environment_value_that_is_a_template_itself_is_refused_in_a_server(
    apply: Apply, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.conversations.configuration import conftest

    monkeypatch.setitem(conftest.ENVIRONMENT, "SECRET", "x{{user.email}}")
    messages = refused(apply, None)
    assert any(
        message.startswith("organizations.acme.servers.clock.env.TOKEN: the environment's value holds")
        for message in messages
    )
    assert not any("endpoints" in message for message in messages)  # there nothing is expanded later


def test_one_organization_cannot_name_what_another_has(apply: Apply) -> None:
    apply()
    other = {"members": {"alice": "owner"}, "agents": {"a": {"model": "main/gpt", "servers": ["clock"]}}}
    assert refused(apply, {"organizations": {"globex": other}}) == [
        "organizations.globex.agents.a.model: there is no model “main/gpt” in this organization",
        "organizations.globex.agents.a.servers[0]: there is no server “clock” in this organization",
    ]


def test_rules_of_a_group_that_cannot_be_meant_are_refused_with_their_place(apply: Apply) -> None:
    rules = [{"tool": "*", "do": "ask"}, {"tool": "*", "do": "deny"}]
    with pytest.raises(ConfigurationError) as refused:
        apply({"organizations": {"acme": {"groups": {"analysts": {"members": ["bob"], "rules": rules}}}}})
    assert "organizations.acme.groups.analysts.rules" in str(refused.value)
    assert "contradicts" in str(refused.value)


def test_how_long_the_audit_is_kept_is_said_or_left_as_it_is(apply: Apply) -> None:
    apply(acme(audit_days=30, audit_bodies=True))
    apply()
    organization = Organization.objects.get()
    assert (organization.audit_days, organization.audit_bodies) == (30, True)
    assert any("audit_days" in problem for problem in refused(apply, acme(audit_days=0)))


def test_prune_keeps_a_group_that_denies_something_and_says_so(apply: Apply) -> None:
    apply(acme(groups={"analysts": ..., "interns": {"rules": [{"tool": "*", "do": "deny"}]}}, servers=..., agents=...))
    (problem,) = refused(apply, acme(groups={"interns": ...}), prune=True)
    assert problem.startswith(
        "organizations.acme.groups.interns: “interns” is not deleted. Rule 1 of the group, “*: deny”"
    )
    assert problem.endswith("take them away first, or keep the group and remove whoever may.")
    assert Group.objects.filter(slug="interns").exists()
    apply(acme(groups={"interns": {"rules": []}}))
    apply(acme(groups={"interns": ...}), prune=True)
    assert not Group.objects.filter(slug="interns").exists()


def test_prune_keeps_a_group_to_which_a_grant_of_the_file_denies_something(apply: Apply) -> None:
    apply()
    denying = {"servers": {"tickets": {"grants": [{"organization": True}, {"group": "analysts", "deny": True}]}}}
    (problem,) = refused(apply, acme(groups=..., **denying), prune=True)
    assert "A grant of the MCP server “Ticket system” denies “all of it” to the group." in problem
    assert not ServerGrant.objects.filter(deny=True, group__slug="analysts").exists()  # nothing was applied


def test_every_process_hears_of_the_servers_that_changed_once_they_have(
    apply: Apply, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(peers, "server_changed", told.append)

    def heard(changes: Any = None, **options: Any) -> set[str]:
        told.clear()
        with django_capture_on_commit_callbacks(execute=True):
            apply(changes, **options)
            assert not told, "not before it is stored"
        return {slugs[key] for key in told}

    apply()
    slugs = {server.pk: server.slug for server in MCPServer.objects.as_system()}
    assert heard() == set()
    assert heard(acme(servers={"tickets": {"timeout": 61}}), plan_only=True) == set()
    assert heard(acme(servers={"tickets": {"timeout": 61}})) == {"tickets"}
    assert heard(acme(servers={"tickets": {"timeout": 61}, "clock": {"grants": []}})) == {"clock"}
    without = acme(servers={"tickets": ...}, agents={"helper": {"servers": ["clock"], "tools": {"tickets": ...}}})
    assert heard(without, prune=True) == {"tickets", "clock"}, "one is gone, the other has its grants back"


def test_patterns_without_a_tool_are_noted_and_refuse_nothing(apply: Apply) -> None:
    apply()
    server = MCPServer.objects.as_system().get(slug="tickets")
    version = ToolVersion.objects.create(server=server, tool="search", hash="h", definition={"name": "search"})
    ToolSighting.objects.create(view=ToolView.objects.create(server=server), version=version, listed=True)
    place = "organizations.acme.agents.helper"
    changes = acme(
        servers={
            "tickets": {"grants": [{"organization": True}, {"group": "analysts", "tool": "serach", "deny": True}]}
        },
        agents={"helper": {"tools": {"tickets": ["search", "lost_*"]}}},
    )
    plan = apply(changes, plan_only=True)
    assert "organizations.acme.servers.tickets: Grants: “serach” matches no tool that is known." in plan.notes
    assert f"{place}: Tools of “Ticket system”: “lost_*” matches no tool that is known." in plan.notes
    assert apply(changes)
    again = apply(changes)
    assert not again
    assert f"{place}: Tools of “Ticket system”: “lost_*” matches no tool that is known." in again.notes


@pytest.mark.parametrize("where", ["groups", "servers", "agents"])
def test_rules_that_contradict_each_other_are_refused(apply: Apply, where: str) -> None:
    rules = [{"tool": "tickets__a", "do": "allow"}, {"tool": "tickets__a", "do": "deny"}]
    name = {"groups": "analysts", "servers": "tickets", "agents": "helper"}[where]
    section = {"members": ["bob"], "rules": rules} if where == "groups" else {"rules": rules}
    (problem,) = refused(apply, acme(**{where: {name: section}}))
    assert problem.startswith(f"organizations.acme.{where}.{name}.rules: Rule 2 contradicts rule 1")
