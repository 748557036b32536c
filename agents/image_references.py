"""`image_1` in a call's arguments: the uploaded image takes its place just before the call. Pure.

Rows, frames, logs and history keep the short form.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agents.arguments import branches_of, property_of
from agents.image_parameters import form_of
from agents.parts import ImageContent, JSONObject, ToolResult

_REFERENCE = re.compile(r"\s*[\[“\"']?(image_\d{1,4})[\]”\"']?\s*", re.IGNORECASE)
_DEPTH = 16
_TELLING = 60  # characters of base64 by which an image is known again


@dataclass(frozen=True, slots=True)
class Placed:
    """Arguments with images in place of their names; `problem` says, for the model, which cannot be placed."""

    arguments: JSONObject
    encoded: Mapping[str, str]  # what stands for each name, in base64
    problem: str = ""


def place(arguments: JSONObject, schema: JSONObject, images: Mapping[str, ImageContent]) -> Placed:
    """`arguments` (unchanged) with `images` where the tool's own `schema` takes images and one is named."""
    walk = _Walk(schema, images)
    placed: JSONObject = walk.value(arguments, [*branches_of(schema, schema)], "", "", 0)
    return Placed(placed, walk.encoded, walk.problem)


class _Walk:
    def __init__(self, root: JSONObject, images: Mapping[str, ImageContent]) -> None:
        self._root, self._images = root, images
        self.encoded: dict[str, str] = {}
        self.problem = ""

    def value(self, value: Any, branches: list[JSONObject], name: str, within: str, depth: int) -> Any:
        """`value`, a part of the arguments: the parameter `name`, or an item of it, in the parameter `within`."""
        if depth > _DEPTH:
            return value
        match value:
            case str():
                return self._text(value, branches, name, within)
            case dict():
                return {
                    key: self.value(item, self._of(property_of(branches, key)), key, name, depth + 1)
                    for key, item in value.items()
                }
            case list():
                items = self._of(next((branch["items"] for branch in branches if "items" in branch), None))
                described = [{"description": branch.get("description")} for branch in branches]
                return [
                    self.value(item, [*items, *described] if items else items, name, within, depth + 1)
                    for item in value
                ]
        return value

    def _of(self, schema: Any) -> list[JSONObject]:
        return list(branches_of(schema, self._root))

    def _text(self, value: str, branches: list[JSONObject], name: str, within: str) -> str:
        found = _REFERENCE.fullmatch(value) if self._images else None
        form = form_of(name, branches, within) if found else None
        if found is None or form is None:
            return value
        image = self._images.get(found[1].lower())
        if image is None or not image.data:
            self.problem = self._missing(found[1], known=image is not None)
            return value
        encoded = base64.b64encode(image.data).decode()
        self.encoded[image.name] = encoded
        return encoded if form == "base64" else f"data:{image.media_type};base64,{encoded}"

    def _missing(self, name: str, *, known: bool) -> str:
        if known:
            return f"{name} can no longer be read: ask the user to upload it again."
        names = ", ".join(name for name, image in self._images.items() if image.data)
        return f"There is no {name}. " + (
            f"The user's images are: {names}." if names else "The user has uploaded no image."
        )


def without_images(result: ToolResult, encoded: Mapping[str, str]) -> ToolResult:
    """`result` with names in place of images that a server repeats, as errors do."""
    patterns = {
        name: re.compile(rf"(?:data:[\w/+.-]+;base64,)?{re.escape(text[:_TELLING])}[A-Za-z0-9+/=]*")
        for name, text in encoded.items()
    }
    if not any(pattern.search(result.text) for pattern in patterns.values()):
        return result

    def short(text: str) -> str:
        for name, pattern in patterns.items():
            text = pattern.sub(name, text)
        return text

    content = [
        {**part, "text": short(part["text"])} if isinstance(part.get("text"), str) else part for part in result.content
    ]
    return replace(result, text=short(result.text), content=content)
