"""The protocol of a chat model, and how one fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from agents.parts import ModelEvent, ModelMessage, ToolSpec
from chatui.errors import ChatUIError


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the loop must know of a model."""

    context: int = 128_000
    tools: bool = True
    images: bool = False
    prefill: bool = False
    drop_tools_on_close: bool = False


class ChatModel(Protocol):
    """One model at one endpoint, with the agent's parameters already set."""

    @property
    def name(self) -> str:
        """As people are told which model wrote the answer."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    def stream(
        self,
        messages: Sequence[ModelMessage],
        tools: Sequence[ToolSpec] = (),
        *,
        tool_choice: Literal["auto", "none"] = "auto",
    ) -> AsyncIterator[ModelEvent]:
        """Stream one completion; the last event is a `Completion`, always, unless an `EndpointError` is raised.

        Raises `EndpointError`: before the first event nothing was shown and the request may be retried elsewhere.
        The caller closes the iterator (`aclosing`), which closes the request.
        """
        ...


class EndpointError(ChatUIError):
    """The model endpoint could not answer.

    `detail` is safe to show (no key, no internal address); `retry_after` is in seconds.
    """

    code = "endpoint_error"
    status = 502
    public_message = "The model endpoint reported an error."

    def __init__(
        self,
        message: str | None = None,
        *,
        public_message: str | None = None,
        detail: str = "",
        http_status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, public_message=public_message)
        self.detail, self.http_status, self.retry_after = detail, http_status, retry_after


class EndpointUnreachableError(EndpointError):
    """No connection: refused, unresolved, TLS, or not allowed by the address guard."""

    code = "endpoint_unreachable"
    public_message = "The model endpoint cannot be reached."


class EndpointTimeoutError(EndpointError):
    """No first token, or no further chunk, within the endpoint's limits."""

    code = "endpoint_timeout"
    public_message = "The model endpoint did not answer in time."


class EndpointAuthenticationError(EndpointError):
    """401 or 403: the endpoint refuses our key. Its own words may hold the key and are never shown."""

    code = "endpoint_authentication"
    public_message = "The model endpoint refused our credentials. An admin has to check its API key."


class EndpointRateLimitedError(EndpointError):
    """429; `retry_after` where the endpoint told it."""

    code = "endpoint_rate_limited"
    public_message = "The model endpoint is busy (rate limit). Please try again later."


class EndpointRequestError(EndpointError):
    """400, 404, 413, 422: the endpoint does not accept the request. Never retried."""

    code = "endpoint_request"
    public_message = "The model endpoint did not accept the request."


class EndpointUnavailableError(EndpointError):
    """5xx, an error in mid-stream, or a connection that broke."""

    code = "endpoint_unavailable"
    public_message = "The model endpoint failed."
