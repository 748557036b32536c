"""A chat completion request as OpenAI's API reference describes it, read into what a turn needs. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from chatui.errors import InvalidRequestError
from conversations.api import body

# What an agent's own tools, one answer, and text alone rule out.
UNSUPPORTED = {
    "tools": "The agent's own tools run on the server; tools of the client are not supported.",
    "functions": "The agent's own tools run on the server; functions of the client are not supported.",
    "stop": "Stop sequences are not supported.",
    "logprobs": "Log probabilities are not supported.",
    "top_logprobs": "Log probabilities are not supported.",
    "audio": "Only text is answered.",
    "prediction": "Predicted outputs are not supported.",
    "web_search_options": "The agent's own tools run on the server.",
    "moderation": "Answers are not moderated here.",
}
# What changes nothing here, and is not even looked at; nor is what is newer than this file.
IGNORED = (
    *("user", "metadata", "store", "safety_identifier", "prompt_cache_key", "prompt_cache_options"),
    *("prompt_cache_retention", "service_tier", "seed", "presence_penalty", "frequency_penalty", "logit_bias"),
    *("verbosity", "parallel_tool_calls"),
)
EARLIER_IMAGE = "[An image was here.]"


class ParameterError(InvalidRequestError):
    """The request is not valid; `param` names where, as OpenAI's errors do."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(public_message=message)
        self.param = param


class _Loose(BaseModel):
    # Clients send parameters that are newer than this file; those that matter are refused by name.
    model_config = ConfigDict(extra="allow", frozen=True)


class ImageURL(_Loose):
    url: str


class Part(_Loose):
    type: str
    text: str | None = None
    image_url: ImageURL | None = None


def _as_parts(content: Any) -> Any:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if content is None or isinstance(content, list):
        return content
    raise PydanticCustomError("content", "Content is a text or a list of parts")


class Message(_Loose):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Annotated[list[Part] | None, BeforeValidator(_as_parts)] = None
    refusal: str | None = None
    tool_calls: list[Any] | None = None
    function_call: Any = None
    audio: Any = None


class StreamOptions(_Loose):
    include_usage: bool = False


class ResponseFormat(_Loose):
    type: str


class CompletionRequest(_Loose):
    """What is looked at; bounds as OpenAI's."""

    model: str = Field(min_length=1, max_length=200)
    messages: list[Message] = Field(min_length=1, max_length=5000)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    reasoning_effort: str | None = Field(default=None, max_length=16)
    response_format: ResponseFormat | None = None
    modalities: list[str] | None = None
    tool_choice: str | dict[str, Any] | None = None
    function_call: str | dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class InlineImage:
    """An image that came inside the request, to be stored as an attachment of the question; `where` it stood there."""

    data: bytes
    where: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Question:
    """A request, understood. `content` is the last message, `where` its place; `earlier` are (role, text) before it.

    `tools`: whether the agent has its tools.
    """

    model: str
    content: Sequence[str | InlineImage]
    where: str = "messages"
    earlier: Sequence[tuple[str, str]] = ()
    system: str = ""
    stream: bool = False
    include_usage: bool = False
    tools: bool = True
    parameters: Mapping[str, Any] = field(default_factory=dict)


def understand(value: Mapping[str, Any]) -> Question:
    """The question in a request's body. Raises `ParameterError`, which names the parameter."""
    for name, message in UNSUPPORTED.items():
        if value.get(name):
            raise ParameterError(message, name)
    request = _parsed(value)
    if request.n not in (None, 1):
        raise ParameterError("n: one answer is given to a request.", "n")
    if request.response_format is not None and request.response_format.type != "text":
        raise ParameterError("response_format: only text is answered.", "response_format")
    if request.modalities not in (None, ["text"]):
        raise ParameterError("modalities: only text is answered.", "modalities")
    for name in ("tool_choice", "function_call"):
        if getattr(request, name) not in (None, "none", "auto"):
            raise ParameterError(f"{name}: the agent chooses among its own tools; “none” leaves them out.", name)
    system, rest = _split(request.messages)
    if not rest or rest[-1][1].role != "user":
        raise ParameterError("messages: the last message is the user's.", "messages")
    last_index, last = rest[-1]
    return Question(
        model=request.model,
        content=_content(last, last_index),
        where=f"messages.{last_index}.content",
        earlier=[pair for index, message in rest[:-1] if (pair := (message.role, _text(message, index)))[1].strip()],
        system=system,
        stream=bool(request.stream),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        tools="none" not in (request.tool_choice, request.function_call),
        parameters=_parameters(request),
    )


def _parsed(value: Mapping[str, Any]) -> CompletionRequest:
    try:
        return CompletionRequest.model_validate(value)
    except ValidationError as error:
        where = error.errors(include_url=False, include_input=False)[0]["loc"]
        raise ParameterError(body.first_problem(error), ".".join(str(step) for step in where) or None) from None


def _parameters(request: CompletionRequest) -> dict[str, Any]:
    """What replaces the agent's own parameters, by the names of `ModelSettings`."""
    given = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_output_tokens": request.max_completion_tokens or request.max_tokens,
        "reasoning_effort": request.reasoning_effort,
    }
    return {name: value for name, value in given.items() if value is not None}


def _split(messages: Sequence[Message]) -> tuple[str, list[tuple[int, Message]]]:
    """The instructions of all system and developer messages, and the others with their places."""
    system: list[str] = []
    rest: list[tuple[int, Message]] = []
    for index, message in enumerate(messages):
        where = f"messages.{index}"
        if message.role in ("tool", "function") or message.tool_calls or message.function_call:
            raise ParameterError(f"{where}: {UNSUPPORTED['tools']}", where)
        if message.audio:
            raise ParameterError(f"{where}.audio: only text is taken of earlier answers.", f"{where}.audio")
        if message.role in ("system", "developer"):
            system.append(_text(message, index))
        else:
            rest.append((index, message))
    return "\n\n".join(text for text in system if text.strip()), rest


def _text(message: Message, index: int) -> str:
    """The text of an earlier message; an image that was in it is only mentioned."""
    return "\n".join(
        item if isinstance(item, str) else EARLIER_IMAGE for item in _items(message, index, keep_images=False)
    )


def _content(message: Message, index: int) -> list[str | InlineImage]:
    content = _items(message, index, keep_images=True)
    if not any(isinstance(item, InlineImage) or item.strip() for item in content):
        raise ParameterError(f"messages.{index}: the message is empty.", f"messages.{index}.content")
    return content


def _items(message: Message, index: int, *, keep_images: bool) -> list[str | InlineImage]:
    if message.content is None:
        return [message.refusal or ""]
    items: list[str | InlineImage] = []
    for place, part in enumerate(message.content):
        where = f"messages.{index}.content.{place}"
        if part.text is not None and part.type in ("text", "input_text", "output_text", "refusal"):
            items.append(part.text)
        elif part.type == "image_url" and part.image_url is not None and message.role == "user":
            items.append(_inline_image(part.image_url.url, where) if keep_images else InlineImage(b"", where))
        else:
            raise ParameterError(f"{where}: parts of the type {part.type[:40]!r} are not supported here.", where)
    return items


def _inline_image(url: str, where: str) -> InlineImage:
    """The image of a `data:` URL (RFC 2397). An address is not fetched: the server goes nowhere for a client."""
    head, comma, encoded = url.partition(",")
    if not head.lower().startswith("data:image/") or not head.lower().endswith(";base64") or not comma:
        raise ParameterError(f"{where}: only images inside the request (data: URLs in base64) are supported.", where)
    try:
        return InlineImage(base64.b64decode(encoded, validate=True), where)
    except (binascii.Error, ValueError):
        raise ParameterError(f"{where}: the image is not valid base64.", where) from None
