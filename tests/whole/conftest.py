"""A site of its own for each module of tests that drive the product from outside."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.endpoint import endpoint
from tests.whole.site import Site

__all__ = ["endpoint"]

CONFIGURATION = """
users:
  alice: {{email: alice@example.org, password: correct horse}}
  bob: {{email: bob@example.org, password: correct horse}}
organizations:
  acme:
    name: Acme
    members: {{alice: admin, bob: member}}
    endpoints:
      main:
        base_url: {base_url}
        api_key: sk-test
        models:
          gpt: {{name: test-model}}
    servers:
      demo:
        title: Demo tools
        transport: stdio
        command: python
        args: [-m, demo.mcp_server]
        rules: [{{tool: add_note, do: ask}}, {{tool: "*", do: allow}}]
        grants: [{{organization: true}}]
    agents:
      helper:
        name: Helper
        model: main/gpt
        servers: [demo]
        grants: [{{organization: true}}]
      plain:
        name: Plain
        model: main/gpt
        grants: [{{organization: true}}]
"""


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite database right after migrating, to be copied."""
    directory = tmp_path_factory.mktemp("migrated")
    Site(directory).manage("migrate", "--verbosity", "0")
    return directory / "chatui.sqlite3"


@pytest.fixture
def make_site(tmp_path: Path, migrated: Path) -> Iterator[Callable[..., Site]]:
    """A configured site that is not started yet: `make_site(endpoint.base_url, server="uvicorn")`."""
    sites: list[Site] = []

    def make(base_url: str, *, server: str = "daphne") -> Site:
        directory = tmp_path / f"site-{len(sites)}"
        directory.mkdir()
        site = Site(directory, server=server)
        sites.append(site)
        shutil.copy(migrated, directory / migrated.name)
        site.apply(CONFIGURATION.format(base_url=base_url))
        return site

    yield make
    for site in sites:
        site.close()
