"""What a completion used, where the endpoint does not say: about four characters a token, marked as estimated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agents.parts import Completion, ImageContent, ModelMessage, TokenUsage

BYTES_PER_TOKEN = 4  # of UTF-8: a Latin letter has one, a Chinese character three
IMAGE_TOKENS = 1000
MESSAGE_TOKENS = 4


def estimate_tokens(texts: Iterable[str]) -> int:
    """About how many tokens these texts are together; at least one for any text at all."""
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    return -(-size // BYTES_PER_TOKEN)


def estimate_usage(messages: Sequence[ModelMessage], completion: Completion) -> TokenUsage:
    """The usage of one completion, estimated from what was sent (without the tools) and what came back."""
    written = [completion.text, completion.reasoning, completion.trailing_text]
    written += [part for request in completion.requests for part in (request.name, request.arguments)]
    return estimate_cut(messages, 0, written)


def estimate_cut(messages: Sequence[ModelMessage], tools_tokens: int, written: Iterable[str]) -> TokenUsage:
    """The usage of a completion of which nothing but `written` came, with tools of `tools_tokens`."""
    given = sum(map(_tokens_of, messages)) + tools_tokens
    return TokenUsage(given, estimate_tokens(written), estimated=True)


def _tokens_of(message: ModelMessage) -> int:
    images = sum(isinstance(part, ImageContent) for part in message.content)
    texts = [message.text, *(part for call in message.tool_calls for part in (call.name, call.arguments))]
    return estimate_tokens(texts) + IMAGE_TOKENS * images + MESSAGE_TOKENS
