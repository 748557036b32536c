"""The official suite's client scenarios, against our catalogue, connections and calls: `make conformance`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from accounts.actors import Actor
from tests.conformance import suite
from tests.conformance.conftest import Run
from tests.conformance.driver import drive

pytestmark = [pytest.mark.node, pytest.mark.django_db(transaction=True)]

# Of each version of the suite, the scenarios without sign-in, each with the protocol revisions that it is played in
# ("" is the newest of the scenario's own).
SESSION, STATELESS = "2025-11-25", "2026-07-28"
SCENARIOS = {
    "0.1.16": {"initialize": [""], "tools_call": [""], "elicitation-sep1034-client-defaults": [""], "sse-retry": [""]},
    "0.2.0-alpha.12": {
        "initialize": [""],
        "tools_call": [SESSION, STATELESS],
        "elicitation-sep1034-client-defaults": [""],
        "sse-retry": [""],
        "request-metadata": [""],
        "sep-2322-client-request-state": [""],
        "http-standard-headers": [""],
        "http-custom-headers": [""],
        "http-invalid-tool-headers": [""],
        "json-schema-ref-no-deref": [""],
        "json-schema-2020-12-preservation": [SESSION, STATELESS],
        "sep-2640-client-no-prefetch": [""],
        "sep-2640-client-verify-digest": [""],
        "sep-2640-client-verify-size": [""],
        "sep-2640-client-verify-frontmatter": [""],
    },
}
PLAYED = [
    pytest.param(version, name, revision, id="-".join(filter(None, (version, name, revision))))
    for version, names in SCENARIOS.items()
    for name, revisions in names.items()
    for revision in revisions
]


@pytest.mark.parametrize(("version", "name", "revision"), PLAYED)
async def test_a_scenario_of_the_official_suite(
    run: Run, version: str, name: str, revision: str, record_property: Callable[[str, object], None]
) -> None:
    outcome = await run(version, name, revision)
    record_property("conformance", [version, name, revision, outcome.passed, len(outcome.failed), False])
    assert outcome.ok, outcome.output


async def test_the_suite_notices_a_client_that_does_not_call(run: Run) -> None:
    async def idle(actor: Actor, **scenario: Any) -> str:
        return "nothing"

    outcome = await run("0.2.0-alpha.12", "tools_call", play=idle)
    assert not outcome.ok


async def test_the_suite_notices_a_client_that_fails(run: Run) -> None:
    async def broken(actor: Actor, **scenario: Any) -> str:
        await drive(actor, **scenario)
        raise RuntimeError("after all")

    outcome = await run("0.2.0-alpha.12", "tools_call", play=broken)
    assert not outcome.ok
    assert not outcome.failed
    assert "after all" in outcome.output


@pytest.mark.parametrize("version", suite.VERSIONS)
def test_every_scenario_without_sign_in_is_played(version: str) -> None:
    assert {name for name in suite.listed(version) if not name.startswith("auth/")} == SCENARIOS[version].keys()


def test_the_reference_tells_of_every_scenario() -> None:
    page = (suite.HERE.parents[1] / "docs" / "reference" / "conformance.md").read_text()
    rows = dict(re.findall(r"^\| `([\w-]+)` \|.*\| ([^|]+) \|$", page, re.MULTILINE))
    assert rows.keys() == {name for names in SCENARIOS.values() for name in names}
    for version in suite.VERSIONS:
        assert f"`{version}`" in page
