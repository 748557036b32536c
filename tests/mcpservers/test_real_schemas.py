"""What real servers list, as the benchmark keeps it: every schema is accepted by every dialect, whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.inside import schemas
from mcpservers.schemas import DIALECTS, Quarantined, repair
from tests.mcpservers.accepting import assert_accepted

SERVERS: dict[str, dict[str, Any]] = json.loads(schemas.LISTED.read_text("utf-8"))


def test_there_are_servers_and_tools_enough_to_speak_of_real_ones() -> None:
    assert len(SERVERS) >= 12
    assert sum(len(tools) for tools in SERVERS.values()) >= 150


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_is_accepted_and_keeps_its_properties(dialect: str) -> None:
    for server, tools in SERVERS.items():
        for tool, schema in tools.items():
            repaired = repair(schema, dialect)
            assert not isinstance(repaired, Quarantined), (server, tool)
            assert_accepted(repaired.parameters, dialect)
            assert len(repaired.parameters["properties"]) == len(schema.get("properties", {})), (server, tool)
