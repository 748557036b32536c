"""Rules as people write them: what is refused, what is told, and who a rule lets answer."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.contrib.messages import get_messages
from django.forms import modelform_factory
from django.test import Client
from django.urls import reverse

from accounts import approvers, rule_warnings
from accounts.models import Group, Membership, Organization, User
from accounts.rules import rule_findings, unreached
from agents import tool_warnings as of_agents
from agents.models import Agent
from mcpservers import tool_warnings as of_servers
from mcpservers.models import MCPServer, ServerGrant, ToolSighting, ToolVersion, ToolView
from tests.fakes.admin_world import post_data


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("allow", "list"),
        ([{"tool": "*"}], "Rule 1"),
        ([{"tool": "*", "do": "maybe"}], "allow, ask, deny"),
        ([{"tool": "", "do": "ask"}], "pattern"),
        ([{"tool": "*", "do": "ask", "who": "bob"}], "may have"),
        ([{"tool": "*", "do": "ask", "edit": "yes"}], "edit"),
        ([{"tool": "*", "do": "ask", "remember": 1}], "remember"),
        ([{"tool": "*", "do": "ask", "approvers": []}], "approvers"),
        ([{"tool": "*", "do": "ask", "approvers": "bob"}], "approvers"),
        ([{"tool": "*", "do": "ask", "approvers": ["group:No Such"]}], "group:name"),
        ([{"tool": "*", "do": "ask", "approvers": ["user:bob"]}], "by their user names"),
        ([{"tool": "*", "do": "allow", "approvers": ["bob"]}], "only a rule with ask"),
        ([{"tool": "a", "do": "allow"}, {"tool": "*", "do": "ask"}, {"tool": "a", "do": "deny"}], "Rule 3 contradicts"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_place(rules: Any, words: str) -> None:
    (finding,) = rule_findings(rules)
    assert words in finding


def test_a_whole_rule_is_fine() -> None:
    rule = {"tool": "pay_*", "do": "ask", "remember": False, "edit": True, "approvers": ["bob", "group:finance"]}
    assert list(rule_findings([rule, {"tool": "*", "do": "allow"}])) == []


def test_rules_that_decide_nothing_are_told() -> None:
    rules = [{"tool": "get_*", "do": "allow"}, {"tool": "get_a", "do": "ask"}, {"tool": "gone", "do": "deny"}]
    told = dict(unreached(rules, {"get_a", "get_b"}))
    assert told.keys() == {2, 3}
    assert "before it" in told[2]
    assert "matches no tool" in told[3]
    assert dict(unreached([{"tool": "*", "do": "ask"}, {"tool": "a", "do": "deny"}], ())).keys() == {2}


def test_names_become_people_who_may_answer(
    organization: Organization, alice: User, bob: User, charlie: User, make_member: Callable[..., User]
) -> None:
    make_member("carol", organization, "auditor")
    group = Group.objects.create(organization=organization, slug="finance")
    group.memberships.set(Membership.objects.filter(user__in=[alice, bob]))

    def resolve(*names: list[str]) -> approvers.Approvers:
        rules = approvers.bound(organization.pk, [{"approvers": list(each)} for each in names])
        return approvers.resolve(organization.pk, [rule["approvers"] for rule in rules])

    found = resolve(["bob", "carol", "charlie", "nobody"])
    assert found.people == {bob.pk: "bob"}, "neither an auditor nor a stranger answers"
    assert resolve(["group:finance"]).people == {alice.pk: "alice", bob.pk: "bob"}
    assert resolve(["group:finance"], ["bob"]).people == {bob.pk: "bob"}
    assert "different approvers" in resolve(["alice"], ["bob"]).problem
    Membership.objects.filter(user=bob).update(is_active=False)
    assert resolve(["bob"]).problem == "its rule names as approvers bob, of whom nobody can answer"


def test_who_takes_the_name_of_an_approver_does_not_approve(
    organization: Organization, bob: User, alice: User, make_member: Callable[..., User]
) -> None:
    rules: Any = [{"tool": "*", "do": "ask", "approvers": ["bob", "later"]}]
    group = Group.objects.create(organization=organization, slug="interns", rules=rules)
    server = MCPServer.objects.create(organization=organization, slug="s", title="S", rules=rules)
    bob.username, bob.email = "robert", ""
    bob.save()
    newcomers = [make_member(name, organization) for name in ("bob", "later")]
    for row in (group, server):
        row.refresh_from_db()
        row.save()  # for whatever reason
        assert approvers.resolve(organization.pk, [row.rules[0]["approvers"]]).people == {bob.pk: "robert"}
        form: Any = modelform_factory(type(row), fields=["rules"])(instance=row)
        assert form.initial["rules"][0]["approvers"] == ["robert", "later"]
    assert "“later” was no member when this was saved" in str(rule_warnings.warnings(organization.pk, group.rules, ()))
    group.rules = rules  # it is meant by whoever writes it now
    group.save()
    found = approvers.resolve(organization.pk, [group.rules[0]["approvers"]])
    assert found.people == {each.pk: each.username for each in newcomers}
    bob.delete()
    assert approvers.resolve(organization.pk, [server.rules[0]["approvers"][:1]]).problem == (
        "its rule names as approvers somebody who has left, of whom nobody can answer"
    )
    assert not list(rule_findings(approvers.named(server.rules))), "it can be saved as it is shown"


def test_rules_of_before_mean_who_has_the_name_when_they_are_migrated(organization: Organization, bob: User) -> None:
    rules: Any = [{"tool": "*", "do": "ask", "approvers": ["bob", "group:g", "nobody"]}, "broken"]
    group = Group.objects.create(organization=organization, slug="interns")
    Group.objects.filter(pk=group.pk).update(rules=rules)
    import_module("agents.migrations.0004_approvers_by_id").bind(apps, None)
    group.refresh_from_db()
    assert group.rules == [rules[0] | {"approvers": [f"user:{bob.pk}", "group:g", "nobody:nobody"]}, "broken"]


def test_a_group_of_another_organization_is_nobody(
    organization: Organization, other_organization: Organization, bob: User, charlie: User
) -> None:
    group = Group.objects.create(organization=other_organization, slug="finance")
    group.memberships.set(Membership.objects.filter(user=charlie))
    assert approvers.resolve(organization.pk, [["group:finance"]]).people == {}


def test_approvers_who_cannot_answer_are_told(organization: Organization, bob: User) -> None:
    Group.objects.create(organization=organization, slug="empty")
    rules = [
        {"tool": "a", "do": "ask", "approvers": [f"user:{bob.pk}", "nobody:left"]},
        {"tool": "b", "do": "ask", "approvers": ["group:gone", "group:empty"]},
    ]
    told = rule_warnings.warnings(organization.pk, rules, ())
    assert [line.split(":")[0] for line in told] == ["Rule 1", "Rule 2", "Rule 2", "Rule 2"]
    assert "does not exist" in told[1]
    assert "no member" in told[2]
    assert "are denied" in told[3]


def test_a_groups_rules_are_edited_in_the_admin_with_their_warnings(organization: Organization, alice: User) -> None:
    group = Group.objects.create(organization=organization, slug="interns")
    client = Client()
    client.force_login(alice, backend="django.contrib.auth.backends.ModelBackend")
    address = reverse("admin:accounts_group_change", args=[group.pk])
    row = {
        "rules-0-tool": "notes__*",
        "rules-0-do": "ask",
        "rules-0-approvers": "left, group:gone",
        "rules-0-edit": "on",
    }
    data = {"slug": "interns", "name": "", "rules-rows": "1", **row}
    assert client.post(address, data).status_code == 302
    group.refresh_from_db()
    assert group.rules == [
        {"tool": "notes__*", "do": "ask", "remember": False, "edit": True, "approvers": ["nobody:left", "group:gone"]}
    ]
    page = client.get(address).content.decode()
    assert "nobody can approve" in page
    assert "left, group:gone" in page
    refused = client.post(address, data | {"rules-0-do": "deny"})
    assert refused.status_code == 200
    assert "only a rule with ask" in refused.content.decode()


def known(server: MCPServer, *tools: str) -> None:
    view = ToolView.objects.create(server=server)
    for tool in tools:
        version = ToolVersion.objects.create(server=server, tool=tool, hash=tool, definition={"name": tool})
        ToolSighting.objects.create(view=view, version=version, listed=True)


def test_patterns_that_match_no_tool_are_told_wherever_they_stand(
    organization: Organization, alice: User, make_agent: Callable[..., Agent]
) -> None:
    server = MCPServer.objects.create(
        organization=organization,
        slug="notes",
        title="Notes",
        url="https://notes.example.org/mcp",
        read_only=["get_*", "lost_*"],
        rules=[{"tool": "gone", "do": "deny"}],
    )
    agent = make_agent(organization, servers=[server])
    agent.servers.update(tools=["read", "raed"])
    ServerGrant.objects.create(server=server, whole_organization=True, tool="get*")
    ServerGrant.objects.create(server=server, user=alice, tool="gte*", deny=True)
    assert of_servers.warnings_of(server) == of_agents.warnings_of(agent) == []  # nothing is known yet
    known(server, "get_a", "read")
    assert of_servers.warnings_of(server) == [
        "Rule 1: “gone” matches no tool that is known.",
        "Read-only tools: “lost_*” matches no tool that is known.",
        "Grants: “gte*” matches no tool that is known.",
    ]
    assert of_agents.warnings_of(agent) == ["Tools of “Notes”: “raed” matches no tool that is known."]
    client = Client()
    client.force_login(alice, backend="django.contrib.auth.backends.ModelBackend")
    for row, words in ((server, "gte*"), (agent, "raed")):
        address = reverse(f"admin:{row._meta.label_lower.replace('.', '_')}_change", args=[row.pk])
        page = client.get(address)
        assert f"“{words}” matches no tool" in page.content.decode()
        saved = client.post(address, post_data(page))
        told = [str(message) for message in get_messages(saved.wsgi_request)]
        assert any(f"“{words}” matches no tool" in text for text in told), told


def test_rules_that_contradict_each_other_are_refused_by_every_form(
    organization: Organization, alice: User, make_agent: Callable[..., Agent]
) -> None:
    server = MCPServer.objects.create(
        organization=organization, slug="notes", title="Notes", url="https://notes.example.org/mcp"
    )
    rows = [Group.objects.create(organization=organization, slug="interns"), server, make_agent(organization)]
    client = Client()
    client.force_login(alice, backend="django.contrib.auth.backends.ModelBackend")
    rules = {"rules-0-tool": "get_*", "rules-0-do": "allow", "rules-1-tool": "get_*", "rules-1-do": "deny"}
    for row in rows:
        address = reverse(f"admin:{row._meta.label_lower.replace('.', '_')}_change", args=[row.pk])
        answer = client.post(address, post_data(client.get(address)) | {"rules-rows": "2", **rules})
        assert answer.status_code == 200, row
        assert "Rule 2 contradicts rule 1" in answer.content.decode()
        row.refresh_from_db()
        assert row.rules == []
