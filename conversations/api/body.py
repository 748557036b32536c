"""Bodies and query parameters of requests: cleaned, checked against a model, errors that name the field."""

from __future__ import annotations

from typing import Any, TypeVar

from django.http import HttpRequest
from pydantic import BaseModel, ConfigDict, ValidationError

from chatui.errors import InvalidRequestError
from chatui.jsontext import TooDeepError, received
from chatui.text import clean_json

M = TypeVar("M", bound=BaseModel)


class Body(BaseModel):
    """What every body is: closed, so that a misspelt field is an error and not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def read_json(request: HttpRequest) -> dict[str, Any]:
    """The request's body as a JSON object, its strings cleaned. Raises `InvalidRequestError`, `RequestDataTooBig`."""
    try:
        value = received(request.body or b"{}")
    except TooDeepError:
        raise InvalidRequestError(public_message="The body is nested too deeply.") from None
    except UnicodeDecodeError:
        raise InvalidRequestError(public_message="The body is not UTF-8.") from None
    except ValueError as error:
        raise InvalidRequestError(public_message=f"The body is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise InvalidRequestError(public_message="The body is a JSON object.")
    cleaned: dict[str, Any] = clean_json(value)
    return cleaned


def parse(model: type[M], value: Any) -> M:
    """`value` as `model`. Raises `InvalidRequestError`, which names the first field that does not fit."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidRequestError(public_message=first_problem(error)) from None


def first_problem(error: ValidationError) -> str:
    """The first thing wrong, as `field: what`."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(step) for step in first["loc"]) or "body"
    return f"{where}: {first['msg']}."


def read(model: type[M], request: HttpRequest) -> M:
    return parse(model, read_json(request))


def flag(request: HttpRequest, name: str) -> bool:
    """The boolean query parameter `name`; absent is False. Raises `InvalidRequestError`."""
    match request.GET.get(name, "").lower():
        case "" | "0" | "false":
            return False
        case "1" | "true":
            return True
    raise InvalidRequestError(public_message=f"{name}: true or false.")
