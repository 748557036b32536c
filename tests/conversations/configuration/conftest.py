"""The configuration file that these tests start from, with its environment."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from conversations.configuration.applying import apply_configuration
from conversations.configuration.plan import Plan

SECRETS = {"ALICE_PASSWORD": "canary-password", "KEY": "canary-key", "SECRET": "canary-secret"}
ENVIRONMENT = SECRETS | {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}

FILE = """
users:
  alice: {email: alice@example.org, password: ${ALICE_PASSWORD}, superuser: false}
  bob: {}
organizations:
  acme:
    name: Acme
    members: {alice: admin, bob: member}
    groups: {analysts: [bob]}
    endpoints:
      main:
        base_url: ${OPENAI_BASE_URL}
        api_key: ${KEY}
        headers: {X-Team: ${SECRET}}
        dialect: openai
        models:
          gpt: {name: gpt-5-mini, context: 128000, tools: true, images: true, prices: {input: 0.25, output: 2.0}}
    servers:
      tickets:
        title: Ticket system
        transport: http
        url: https://tickets.example.org/mcp
        headers: {Authorization: "Bearer {{TICKETS_TOKEN}}", X-Key: ${SECRET}}
        variables: {TICKETS_TOKEN: {title: Personal token, sensitive: true}}
        oauth: null
        timeout: 60
        trust: first-use
        new_tools: review
        read_only: ["get_*", search]
        rules: [{tool: "delete_*", do: deny}, {tool: "*", do: ask}]
        grants: [{group: analysts}, {user: bob, deny: true}]
      clock:
        transport: stdio
        command: python
        args: [-m, demo.mcp_server]
        env: {TOKEN: ${SECRET}}
        rules: [{tool: "*", do: allow}]
        grants: [{organization: true}]
    agents:
      helper:
        name: Helper
        model: main/gpt
        instructions: You help.
        servers: [tickets, clock]
        tools: {tickets: [search, "get_*"]}
        max_rounds: 10
        temperature: 0.3
        grants: [{organization: true}]
"""


def merge(value: Any, changes: Any) -> Any:
    """`value` with `changes` laid over it, mapping by mapping; `...` removes a key."""
    if not isinstance(value, dict) or not isinstance(changes, dict):
        return changes
    merged = {key: merge(value.get(key), item) for key, item in changes.items() if item is not ...}
    return {key: item for key, item in value.items() if key not in changes} | merged


@pytest.fixture
def apply() -> Callable[..., Plan]:
    """Applies FILE with changes: `apply({"organizations": {"acme": {…}}}, prune=True)`."""

    def run(changes: Any = None, **options: Any) -> Plan:
        value = merge(yaml.safe_load(re.sub(r"(\$\{\w+\})", r'"\1"', FILE)), changes or {})
        return apply_configuration(yaml.safe_dump(value), environment=ENVIRONMENT, **options)

    return run
