"""What the model is offered from many servers, whose tools the catalogue knows: no network, rows and memory alone."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from accounts.models import Organization
from benchmarks.figures import median
from benchmarks.inside.rows import Queries, somebody
from benchmarks.product import ORGANIZATION
from chatui.rows import in_rows
from mcpservers import catalogue, connections
from mcpservers.catalogue import WantedServer
from mcpservers.models import MCPServer, ServerGrant

SERVERS = 20


def _servers(url: str) -> list[MCPServer]:
    organization = Organization.objects.get(slug=ORGANIZATION)
    servers = []
    for number in range(SERVERS):
        fields = {"title": f"Server {number}", "transport": "streamable-http", "url": url}
        server = MCPServer.objects.create(organization=organization, slug=f"many-{number}", **fields)
        ServerGrant.objects.create(server=server, whole_organization=True)
        servers.append(server)
    return servers


async def _measured(url: str) -> dict[str, float]:
    queries = Queries()
    actor, _ = await in_rows(somebody)
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
    return {
        "median": median(took[1:]),
        "first": took[0],
        "known": known,
        "offered": len(offer.tools),
        "queries": made,
        "connects": len(connects),
    }


def measure(url: str) -> dict[str, float]:
    """Milliseconds (`median`, and the `first` that reads the rows), and what it took."""
    return asyncio.run(_measured(url))
