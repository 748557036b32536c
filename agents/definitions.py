"""What makes an endpoint's or an agent's definition impossible, field by field."""

from __future__ import annotations

from collections.abc import Iterator

from accounts.rules import rule_findings
from agents.models import Agent, ModelEndpoint
from mcpservers.definitions import Finding, header_findings, url_finding


def endpoint_findings(endpoint: ModelEndpoint) -> Iterator[Finding]:
    """Everything that would keep `endpoint` from ever working."""
    message = url_finding(endpoint.base_url)
    if message:
        yield "base_url", message
    elif "{{" in endpoint.base_url or "${" in endpoint.base_url:
        yield "base_url", "The address of an endpoint has no placeholders."
    yield from (("headers", message) for message in header_findings(endpoint.headers))
    if not isinstance(endpoint.extra_body, dict):
        yield "extra_body", "The extra body is a JSON object."
    if any(character in endpoint.api_key for character in "\r\n\0"):
        yield "api_key", "The key holds a line break or NUL."


def agent_findings(agent: Agent) -> Iterator[Finding]:
    """Everything that would keep `agent` from ever working, but for what its relations say."""
    yield from (("rules", message) for message in rule_findings(agent.rules))
    if not isinstance(agent.starters, list) or not all(isinstance(item, str) and item for item in agent.starters):
        yield "starters", "The starters are a list of questions."
