"""What a server asks a person: an untrusted form or address made fit to be shown, and answers checked. Pure.

MCP 2025-11-25 and 2026-07-28, *Elicitation*; SEP-1034 (defaults), SEP-1330 (choices).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from chatui.errors import ChatUIError
from chatui.netguard import is_allowed
from chatui.text import clean, shorten
from mcpservers.answers import LARGEST, JSONObject, problem_with
from mcpservers.visible import visible

Mode = Literal["form", "url"]
Action = Literal["accept", "decline", "cancel"]

MAX_FIELDS = 32
MAX_OPTIONS = 250
MAX_MESSAGE = 4_000  # characters, as the next ones
MAX_NAME = 200
MAX_TITLE = 200
MAX_DESCRIPTION = 1_000
MAX_OPTION = 500
MAX_URL = 8_000
MAX_FORM = 48 * 1024  # of the whole form as JSON, so that every frame that holds it stays small
_PASSWORD = re.compile(r"pass(?:word|wort|phrase|code)|passwd|\bpwd\b", re.IGNORECASE)


class UnaskableError(ValueError):
    """It is not shown to anybody; the text is the reason, a sentence for people and for the model."""


class InvalidAnswerError(ChatUIError):
    """An answer that does not fit the form. `fields` says for each field's name what is wrong with it."""

    code = "invalid_answer"
    status = 422
    public_message = "The answer does not fit what is asked."

    def __init__(self, message: str, fields: Mapping[str, str]) -> None:
        super().__init__(message, public_message=message)
        self.fields = dict(fields)


@dataclass(frozen=True, slots=True)
class Elicitation:
    """One question of a server, fit to be shown. `schema` is of the form alone, the other fields of an address.

    `schema` is a flat JSON Schema: what the server sent, with only what is understood, choices as `oneOf` of
    `{const, title}` (`items.anyOf` where several may be chosen), and defaults that hold. `order` is that of its
    fields, which a database does not keep.
    """

    mode: Mode
    message: str
    schema: JSONObject | None = None
    order: tuple[str, ...] = ()
    url: str = ""
    host: str = ""
    id: str = ""

    def card(self) -> JSONObject:
        """As JSON, for people; `restored` is its inverse."""
        return {
            "mode": self.mode,
            "message": self.message,
            "schema": self.schema,
            "order": list(self.order),
            "url": self.url or None,
            "host": self.host,
            "elicitation": self.id,
        }


def restored(card: Mapping[str, Any]) -> Elicitation:
    """The question of which `card` was made."""
    return Elicitation(
        card["mode"],
        card["message"],
        card["schema"],
        tuple(card["order"]),
        card["url"] or "",
        card["host"],
        card["elicitation"],
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person did about a question; `content` goes with an accepted form."""

    action: Action
    content: JSONObject = field(default_factory=dict)

    def result(self, asked: Elicitation) -> JSONObject:
        """The `ElicitResult` for the server. Raises `InvalidAnswerError`."""
        if self.action == "accept" and asked.schema is not None:
            return {"action": "accept", "content": checked(asked.schema, self.content)}
        return {"action": self.action}


# --- The question -------------------------------------------------------------------------------------------------


def read(params: object) -> Elicitation:
    """The question in the params of an `elicitation/create`. Raises `UnaskableError`."""
    if not isinstance(params, Mapping):
        raise UnaskableError("It is not a question as the protocol has them.")
    message = _words(params.get("message"), MAX_MESSAGE, lines=True)
    mode = params.get("mode", "form")
    if mode == "url":
        url, host = _address(params.get("url"))
        identifier = params.get("elicitationId")
        return Elicitation(
            "url", message, url=url, host=host, id=clean(identifier)[:500] if isinstance(identifier, str) else ""
        )
    if mode != "form":
        raise UnaskableError("It is asked in a way that the protocol does not have.")
    schema = _form(params.get("requestedSchema"))
    asked = Elicitation("form", message, schema, tuple(schema["properties"]))
    if len(json.dumps(asked.card())) > MAX_FORM:
        raise UnaskableError("Its form is too large.")
    return asked


def _address(url: object) -> tuple[str, str]:
    """The address and its host. Names of other scripts are written in ASCII, so that none looks like another."""
    if not isinstance(url, str) or len(url) > MAX_URL or clean(url) != url or re.search(r"[\s\x00-\x20\x7f\\]", url):
        raise UnaskableError("It leads to something that is not an address of the web.")
    try:
        parts = urlsplit(url)
        name, port = parts.hostname or "", parts.port
        host = name if ":" in name else name.encode("idna").decode("ascii")
    except (ValueError, UnicodeError):
        raise UnaskableError("It leads to something that is not an address of the web.") from None
    if parts.scheme != "https" and not (parts.scheme == "http" and is_allowed(name, port or 80)):
        raise UnaskableError("It leads to an address that does not begin with https.")
    if not host or parts.username is not None or parts.password is not None:
        raise UnaskableError("It leads to an address that has no host, or hides it behind a user name.")
    shown = f"[{host}]" if ":" in host else host
    if port is not None:
        shown = f"{shown}:{port}"
    return parts._replace(netloc=shown).geturl(), shown


def _form(schema: object) -> JSONObject:
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise UnaskableError("It has no form.")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, Sequence) or isinstance(required, str):
        raise UnaskableError("Its form is not one that the protocol has.")
    if len(properties) > MAX_FIELDS:
        raise UnaskableError(f"Its form has more than {MAX_FIELDS} fields.")
    if any(not isinstance(name, str) or name not in properties for name in required):
        raise UnaskableError("Its form requires a field that it does not have.")
    for name in properties:
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or clean(name) != name:
            raise UnaskableError("A field of its form has no name that could be shown.")
    fields = {name: _field(name, part) for name, part in properties.items()}
    return {"type": "object", "properties": fields, "required": [name for name in fields if name in required]}


def _field(name: str, part: object) -> JSONObject:
    if not isinstance(part, Mapping):
        raise UnaskableError(f"The field “{_label(name)}” of its form is not described.")
    part = _without_null(part)
    made = _kinds(name, part)
    title = _words(part.get("title"), MAX_TITLE) or _label(name)
    description = _words(part.get("description"), MAX_DESCRIPTION, lines=True)
    made |= {"title": title} | ({"description": description} if description else {})
    secret = part.get("format") == "password" or _PASSWORD.search(name) or _PASSWORD.search(title)
    if secret and made["type"] == "string" and "oneOf" not in made:
        raise UnaskableError(f"It asks for a password (“{_label(name)}”), which a form must not.")
    default = part.get("default")
    if default is not None and problem_with(made, default) == "":
        made["default"] = default
    return made


def _without_null(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Optional fields as many servers write them, in the protocol's way: `anyOf` of a kind and null is the kind."""
    options = part.get("anyOf")
    if not isinstance(options, list) or part.get("type") is not None:
        return part
    kinds = [option for option in options if not (isinstance(option, Mapping) and option.get("type") == "null")]
    if len(kinds) != 1 or not isinstance(kinds[0], Mapping):
        return part
    return {**kinds[0], **{keyword: value for keyword, value in part.items() if keyword != "anyOf"}}


def _kinds(name: str, part: Mapping[str, Any]) -> JSONObject:
    kind = part.get("type")
    if kind == "string" or (kind is None and "enum" in part):
        options = _options(name, part, "oneOf")
        return {"type": "string", "oneOf": options} if options is not None else _text(name, part)
    if kind in ("number", "integer"):
        return _ranged(name, part, kind, "minimum", "maximum", _number)
    if kind == "boolean":
        return {"type": "boolean"}
    if kind == "array" and isinstance(part.get("items"), Mapping):
        options = _options(name, part["items"], "anyOf")
        if options is not None:
            made = _ranged(name, part, "array", "minItems", "maxItems", _count)
            if made.get("minItems", 0) > len(options):
                raise _unanswerable(name)
            return {**made, "items": {"type": "string", "anyOf": options}}
    raise UnaskableError(f"The field “{_label(name)}” of its form is of a kind that cannot be asked for.")


def _text(name: str, part: Mapping[str, Any]) -> JSONObject:
    if any(keyword in part for keyword in ("$ref", "anyOf", "oneOf", "allOf", "not", "const")):
        raise UnaskableError(f"The field “{_label(name)}” of its form is of a kind that cannot be asked for.")
    made = _ranged(name, part, "string", "minLength", "maxLength", _count)
    pattern, kind = part.get("pattern"), part.get("format")
    if isinstance(pattern, str) and clean(pattern) == pattern:
        made["pattern"] = pattern
    if kind in ("email", "uri", "date", "date-time"):
        made["format"] = kind
    return made


def _ranged(
    name: str, part: Mapping[str, Any], kind: str, least: str, most: str, usable: Callable[[object], bool]
) -> JSONObject:
    limits = {keyword: part[keyword] for keyword in (least, most) if usable(part.get(keyword))}
    if least in limits and most in limits and limits[least] > limits[most]:
        raise _unanswerable(name)
    return {"type": kind, **limits}


def _unanswerable(name: str) -> UnaskableError:
    return UnaskableError(f"No answer could fit the field “{_label(name)}” of its form.")


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def _options(name: str, part: Mapping[str, Any], titled: str) -> list[JSONObject] | None:
    """The choices of `part`, `{const, title}` each; None where it is no choice."""
    if titled in part or (titled == "anyOf" and "oneOf" in part):
        found = list(_titled(part.get(titled, part.get("oneOf"))))
    elif "enum" in part:
        found = list(_named(part["enum"], part.get("enumNames")))
    else:
        return None
    values = [value for value, _ in found]
    if not found or len(found) > MAX_OPTIONS or len(set(map(str, values))) < len(found):
        raise _unanswerable(name) if not found else UnaskableError(f"The choices of “{_label(name)}” cannot be shown.")
    for value in values:
        if not isinstance(value, str) or len(value) > MAX_OPTION or clean(value) != value:
            raise UnaskableError(f"The choices of “{_label(name)}” cannot be shown.")
    return [
        {"const": value, "title": _words(title, MAX_OPTION) or _words(value, MAX_OPTION) or "…"}
        for value, title in found
    ]


def _titled(options: object) -> Iterator[tuple[Any, Any]]:
    for option in options if isinstance(options, list) else ():
        yield (option.get("const"), option.get("title")) if isinstance(option, Mapping) else (None, None)


def _named(values: object, names: object) -> Iterator[tuple[Any, Any]]:
    titles = names if isinstance(names, list) else []
    for position, value in enumerate(values if isinstance(values, list) else ()):
        yield value, titles[position] if position < len(titles) else None


def _words(text: object, limit: int, *, lines: bool = False) -> str:
    """`text` as people may be shown it: nothing hidden, not too long, on one line unless `lines`."""
    words = visible(text).strip() if isinstance(text, str) else ""
    if lines:
        return words if len(words) <= limit else words[: limit - 1] + "…"
    return shorten(words, limit)


def _label(name: str) -> str:
    return shorten(visible(name), 80) or "…"


# --- The answer ---------------------------------------------------------------------------------------------------


def checked(schema: Mapping[str, Any], content: Mapping[str, Any]) -> JSONObject:
    """`content` as the server may be sent it: its values checked, defaults for what is not in it.

    A field that is null was left empty on purpose, which only one that is not required may be. Raises
    `InvalidAnswerError`, which names every field that is wrong.
    """
    fields: Mapping[str, Any] = schema["properties"]
    wrong = {name: "There is no such field." for name in content if name not in fields}
    answer: JSONObject = {}
    for name, part in fields.items():
        value = content.get(name, part.get("default"))
        if value is not None:
            problem = problem_with(part, value)
        else:
            problem = "This is required." if name in schema["required"] else ""
        if problem:
            wrong[name] = problem
        elif value is not None:
            answer[name] = int(value) if part["type"] == "integer" else value
    if wrong:
        name, problem = next(iter(wrong.items()))
        title = fields[name]["title"] if name in fields else _label(name)
        raise InvalidAnswerError(f"{title}: {problem}", wrong)
    return answer
