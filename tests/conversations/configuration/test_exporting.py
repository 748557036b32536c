"""What is exported, applied again, changes nothing, and holds no secret."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from accounts.models import Group, Membership, Organization, User
from agents.models import Agent, AgentGrant, AgentServer
from conversations.configuration.applying import apply_configuration
from conversations.configuration.exporting import export_configuration
from conversations.configuration.plan import Plan
from mcpservers.models import MCPServer, ServerGrant
from tests.conversations.configuration.conftest import SECRETS

pytestmark = pytest.mark.django_db
Apply = Callable[..., Plan]


def test_the_export_applied_plans_nothing(apply: Apply) -> None:
    apply()
    export = export_configuration()
    assert not apply_configuration(export.text, environment=export.secrets, prune=True)


def test_the_export_rebuilds_everything_in_an_empty_database(apply: Apply) -> None:
    apply()
    export = export_configuration()
    Agent.objects.as_system().delete()
    Organization.objects.all().delete()
    User.objects.all().delete()
    assert apply_configuration(export.text, environment=export.secrets)
    assert export_configuration().text == export.text


def test_a_text_of_several_lines_is_written_line_by_line(apply: Apply) -> None:
    apply()
    Agent.objects.as_system().update(instructions="Be brief.\n\nSay what you found.\n")
    assert "instructions: |\n          Be brief.\n\n          Say what you found.\n" in export_configuration().text


def test_secrets_are_written_as_variables_named_by_organization_server_and_name(apply: Apply) -> None:
    apply()
    export = export_configuration()
    acme: dict[str, Any] = yaml.safe_load(export.text)["organizations"]["acme"]
    assert acme["endpoints"]["main"]["api_key"] == "${ACME_MAIN_API_KEY}"
    assert acme["endpoints"]["main"]["headers"] == {"X-Team": "${ACME_MAIN_X_TEAM}"}
    assert acme["servers"]["tickets"]["headers"] == {
        "Authorization": "Bearer {{TICKETS_TOKEN}}",  # a template, not a secret
        "X-Key": "${ACME_TICKETS_X_KEY}",
    }
    assert acme["servers"]["clock"]["env"] == {"TOKEN": "${ACME_CLOCK_TOKEN}"}
    assert not any(secret in export.text for secret in SECRETS.values())
    assert "#   ACME_CLOCK_TOKEN\n" in export.text


def test_the_token_of_a_workload_is_exported_as_a_variable(apply: Apply) -> None:
    oauth = {"grant": "jwt-bearer", "client_id": "c", "assertion": "${SECRET}", "scopes": ["a"]}
    apply({"organizations": {"acme": {"servers": {"tickets": {"oauth": oauth}}}}})
    export = export_configuration()
    tickets = yaml.safe_load(export.text)["organizations"]["acme"]["servers"]["tickets"]
    assert tickets["oauth"] == oauth | {"assertion": "${ACME_TICKETS_ASSERTION}"}
    assert export.secrets["ACME_TICKETS_ASSERTION"] == "canary-secret"
    assert not apply_configuration(export.text, environment=export.secrets, prune=True)


def test_two_secrets_of_one_name_get_numbers(apply: Apply) -> None:
    headers = {"X-Key": "one", "X_Key": "two{{TICKETS_TOKEN}}three"}
    apply({"organizations": {"acme": {"servers": {"tickets": {"headers": headers}}}}})
    export = export_configuration()
    tickets = yaml.safe_load(export.text)["organizations"]["acme"]["servers"]["tickets"]
    assert tickets["headers"]["X_Key"] == "${ACME_TICKETS_X_KEY_2}{{TICKETS_TOKEN}}${ACME_TICKETS_X_KEY_3}"
    assert not apply_configuration(export.text, environment=export.secrets)


def test_what_a_superuser_wrote_to_be_expanded_at_connect_stays_so(apply: Apply) -> None:
    apply()
    server = MCPServer.objects.as_system().get(slug="tickets")
    server.headers = {"Authorization": "Bearer ${TICKETS}"}
    server.description = "costs $5, reads ${HOME}, $${x}"
    server.save()
    export = export_configuration()
    assert not apply_configuration(export.text, environment=export.secrets)


def test_only_the_named_organizations_are_exported(apply: Apply) -> None:
    apply()
    apply_configuration("users: {zoe: {}}\norganizations: {globex: {members: {zoe: owner}}}", environment={})
    value = yaml.safe_load(export_configuration(["globex"]).text)
    assert list(value["organizations"]) == ["globex"]
    assert list(value["users"]) == ["zoe"]


def test_rules_of_groups_and_all_that_a_rule_says_survive_the_way_out_and_in(apply: Apply) -> None:
    rule = {"tool": "tickets__close_*", "do": "ask", "remember": False, "edit": True, "approvers": ["group:analysts"]}
    groups = {"analysts": {"members": ["bob"], "rules": [rule, {"tool": "*__get_*", "do": "allow"}]}}
    apply({"organizations": {"acme": {"groups": groups}}})
    export = export_configuration()
    exported = yaml.safe_load(export.text)["organizations"]["acme"]["groups"]["analysts"]
    assert exported == groups["analysts"]
    assert not apply_configuration(export.text, environment=export.secrets, prune=True)


@pytest.mark.parametrize("how", ["left", "switched off"])
def test_the_export_is_whole_without_who_left_and_no_deny_is_lost_where_it_is_applied(apply: Apply, how: str) -> None:
    grants = [{"user": "bob", "deny": True}, {"organization": True}]
    allowed = {"agents": {"helper": {"grants": [{"user": "bob"}]}}}
    acme = {"groups": {"analysts": []}, "servers": {"tickets": {"grants": grants}}, **allowed}
    apply({"organizations": {"acme": acme}})
    if how == "left":
        Membership.objects.get(user__username="bob").delete()
    else:
        User.objects.filter(username="bob").update(is_active=False)
    export = export_configuration()
    assert "bob" not in str(yaml.safe_load(export.text)["organizations"])
    changed = apply_configuration(export.text, environment=export.secrets)
    left = ["organizations.acme.agents.helper"] if how == "left" else []
    assert [".".join(change.path) for change in changed.changes] == left
    assert not apply_configuration(export.text, environment=export.secrets)
    server = MCPServer.objects.as_system().get(slug="tickets")
    assert server.grants.filter(user__username="bob", deny=True).exists()
    other = export.text.replace("- organization: true", "- group: analysts")
    assert apply_configuration(other, environment=export.secrets)
    assert server.grants.filter(user__username="bob", deny=True).exists()
    helper = Agent.objects.as_system().get(slug="helper")
    assert helper.grants.filter(user__username="bob").exists() == (how == "switched off")
    named = export.text.replace("- organization: true", "- {user: alice}")
    assert apply_configuration(named, environment=export.secrets)
    assert helper.grants.filter(user__username="bob").exists() == (how == "switched off")


def everything() -> dict[str, Any]:
    """The rows that a file is about."""
    rows = {
        model: list(model._base_manager.order_by("pk").values())
        for model in (Organization, Membership, Group, ServerGrant, AgentGrant, Agent, AgentServer, MCPServer)
    }
    groups = Membership.groups.through.objects.order_by("membership_id", "group_id")
    return {model.__name__: found for model, found in rows.items()} | {
        "in groups": list(groups.values_list("membership_id", "group_id"))
    }


def test_applying_an_export_changes_nothing_whatever_is_switched_off(apply: Apply) -> None:
    rule = {"tool": "tickets__*", "do": "ask", "approvers": ["bob", "carol", "group:empty", "nobody"]}
    people = {"bob": "member", "carol": "member", "dora": "guest"}
    grants = [{"user": name} for name in people] + [{"group": "empty", "deny": True}]
    acme = {
        "members": people,
        "groups": {
            "analysts": {"members": list(people), "rules": [rule]},
            "empty": [],
            "named": {"name": "Named", "members": []},
        },
        "servers": {"tickets": {"enabled": False, "grants": grants}},
        "agents": {"helper": {"enabled": False, "grants": grants, "rules": [rule], "user_servers": True}},
        "budgets": [
            {"per": "user", "only": ["bob", "dora"], "tokens_per_day": 5},
            {"per": "group", "tool_calls_per_day": 1},
        ],
        "own_servers": "members",
        "audit_days": 30,
    }
    apply(
        {
            "users": {"carol": {"superuser": True}, "dora": {"email": "dora@example.org"}},
            "organizations": {"acme": acme},
        }
    )
    bob = User.objects.get(username="bob")
    organization = Organization.objects.get(slug="acme")
    MCPServer.objects.create(
        organization=organization, owner=bob, slug="my-notes", title="Notes", url="https://n.example"
    )
    Membership.objects.filter(user=bob).update(is_active=False)
    User.objects.filter(username="carol").update(is_active=False)
    for organization.is_active in (True, False):
        organization.save()
        export = export_configuration()
        assert "carol" not in yaml.safe_load(export.text)["users"], "a superuser who is off comes back nowhere"
        before = everything()
        plan = apply_configuration(export.text, environment=export.secrets, prune=True)
        assert not plan, plan.changes
        assert everything() == before


def test_who_answers_for_calls_on_behalf_of_people_goes_on_to_while_that_person_may(apply: Apply) -> None:
    oauth = {"obo": {"grant": "jwt-bearer", "scopes": ["a"]}}
    apply({"organizations": {"acme": {"servers": {"tickets": {"oauth": oauth}}}}})
    alice = User.objects.get(username="alice")
    servers = MCPServer.objects.as_system().filter(slug="tickets")
    servers.update(obo_author=str(alice.pk))
    export = export_configuration()
    assert not apply_configuration(export.text, environment=export.secrets)
    assert servers.get().obo_author == str(alice.pk)
    Membership.objects.filter(user=alice).update(role="member")
    apply_configuration(export.text.replace("alice: admin", "alice: member"), environment=export.secrets)
    assert servers.get().obo_author == "operator", "the file's word stands for itself"
