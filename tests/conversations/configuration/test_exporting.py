"""What is exported, applied again, changes nothing, and holds no secret."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from accounts.models import Membership, Organization, User
from agents.models import Agent
from conversations.configuration.applying import apply_configuration
from conversations.configuration.exporting import export_configuration
from conversations.configuration.plan import Plan
from mcpservers.models import MCPServer
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
    assert [".".join(change.path) for change in changed.changes] == ["organizations.acme.agents.helper"]
    assert not apply_configuration(export.text, environment=export.secrets)
    server = MCPServer.objects.as_system().get(slug="tickets")
    assert server.grants.filter(user__username="bob", deny=True).exists()
    other = export.text.replace("- organization: true", "- group: analysts")
    assert apply_configuration(other, environment=export.secrets)
    assert server.grants.filter(user__username="bob", deny=True).exists()
    assert not Agent.objects.as_system().get(slug="helper").grants.filter(user__username="bob").exists()
