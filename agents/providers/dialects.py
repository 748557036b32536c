"""What an endpoint accepts: any list of model messages to a request body that is valid for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from agents.parts import ModelMessage, ToolSpec
from agents.providers.history_shape import request_messages
from agents.providers.settings import ModelSettings
from agents.providers.tool_shape import tool_definitions
from chatui.text import clean_json

# Takes no `stream_options`; usage comes with the last chunk anyway.
_WITHOUT_STREAM_OPTIONS = frozenset({"mistral"})
_FIXED = frozenset({"messages", "model", "stream", "tools"})  # not for `extra_body` to change


def request_body(
    settings: ModelSettings,
    messages: Sequence[ModelMessage],
    tools: Sequence[ToolSpec] = (),
    *,
    tool_choice: Literal["auto", "none"] = "auto",
) -> dict[str, Any]:
    """The JSON body of `POST /chat/completions`. Nothing is null in it that `extra_body` did not name.

    `extra_body` of the endpoint goes on top; a null there takes a parameter out.
    """
    body: dict[str, Any] = {"model": settings.model, "messages": request_messages(settings, messages)}
    body["stream"] = settings.stream
    if settings.stream and settings.stream_options and settings.dialect not in _WITHOUT_STREAM_OPTIONS:
        body["stream_options"] = {"include_usage": True}
    body |= _tools(settings, tools, tool_choice)
    body |= _sampling(settings)
    for name, value in settings.extra_body.items():
        if name in _FIXED:
            continue
        if value is None:
            body.pop(name, None)
        else:
            body[name] = clean_json(value)
    return body


def _tools(settings: ModelSettings, tools: Sequence[ToolSpec], tool_choice: str) -> dict[str, Any]:
    if not tools or not settings.tools or (tool_choice == "none" and settings.drop_tools_on_close):
        return {}
    parameters: dict[str, Any] = {"tools": tool_definitions(settings.dialect, tools), "tool_choice": tool_choice}
    if not settings.parallel_tools:
        parameters["parallel_tool_calls"] = False
    return parameters


def _sampling(settings: ModelSettings) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    if settings.max_output_tokens is not None:
        parameters[settings.max_tokens_parameter] = settings.max_output_tokens
    if settings.temperature_allowed:
        for name, value in (("temperature", settings.temperature), ("top_p", settings.top_p)):
            if value is not None:
                parameters[name] = value
    if settings.reasoning and settings.reasoning_effort:
        parameters["reasoning_effort"] = settings.reasoning_effort
    return parameters
