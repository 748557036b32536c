"""A configured database with people and keys, made once by the product's own commands and copied for each test.

A process of ours takes two seconds to start: migrating, applying and making keys for each test anew would be most of
what these tests cost.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.whole.site import Site

CONFIGURATION = """
users:
  alice: {email: alice@example.org, password: correct horse}
  bob: {email: bob@example.org, password: correct horse}
organizations:
  acme:
    name: Acme
    members: {alice: admin, bob: member}
    endpoints:
      main:
        base_url: http://127.0.0.1:9/v1
        api_key: sk-test
        models:
          gpt: {name: test-model}
    servers:
      demo:
        title: Demo tools
        transport: stdio
        command: python
        args: [-m, demo.mcp_server]
        rules: [{tool: add_note, do: ask}, {tool: "*", do: allow}]
        grants: [{organization: true}]
    agents:
      helper:
        name: Helper
        model: main/gpt
        servers: [demo]
        grants: [{organization: true}]
      plain:
        name: Plain
        model: main/gpt
        grants: [{organization: true}]
"""
KEYS = (("alice", "chat"), ("alice", "chat", "approve"), ("bob",))
COMMANDS = """
from django.core.management import call_command
call_command("migrate", verbosity=0)
call_command("apply_config", {path!r})
for user, *scopes in {keys!r}:
    print("key", end=" ")
    scope = ["--scope", ",".join(scopes)] if scopes else []
    call_command("createapikey", user, "--org", "acme", "--name", "tests", *scope)
"""
POINT = "UPDATE agents_modelendpoint SET base_url = "


@dataclass(frozen=True)
class Prepared:
    """What is copied: a SQLite file or the name of a PostgreSQL database; and its keys, by (user, *scopes)."""

    source: str
    keys: dict[tuple[str, ...], str]

    @classmethod
    def at(cls, site: Site, source: str) -> Prepared:
        """Migrate and configure this site's database, which is empty, in one process."""
        path = site.directory / "site.yaml"
        path.write_text(CONFIGURATION)
        printed = site.manage("shell", "--no-imports", "-c", COMMANDS.format(path=str(path), keys=KEYS)).stdout
        made = [line.split()[-1] for line in printed.splitlines() if line.startswith("key ")]
        return cls(source, dict(zip(KEYS, made, strict=True)))

    def copy_file(self, site: Site, base_url: str) -> None:
        """Give a site that is not started yet the SQLite database, its endpoint at `base_url`."""
        copy = site.directory / Path(self.source).name
        shutil.copy(self.source, copy)
        with closing(sqlite3.connect(copy)) as database, database:
            database.execute(f"{POINT}?", (base_url,))
        site.keys = self.keys

    def copy_database(self, server: str, name: str) -> None:
        """Make a PostgreSQL database of this name."""
        with psycopg.connect(server, autocommit=True) as session:
            session.execute(f'CREATE DATABASE "{name}" TEMPLATE "{self.source}"')  # names of our own making


def point(address: str, base_url: str) -> None:
    """Let the endpoint in a PostgreSQL database be at `base_url`."""
    with psycopg.connect(address, autocommit=True) as session:
        session.execute(f"{POINT}%s", (base_url,))
