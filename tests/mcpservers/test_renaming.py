"""A server gets no other slug while rules of others keep something of its tools by the one that it has."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import Group, Role
from agents.models import Agent
from mcpservers.models import MCPServer
from mcpservers.renaming import loosened
from tests.accounts.test_tenant_admin import client_of
from tests.fakes.admin_world import World, world
from tests.mcpservers.test_admin import change, errors

__all__ = ["world"]
pytestmark = pytest.mark.django_db


def rule(tool: str, do: str, **more: Any) -> dict[str, Any]:
    return {"tool": tool, "do": do, **more}


HOLDS: dict[str, tuple[list[Any], bool]] = {
    "denies": ([rule("acme-server__*", "deny")], True),
    "asks": ([rule("acme-server__drop_*", "ask")], True),
    "denies by a part of the name": ([rule("acme-s*__drop", "deny")], True),
    "allows": ([rule("acme-server__*", "allow")], False),
    "is for every server": ([rule("*__drop_*", "deny"), rule("*", "ask")], False),
    "is for another": ([rule("other__*", "deny")], False),
    "is written for both": ([rule("acme-server__*", "deny"), rule("new__*", "deny")], False),
    "is weaker for the new one": ([rule("acme-server__*", "deny"), rule("new__*", "ask")], True),
    "has other approvers for it": (
        [rule("acme-server__*", "ask", approvers=["ada"]), rule("new__*", "ask", approvers=["bob"])],
        True,
    ),
    "cannot be understood": (["*"], False),  # and denies, whatever it is called
}


@pytest.mark.parametrize("case", HOLDS)
@pytest.mark.parametrize("model", [Group, Agent])
def test_what_a_rule_keeps_is_not_given_by_another_slug(world: World, model: Any, case: str) -> None:
    rules, kept = HOLDS[case]
    model._default_manager.filter(pk=world.acme[model].pk).update(rules=rules)
    assert bool(loosened(world.acme[MCPServer], "new")) is kept


def test_the_form_says_whose_rules_are_to_be_written_first(world: World) -> None:
    client, server, group = client_of(world.acme.people[Role.ADMIN]), world.acme[MCPServer], world.acme[Group]
    for one in (group, world.globex[Group]):
        Group.objects.filter(pk=one.pk).update(rules=[rule("acme-server__*", "deny")])
    refused = str(errors(change(client, server, slug="new"))["slug"])
    assert f"group “{group}”" in refused
    assert "new__" in refused
    server.refresh_from_db()
    assert server.slug == "acme-server"
    assert change(client, server, title="Renamed").status_code == 302
    Group.objects.filter(pk=group.pk).update(rules=[rule("acme-server__*", "deny"), rule("new__*", "deny")])
    assert change(client, server, slug="new").status_code == 302
    assert server.slug == "new"
