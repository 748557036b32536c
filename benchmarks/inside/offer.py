"""What the model is offered from many servers, whose tools the catalogue knows: no network, rows and memory alone."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import replace
from typing import Any
from uuid import UUID

from accounts.actors import Actor, GroupRules, find_actor
from accounts.models import Group, Membership, Organization
from benchmarks.figures import median
from benchmarks.inside.rows import Queries, somebody
from benchmarks.product import ORGANIZATION
from chatui.rows import in_rows
from mcpservers import catalogue, connections
from mcpservers.catalogue import WantedServer
from mcpservers.models import MCPServer, ServerGrant

SERVERS = 20
GROUPS = 20


def _servers(url: str, name: str = "many") -> list[MCPServer]:
    """Servers at `url`, each granted to the organization and to every group that the person is in."""
    organization = Organization.objects.get(slug=ORGANIZATION)
    groups = Group.objects.filter(organization=organization, slug__startswith="bench-")
    servers = []
    for number in range(SERVERS):
        fields = {"title": f"{name} {number}", "transport": "streamable-http", "url": url}
        server = MCPServer.objects.create(organization=organization, slug=f"{name}-{number}", **fields)
        ServerGrant.objects.create(server=server, whole_organization=True)
        ServerGrant.objects.bulk_create(ServerGrant(server=server, group=group) for group in groups)
        servers.append(server)
    return servers


def _in_many_groups(user_id: UUID) -> Actor:
    membership = Membership.objects.get(user=user_id, organization__slug=ORGANIZATION)
    for number in range(GROUPS):
        group = Group.objects.create(organization_id=membership.organization_id, slug=f"bench-{number}")
        group.memberships.add(membership)
    actor = find_actor(user_id, membership.organization_id)
    assert actor is not None
    return actor


async def _measured(url: str) -> dict[str, float]:
    queries = Queries()
    somebody_there, _ = await in_rows(somebody)
    actor = await in_rows(_in_many_groups, somebody_there.user_id)
    servers = await in_rows(_servers, url)
    known = 0
    for server in servers:
        report = await catalogue.refresh(server.pk)
        assert not report.error, report
        known += report.tools
    await connections.aclose()
    connects: list[Any] = []
    sys.addaudithook(lambda event, args: connects.append(args) if event == "socket.connect" else None)
    wanted = [WantedServer(server.pk) for server in servers]
    took: list[float] = []
    made = 0
    for _ in range(40):
        began = time.perf_counter()
        with queries.taken() as noted:
            offer = await catalogue.offered_to(actor, wanted)
        took.append((time.perf_counter() - began) * 1000)
        made = len(noted)
        # More tools than can be offered at once are left out, and said so.
        assert {problem.code for problem in offer.problems} <= {"too_many"}, offer.problems
        assert offer.tools, offer
    connected = len(connects)
    return {
        "with_rules": await _with_rules_of_groups(actor, wanted),
        **await _with_as_many_that_are_down(actor, wanted),
        "median": median(took[1:]),
        "first": took[0],
        "known": known,
        "offered": len(offer.tools),
        "queries": made,
        "connects": connected,
    }


async def _timed(actor: Actor, wanted: list[WantedServer]) -> tuple[float, catalogue.Offer]:
    """Milliseconds of one offer."""
    began = time.perf_counter()
    offer = await catalogue.offered_to(actor, wanted)
    return (time.perf_counter() - began) * 1000, offer


async def _with_rules_of_groups(actor: Actor, wanted: list[WantedServer]) -> float:
    """Milliseconds of the offer where each group has rules, of which the last matches every tool."""
    rules = [{"tool": "*__drop_*", "do": "deny"}, {"tool": "many-1__*", "do": "allow"}, {"tool": "*", "do": "ask"}]
    ruled = replace(actor, group_rules=tuple(GroupRules(f"bench-{number}", rules) for number in range(GROUPS)))
    return median([(await _timed(ruled, wanted))[0] for _ in range(20)])


async def _with_as_many_that_are_down(actor: Actor, wanted: list[WantedServer]) -> dict[str, float]:
    """Milliseconds of the offer with as many servers more that cannot be reached, which is known, and `without`.

    They are taken in turn, so that both have the same of whatever else the machine does.
    """
    down = await in_rows(_servers, "http://127.0.0.1:9/mcp", "down")
    more = [*wanted, *(WantedServer(server.pk) for server in down)]
    for _ in range(4):  # until every one of them is left alone for a while
        await catalogue.offered_to(actor, more)
    with_down, without = [], []
    for _ in range(30):
        without.append((await _timed(actor, wanted))[0])
        took, offer = await _timed(actor, more)
        with_down.append(took)
        assert len([problem for problem in offer.problems if problem.code == "unavailable"]) == SERVERS, offer.problems
    return {"with_down": median(with_down), "without": median(without)}


def measure(url: str) -> dict[str, float]:
    """Milliseconds for somebody in many groups (`median`; the `first`, from rows), and what it took."""
    return asyncio.run(_measured(url))
