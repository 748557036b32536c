"""The official suite's `auth/*` client scenarios, against our linking of accounts: `make conformance`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import pytest

from accounts.actors import Actor
from mcpservers.oauth import flow
from tests.conformance import suite
from tests.conformance.conftest import Run
from tests.conformance.linking import DOCUMENT, drive

pytestmark = [pytest.mark.node, pytest.mark.django_db(transaction=True)]

COMMON = (
    *(f"auth/metadata-{which}" for which in ("default", "var1", "var2", "var3")),
    *(f"auth/scope-{which}" for which in ("from-www-authenticate", "from-scopes-supported", "omitted-when-undefined")),
    *(f"auth/scope-{which}" for which in ("step-up", "retry-limit")),
    *(f"auth/token-endpoint-auth-{which}" for which in ("basic", "post", "none")),
    "auth/basic-cimd",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-metadata-backcompat",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
)
SCENARIOS = {
    "0.1.16": (*COMMON, "auth/cross-app-access-complete-flow"),
    "0.2.0-alpha.12": (
        *COMMON,
        *(f"auth/iss-{which}" for which in ("supported", "not-advertised", "supported-missing", "wrong-issuer")),
        *(f"auth/iss-{which}" for which in ("unexpected", "normalized")),
        "auth/metadata-issuer-mismatch",
        "auth/authorization-server-migration",
        "auth/enterprise-managed-authorization",
        "auth/dpop",
        "auth/dpop-nonce",
        "auth/wif-jwt-bearer",
    ),
}
# What linking has to refuse, and why it does.
REFUSED = {
    "auth/resource-mismatch": "resource_mismatch",
    "auth/metadata-issuer-mismatch": "issuer_mismatch",
    "auth/iss-supported-missing": "issuer_mismatch",
    "auth/iss-wrong-issuer": "issuer_mismatch",
    "auth/iss-unexpected": "issuer_mismatch",
    "auth/iss-normalized": "issuer_mismatch",
}
# The checks that fail where the suite errs; docs/reference/conformance.md says why.
FAILING = {
    ("0.1.16", "auth/2025-03-26-oauth-metadata-backcompat"): {
        "client-registration",
        "authorization-request",
        "token-request",
    },
}
# What both versions have is played in both by `make conformance`, and in the newer one by every run of the tests.
WHOLE = os.environ.get("CONFORMANCE") == "whole"
PLAYED = [
    pytest.param(version, name, id=f"{version}-{name}")
    for version, names in SCENARIOS.items()
    for name in names
    if WHOLE or version == suite.VERSIONS[-1] or name not in SCENARIOS[suite.VERSIONS[-1]] or (version, name) in FAILING
]


@pytest.fixture(autouse=True)
def _document(settings: Any) -> None:
    settings.MCP_CLIENT_METADATA_URL = DOCUMENT
    settings.SOCIALACCOUNT_PROVIDERS = {}  # so that what a scenario sets is undone


@pytest.mark.parametrize(("version", "name"), PLAYED)
async def test_an_auth_scenario_of_the_official_suite(
    run: Run, version: str, name: str, record_property: Callable[[str, object], None]
) -> None:
    said = ""

    async def play(actor: Actor, **scenario: Any) -> str:
        nonlocal said
        said = await drive(actor, **scenario)
        return said

    outcome = await run(version, name, play=play)
    expected = FAILING.get((version, name), set())
    record_property("conformance", [version, name, "", outcome.passed, len(outcome.failed), bool(expected)])
    assert outcome.failed.keys() == expected, f"{said}\n{outcome.failed}\n{outcome.output}"
    assert outcome.ok or expected, outcome.output
    refused = re.search(r"^not linked: (\w+)", said, re.MULTILINE)
    assert (refused[1] if refused else None) == REFUSED.get(name) or expected, said


@pytest.mark.parametrize("broken", ["code_challenge", "resource"])
async def test_the_suite_notices_a_flow_that_leaves_something_out(
    run: Run, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    url_of = flow._authorization_url

    def without(*args: Any) -> str:
        return re.sub(rf"&{broken}=[^&]*", "", url_of(*args))

    monkeypatch.setattr(flow, "_authorization_url", without)
    outcome = await run("0.2.0-alpha.12", "auth/token-endpoint-auth-none", play=drive)
    assert outcome.failed


@pytest.mark.parametrize("version", suite.VERSIONS)
def test_every_auth_scenario_is_played(version: str) -> None:
    assert {name for name in suite.listed(version) if name.startswith("auth/")} == set(SCENARIOS[version])


def test_the_reference_tells_of_every_auth_scenario_and_of_those_that_fail() -> None:
    page = (suite.HERE.parents[1] / "docs" / "reference" / "conformance.md").read_text()
    rows = dict(re.findall(r"^\| `(auth/[\w-]+)` \|.*\| ([^|]+) \|$", page, re.MULTILINE))
    assert rows.keys() == {name for names in SCENARIOS.values() for name in names}
    assert {name for name, result in rows.items() if result != "passes"} == {name for _, name in FAILING}
