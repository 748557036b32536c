"""What a request to a model endpoint is made with: one frozen value, from a profile and an agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from agents.providers.chat_model import Capabilities
from chatui.errors import InvalidRequestError

if TYPE_CHECKING:
    from agents.models import Agent, ModelProfile


class BaseURLError(InvalidRequestError):
    """The base URL of an endpoint is not an http(s) URL with a host."""

    code = "invalid_base_url"
    public_message = "The base URL must be an http or https URL with a host, such as https://api.example.org/v1."


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One model at one endpoint with one agent's parameters. Timeouts are in seconds, prices per million tokens.

    `endpoint_key` names the endpoint for pooling and for the limit on requests at once. None for a parameter means
    that it is not sent.
    """

    base_url: str
    model: str  # as it is sent
    api_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    dialect: str = "openai"
    connect_timeout: float = 10.0
    first_token_timeout: float = 120.0
    chunk_timeout: float = 120.0
    retries: int = 2
    max_concurrency: int | None = None
    endpoint_key: str = ""
    title: str = ""  # for people
    context: int = 128_000
    tools: bool = True
    parallel_tools: bool = True
    images: bool = False
    reasoning: bool = False
    stream: bool = True
    stream_options: bool = True
    max_tokens_parameter: str = "max_tokens"
    temperature_allowed: bool = True
    system_role: str = "system"
    return_reasoning: bool = False
    prefill: bool = False
    alternate_roles: bool = False
    drop_tools_on_close: bool = False
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    reasoning_effort: str = ""
    input_price: Decimal | None = None
    output_price: Decimal | None = None

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(self.context, self.tools, self.images, self.prefill, self.drop_tools_on_close)


def normalise_base_url(url: str) -> str:
    """`url` without trailing slashes, and with `/v1` where its path is empty; nothing else is guessed.

    A query stays (some endpoints want an `api-version`). Raises `BaseURLError`.
    """
    try:
        parts = urlsplit(url.strip())
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or any(character.isspace() or ord(character) < 32 for character in url.strip()):
        raise BaseURLError
    path = parts.path.rstrip("/") or "/v1"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def settings_of(profile: ModelProfile, agent: Agent | None = None) -> ModelSettings:
    """The settings of a profile whose `endpoint` is loaded; no query. Raises `BaseURLError`."""
    endpoint = profile.endpoint
    return ModelSettings(
        base_url=normalise_base_url(endpoint.base_url),
        model=profile.name,
        api_key=endpoint.api_key,
        headers={str(name): str(value) for name, value in (endpoint.headers or {}).items()},
        extra_body=endpoint.extra_body or {},
        dialect=profile.dialect or endpoint.dialect,
        connect_timeout=endpoint.connect_timeout,
        first_token_timeout=endpoint.first_token_timeout,
        chunk_timeout=endpoint.chunk_timeout,
        retries=endpoint.retries,
        max_concurrency=endpoint.max_concurrency,
        endpoint_key=str(endpoint.pk),
        title=profile.title or profile.name,
        context=profile.context,
        tools=profile.tools,
        parallel_tools=profile.parallel_tools,
        images=profile.images,
        reasoning=profile.reasoning,
        stream=profile.stream,
        stream_options=profile.stream_options,
        max_tokens_parameter=profile.max_tokens_parameter,
        temperature_allowed=profile.temperature_allowed,
        system_role=profile.system_role,
        return_reasoning=profile.return_reasoning,
        prefill=profile.prefill,
        alternate_roles=profile.alternate_roles,
        drop_tools_on_close=profile.drop_tools_on_close,
        temperature=agent.temperature if agent else None,
        top_p=agent.top_p if agent else None,
        max_output_tokens=agent.max_output_tokens if agent else None,
        reasoning_effort=agent.reasoning_effort if agent else "",
        input_price=profile.input_price,
        output_price=profile.output_price,
    )
