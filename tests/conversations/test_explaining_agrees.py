"""What is explained is what happens: the offer, the verdict at a call and the look at its rows, over a table."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction

from accounts.actors import find_actor
from accounts.models import Group, Membership, Organization, Role, User
from agents.deciding import decide_call
from agents.models import Agent, AgentGrant, AgentServer
from conversations.explaining import explain
from conversations.models import StandingApproval
from conversations.standing import always_of
from mcpservers import catalogue, entries, pins
from mcpservers.approvals import Do
from mcpservers.authorizing import authorize_call
from mcpservers.candidates import load_candidates
from mcpservers.catalogue import WantedServer
from mcpservers.discovery import Discovery
from mcpservers.fetching import address_of
from mcpservers.models import MCPServer, ServerGrant, ToolVersion, ToolView
from mcpservers.pins import pin_hash

READ = {"name": "read", "inputSchema": {"type": "object"}}
ODD = {"name": "odd", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}  # quarantined
SITUATIONS = 30  # of all that can come together, and of those where much may depend on the rules


@dataclass
class House:
    """Bob, who is in a group, and what he may use."""

    bob: User
    organization: Organization
    group: Group
    agent: Agent
    server: MCPServer


Change = Callable[[House], Any]


def grant(**fields: Any) -> Change:
    def change(house: House) -> None:
        whom = {"group": house.group} if fields.get("group") else {"user": house.bob} if fields.get("user") else {}
        rest = {key: value for key, value in fields.items() if key not in ("group", "user")}
        ServerGrant.objects.create(server=house.server, whole_organization=not whom, **whom, **rest)

    return change


def all_of(*changes: Change) -> Change:
    return lambda house: [change(house) for change in changes]


def nothing(house: House) -> None:
    pass


def of_server(**fields: Any) -> Change:
    return lambda house: MCPServer.objects.as_system().filter(pk=house.server.pk).update(**fields)


def of_agent(**fields: Any) -> Change:
    return lambda house: Agent.objects.as_system().filter(pk=house.agent.pk).update(**fields)


def of_group(do: str) -> Change:
    rules = [{"tool": "*__read", "do": do}]
    return lambda house: Group.objects.filter(pk=house.group.pk).update(rules=rules)


def ruled(do: str, **more: Any) -> Change:
    return of_server(rules=[{"tool": "read", "do": do, **more}])


def standing(scope: str, **fields: Any) -> Change:
    def change(house: House) -> None:
        agent = {"agent": house.agent} if scope == "agent" else {}
        values = {"definition": pin_hash(READ), **agent, **fields}
        StandingApproval.objects.create(
            organization=house.organization, user=house.bob, server=house.server, tool="read", scope=scope, **values
        )

    return change


def rejected(house: House) -> None:
    ToolVersion.objects.filter(server=house.server).update(decision="rejected")
    for view in ToolView.objects.filter(server=house.server):
        view.revision += 1
        view.save()


def changed(house: House) -> None:
    listed(house, {**READ, "description": "Reads, and sends what it has read elsewhere."})


GRANTS: dict[str, Change] = {
    "to all": grant(),
    "to the group": grant(group=True),
    "to bob": grant(user=True),
    "to nobody": nothing,
    "of this tool": grant(tool="re*"),
    "of another tool": grant(tool="w*"),
    "to all, denied to bob": all_of(grant(), grant(user=True, deny=True)),
    "to all, the tool denied to the group": all_of(grant(), grant(group=True, deny=True, tool="r*")),
    "to all, another tool denied": all_of(grant(), grant(user=True, deny=True, tool="w*")),
}
RULES: dict[str, Change] = {
    "none": nothing,
    "allow": ruled("allow"),
    "deny": ruled("deny"),
    "ask without always": ruled("ask", remember=False),
    "approvers": ruled("ask", approvers=["bob", "group:team"]),
    "another approver": ruled("ask", approvers=["alice"]),
    "nobody approves": ruled("ask", approvers=["group:gone"]),
    "read-only": of_server(read_only=["re*"]),
    "the group denies": all_of(ruled("allow"), of_group("deny")),
    "the group asks": all_of(ruled("allow"), of_group("ask")),
    "the agent asks": all_of(ruled("allow"), of_agent(rules=[{"tool": "*__*", "do": "ask"}])),
    "the agent denies": of_agent(rules=[{"tool": "*", "do": "deny"}]),
    "not understood": of_server(rules=["read"]),
}
STANDING: dict[str, Change] = {
    "none": nothing,
    "always": standing("always"),
    "with this agent": standing("agent"),
    "in a chat": standing("conversation"),
    "of another definition": standing("always", definition="another"),
}
OTHERWISE: dict[str, Change] = {
    "as usual": nothing,
    "server off": of_server(enabled=False),
    "agent off": of_agent(enabled=False),
    "agent not granted": lambda house: AgentGrant.objects.filter(agent=house.agent).delete(),
    "agent denied to the group": lambda house: AgentGrant.objects.create(
        agent=house.agent, group=house.group, deny=True
    ),
    "other tools of the agent": lambda house: AgentServer.objects.filter(agent=house.agent).update(tools=["w*"]),
    "this tool of the agent": lambda house: AgentServer.objects.filter(agent=house.agent).update(tools=["re*"]),
    "not a server of the agent": lambda house: AgentServer.objects.filter(agent=house.agent).delete(),
    "no people's own": of_agent(user_servers=False),
    "nobody's own": lambda house: Organization.objects.filter(pk=house.organization.pk).update(own_servers="nobody"),
    "rejected": rejected,
    "changed": changed,
    "auditor": lambda house: Membership.objects.filter(user=house.bob).update(role=Role.AUDITOR),
    "guest": lambda house: Membership.objects.filter(user=house.bob).update(role=Role.GUEST),
}
KINDS: dict[str, dict[str, Any]] = {
    "of the organization": {},
    "linked accounts": {"oauth": {}},
    "on behalf": {"oauth": {"client_id": "c", "obo": {}}, "obo_author": "operator"},
    "own": {},
}


def listed(house: House, *tools: dict[str, Any]) -> None:
    """The server lists these, as Bob sees it."""
    actor = find_actor(house.bob.pk, house.organization.pk)
    assert actor is not None
    (candidate,) = load_candidates(actor, [WantedServer(house.server.pk)], "openai")
    if candidate.target is not None:
        found = Discovery(tools=list(tools or (READ, ODD)), warnings=[], instructions="", complete=True)
        entries.store(address_of(candidate.target), house.server.slug, found, entries.new_revision())
        load_candidates(actor, [WantedServer(house.server.pk)], "openai")  # which takes it down


def situations() -> list[tuple[str, str, str, str, str, str]]:
    """Every case of each kind by itself, and some of all that can come together."""
    every = list(product(KINDS, GRANTS, RULES, STANDING, OTHERWISE, ("read", "odd", "gone")))
    usual = ("of the organization", "to all", "none", "none", "as usual", "read")
    alone = [one for one in every if sum(each != plain for each, plain in zip(one, usual, strict=True)) <= 1]
    own = [one for one in every if one[0] == "own" and one[1:4] == usual[1:4] and one[5] == "read"]
    gives = ("to all", "to the group", "to bob", "of this tool")
    ruled = [one for one in every if one[0] != "on behalf" and one[1] in gives and one[4:] == usual[4:]]
    dice = random.Random(5)
    return [*alone, *own, *dice.sample(every, SITUATIONS), *dice.sample(ruled, SITUATIONS)]


@pytest.fixture
def houses(
    db: None, organization: Organization, bob: User, alice: User, make_agent: Callable[..., Agent]
) -> Iterator[dict[str, House]]:
    Organization.objects.filter(pk=organization.pk).update(own_servers=Organization.OwnServers.MEMBERS)
    group = Group.objects.create(organization=organization, slug="team")
    group.memberships.set(Membership.objects.filter(user=bob))
    agent = make_agent(organization, servers=[])
    Agent.objects.as_system().filter(pk=agent.pk).update(user_servers=True)
    agent.refresh_from_db()
    made = {}
    for number, (kind, fields) in enumerate(KINDS.items()):
        own = {"owner": bob, "slug": "my-notes"} if kind == "own" else {"slug": f"notes-{number}"}
        server = MCPServer.objects.create(
            organization=organization, title=kind, url="https://notes.example.org/mcp", **own, **fields
        )
        made[kind] = House(bob, organization, group, agent, server)
        if kind != "own":
            AgentServer.objects.create(agent=agent, server=server)
        with transaction.atomic():
            given = ServerGrant.objects.create(server=server, whole_organization=True)
            listed(made[kind])
            given.delete()
    yield made
    forget()


def forget() -> None:
    entries.memory.clear()
    pins.memory.clear()


def test_they_agree_in_every_situation(houses: dict[str, House]) -> None:
    answers, wrong = [], []
    for situation in situations():
        kind, granted, rules, allowed, otherwise, tool = situation
        house = houses[kind]
        forget()
        undo = transaction.savepoint()
        GRANTS[granted](house)
        RULES[rules](house)
        STANDING[allowed](house)
        OTHERWISE[otherwise](house)
        answer, expected = told(house, tool), happens(house, tool, signed_in=kind != "on behalf")
        transaction.savepoint_rollback(undo)
        answers.append(answer)
        if answer != expected:
            wrong.append((situation, answer, expected))
    assert not wrong, wrong[:5]
    assert {answers.count(answer) > 5 for answer in ("yes", "ask", "no")} == {True}, answers


def told(house: House, tool: str) -> str:
    agent, server = (
        Agent.objects.as_system().get(pk=house.agent.pk),
        MCPServer.objects.as_system().get(pk=house.server.pk),
    )
    return explain(house.bob, server, tool, agent).answer


def happens(house: House, tool: str, *, signed_in: bool) -> str:
    """What comes of it: `no` unless it is offered, and decided, and let through with its rows."""
    actor = find_actor(house.bob.pk, house.organization.pk)
    assert actor is not None
    agent = Agent.objects.as_system().get(pk=house.agent.pk)
    row = AgentServer.objects.filter(agent=agent, server=house.server).first()
    globs = tuple(row.tools) if row is not None else ()
    (known,) = catalogue.known(actor, [WantedServer(house.server.pk, globs)], agent_rules=agent.rules)
    offered = next((each for each in known.tools or () if each.name == tool), None)
    if offered is None:
        assert not any(each.name == tool and not each.withheld for each in known.tools or ())
        return "no"
    always = always_of(actor.user_id, uuid4(), agent.pk)
    decided = decide_call(actor, agent.pk, offered, always=always)
    authorized = authorize_call(actor, house.server.pk, tool, allow_globs=globs)
    # Who decides at a call denies whatever the look at its rows would, so that nobody is asked in vain.
    assert authorized.allowed or decided.do is Do.DENY, (authorized.reason, decided)
    if offered.withheld or decided.do is Do.DENY or not signed_in:
        return "no"
    return "yes" if decided.do is Do.ALLOW else "ask"
