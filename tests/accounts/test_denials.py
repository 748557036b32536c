"""A group that keeps something from its members is not deleted, through whichever door, and it is told why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from accounts import denials
from accounts.models import Group, Membership, Role
from agents.models import Agent, AgentGrant
from mcpservers.models import MCPServer, ServerGrant
from tests.accounts.test_tenant_admin import client_of, url
from tests.fakes.admin_world import World

pytestmark = pytest.mark.django_db


def deny_the_server(world: World, group: Group) -> None:
    ServerGrant.objects.create(server=world.acme[MCPServer], group=group, tool="drop_*", deny=True)


def deny_the_agent(world: World, group: Group) -> None:
    AgentGrant.objects.create(agent=world.acme[Agent], group=group, deny=True)


def bound(world: World, group: Group) -> None:
    named = {"per": "group", "only": [{"id": str(group.pk), "name": group.slug}], "tokens_per_day": 1000}
    group.organization.budgets = [{"per": "group", "tokens_per_day": 5000}, named]
    group.organization.save()


def rule(*rules: Any) -> Callable[[World, Group], None]:
    def change(world: World, group: Group) -> None:
        Group.objects.filter(pk=group.pk).update(rules=list(rules))

    return change


CASES: dict[str, tuple[Callable[[World, Group], None], str]] = {
    "a grant of a server": (deny_the_server, "A grant of the MCP server “acme server” denies “drop_*” to the group."),
    "a grant of an agent": (deny_the_agent, "A grant of the agent “acme agent” denies “all of it” to the group."),
    "a rule that denies": (
        rule({"tool": "a__*", "do": "allow"}, {"tool": "*", "do": "deny"}),
        "Rule 2 of the group, “*: deny”, holds for its members.",
    ),
    "a rule that asks": (rule({"tool": "*", "do": "ask"}), "Rule 1 of the group, “*: ask”, holds for its members."),
    "a budget that names it": (
        bound,
        "Budget 2 of the organization, “tokens_per_day: 1,000”, names the group and bounds its members.",
    ),
    "a rule of another kind": (rule("*"), "Rule 1 of the group cannot be understood"),
}


@pytest.fixture
def group(world: World) -> Group:
    found: Group = world.acme[Group]
    found.memberships.add(Membership.objects.get(user=world.acme.people[Role.MEMBER]))
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_group_that_denies_something_is_not_deleted_in_the_admin(world: World, group: Group, case: str) -> None:
    change, words = CASES[case]
    change(world, group)
    other = Group.objects.create(organization=group.organization, slug="harmless")
    client = client_of(world.acme.people[Role.ADMIN])
    chosen = {"action": "delete_selected", "_selected_action": [str(group.pk), str(other.pk)]}
    for address, data in ((url(Group, "delete", group), {}), (url(Group, "changelist"), chosen)):
        for answer in (client.post(address, data), client.post(address, data | {"post": "yes"})):
            page = answer.content.decode()
            assert f"{group}: {words}" in page
            assert denials.INSTEAD in page
            assert 'value="yes"' not in page  # nothing to confirm
    assert Group.objects.filter(pk=group.pk).exists()
    assert denials.denials_of(Group.objects.get(pk=group.pk))


def test_a_group_that_only_gives_is_deleted_and_an_organization_with_all_it_has(world: World, group: Group) -> None:
    rule({"tool": "*", "do": "allow"})(world, group)
    other = Group.objects.create(organization=group.organization, slug="other", rules=[{"tool": "*", "do": "deny"}])
    bound(world, other)
    client = client_of(world.acme.people[Role.OWNER])
    assert ServerGrant.objects.filter(group=group).exists()
    assert client.post(url(Group, "delete", group), {"post": "yes"}).status_code == 302
    assert not Group.objects.filter(pk=group.pk).exists()
    assert client.post(url(type(group.organization), "delete", group.organization), {"post": "yes"}).status_code == 302
    assert not Group.objects.filter(pk=other.pk).exists()


def test_a_member_leaves_such_a_group_as_any_other(world: World, group: Group) -> None:
    deny_the_server(world, group)
    member = Membership.objects.get(user=world.acme.people[Role.MEMBER])
    member.groups.clear()
    client = client_of(world.acme.people[Role.ADMIN])
    assert client.post(url(Membership, "delete", member), {"post": "yes"}).status_code == 302
    assert ServerGrant.objects.filter(group=group, deny=True).exists()
