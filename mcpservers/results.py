"""What a tool answered → text for the model, parts for people, files. Pure; nothing a server sends can make it raise.

The shapes are those of MCP 2025-11-25 and 2026-07-28, server/tools, "Tool Result". `_meta` is never read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from chatui.text import clean, clean_json
from mcpservers import media
from mcpservers.cuts import Cut, cut, whole_name
from mcpservers.outcomes import ArtifactData, ToolOutcome
from mcpservers.structured import is_repeated, violation

MAX_PARTS = 500
MAX_ARTIFACTS = 50
MIN_BARE = 60  # characters of base64 after a known beginning: nobody writes that by hand
_CHARACTER = r"(?:[A-Za-z0-9+/_-]|\\/)"  # of base64, also as JSON within text writes it
_LINES = rf"(?:(?:(?:[\r\n]|\\[rn])+{_CHARACTER}{{60,}})+(?:(?:[\r\n]|\\[rn])+{_CHARACTER}+)?)?={{0,2}}"
# A whole data: URI, and bare base64 that begins like a file of a known kind.
_DATA_URI = re.compile(
    rf"data:(?:[\w.+-]*\\?/[\w.+-]*)?(?:;[\w.=\"+-]+){{0,8}};base64,\s*(?:{_CHARACTER}|%)*{_LINES}", re.IGNORECASE
)
_BEGINNINGS = "iVBORw0KGgo|/9j/|R0lGOD|UklGR|JVBERi0|UEsDB|H4sI|SUQz|T2dnUw|ZkxhQ"
_BARE = re.compile(
    rf"(?<![A-Za-z0-9+/_-])(?:{_BEGINNINGS})"
    rf"{_CHARACTER}{{{MIN_BARE},}}{_LINES}"
)
# Two quick looks before the slow ones: results may have megabytes.
_SIGN, _BEGINNING = re.compile(";base64,", re.IGNORECASE), re.compile(_BEGINNINGS)
NOTHING = "The tool answered without any content."
NOTHING_WRONG = "The tool reported an error without saying what went wrong."


def normalise(raw: Any, *, images: bool, output_schema: Mapping[str, Any] | None, limit: int) -> ToolOutcome:
    """The outcome of a call from the raw result of `tools/call`: status `ok` or `error`, duration not set.

    `images` says that the model sees pictures (they are then its image parts; the text only names them).
    `text` has at most `limit` characters, is never empty and holds no base64; a longer one ends in a note that names
    the file with the whole, the last of the artifacts, and says how to read on. A result that breaks `output_schema`
    is passed on and says so.
    """
    result = raw if isinstance(raw, Mapping) else {}
    failed = result.get("isError") is True
    reading = _Reading(images)
    for block in _blocks(result):
        reading.add(block)
    structured = result.get("structuredContent", result.get("toolResult"))
    if structured is not None:
        reading.add_structured(clean_json(structured))
    if output_schema is not None and not failed and structured is not None:
        reading.warn(violation(structured, output_schema))
    text = "\n".join(reading.texts).strip()
    return reading.outcome("error" if failed else "ok", text or (NOTHING_WRONG if failed else NOTHING), limit)


def _blocks(result: Mapping[str, Any]) -> list[Any]:
    content = result.get("content")
    if isinstance(content, (str, Mapping)):
        return [content]
    return content if isinstance(content, list) else []


class _Reading:
    """One result as it is read: `texts` for the model, `content` for people, `artifacts` for both."""

    def __init__(self, images: bool) -> None:
        self.texts: list[str] = []
        self.content: list[dict[str, Any]] = []
        self.artifacts: list[ArtifactData] = []
        self._images = images
        self._seen: dict[str, int] = {}  # digest → index into artifacts
        self._plain: list[str] = []  # texts as the server sent them
        self._left_out = 0

    # --- blocks ---------------------------------------------------------------------------------------------------

    def add(self, block: Any) -> None:
        if len(self.content) >= MAX_PARTS:
            self._left_out += 1
            return
        if isinstance(block, str):
            block = {"type": "text", "text": block}
        if not isinstance(block, Mapping):
            self._note("[a part that could not be read]")
            return
        kind = block.get("type")
        readers: dict[Any, Callable[[Mapping[str, Any]], None]] = {
            "text": self._text,
            "image": self._media,
            "audio": self._media,
            "resource": self._resource,
            "resource_link": self._link,
        }
        reader = readers.get(kind) if isinstance(kind, str) else None
        if reader is None:
            named = f" “{kind}”" if isinstance(kind, str) and re.fullmatch(r"[\w/.-]{1,30}", kind) else ""
            self._note(f"[a part of an unknown kind{named} was left out]")
        else:
            reader(block)

    def _text(self, block: Mapping[str, Any]) -> None:
        text = block.get("text")
        if not isinstance(text, str):
            text = "" if text is None else json.dumps(text, ensure_ascii=False)
        text = clean(text)
        self._plain.append(text)
        shown, indexes = self._without_files(text)
        if shown:
            self.texts.append(shown)
            self.content.append({"type": "text", "text": shown})
        self._show(indexes)

    def _media(self, block: Mapping[str, Any]) -> None:
        kind = block["type"]
        data = media.decoded(block.get("data"))
        if data is None:
            self._note(f"[{_an(kind)} that could not be decoded]")
            return
        index = self._keep(data, media.media_type_of(data, block.get("mimeType")), kind=kind)
        self._name(index)
        self._show([index])

    def _resource(self, block: Mapping[str, Any]) -> None:
        resource = block.get("resource")
        if not isinstance(resource, Mapping):
            self._note("[a resource that could not be read]")
            return
        uri = self._string(resource, "uri")
        title = self._string(resource, "title") or self._string(resource, "name")
        if isinstance(resource.get("text"), str):
            text, indexes = self._without_files(clean(resource["text"]))
            self.texts.append(f"{uri}:\n{text}" if uri else text)
            part = {"type": "resource", "uri": uri, "title": title, "media_type": self._string(resource, "mimeType")}
            self.content.append({**{key: value for key, value in part.items() if value}, "text": text})
            self._show(indexes)
            return
        data = media.decoded(resource.get("blob")) if resource.get("blob") != "" else b""
        if data is None:
            self._note(f"[the resource {uri} without readable contents]" if uri else "[a resource without contents]")
            return
        index = self._keep(data, media.media_type_of(data, resource.get("mimeType")), kind="file", address=uri or title)
        self._name(index, uri)
        self._show([index])

    def _link(self, block: Mapping[str, Any]) -> None:
        uri = self._string(block, "uri")
        title = self._string(block, "title") or self._string(block, "name")
        if not uri:
            self._note("[a link without an address]")
            return
        description = self._string(block, "description")
        text = f"{title} ({uri})" if title and title != uri else uri
        self.texts.append(f"{text}: {description}" if description else text)
        part = {"type": "link", "uri": uri, "title": title, "description": description}
        self.content.append({key: value for key, value in part.items() if value})

    def add_structured(self, value: Any) -> None:
        """`structuredContent`: for the model as JSON, unless the text says the same already."""
        if is_repeated(value, self._plain):
            return
        indexes: list[int] = []

        def without_files(inner: Any) -> Any:
            match inner:
                case str():
                    text, found = self._without_files(inner)
                    indexes.extend(found)
                    return text
                case dict():
                    return {without_files(key): without_files(item) for key, item in inner.items()}
                case list():
                    return [without_files(item) for item in inner]
                case _:
                    return inner

        value = without_files(value)
        self.texts.append(json.dumps(value, ensure_ascii=False))
        self.content.append({"type": "json", "value": value})
        self._show(indexes)

    def warn(self, problem: str) -> None:
        if problem:
            self._note(f"[The structured result does not match what the tool declares: {problem}]")

    def _note(self, text: str) -> None:
        self.texts.append(text)
        self.content.append({"type": "text", "text": text})

    # --- files ----------------------------------------------------------------------------------------------------

    def _without_files(self, text: str) -> tuple[str, list[int]]:
        """`text` with a name in the place of each data: URI and each file in bare base64; and the files' indexes."""
        indexes: list[int] = []

        def named(match: re.Match[str]) -> str:
            data = media.decoded(match[0])
            if not data:
                return "[data that could not be decoded]"
            declared = match[0][5:].split(";")[0].replace("\\", "") if match[0][:5].lower() == "data:" else ""
            media_type = media.media_type_of(data, declared)
            index = self._keep(data, media_type, kind=media_type.split("/")[0])
            indexes.append(index)
            return self._words(index)

        if _SIGN.search(text):
            text = _DATA_URI.sub(named, text)
        if _BEGINNING.search(text):
            text = _BARE.sub(named, text)
        return text, indexes

    def _string(self, block: Mapping[str, Any], key: str) -> str:
        value = block.get(key)
        return self._without_files(clean(value))[0] if isinstance(value, str) else ""

    def _keep(self, data: bytes, media_type: str, *, kind: str, address: str = "") -> int:
        """The index of the file, which is kept once however often it comes."""
        digest = hashlib.sha256(data + media_type.encode() + address.encode("utf-8", "replace")).hexdigest()
        if digest not in self._seen and len(self.artifacts) < MAX_ARTIFACTS:
            word = kind if kind in ("image", "audio", "video") else "file"
            number = 1 + sum(artifact.name.startswith(f"{word}-") for artifact in self.artifacts)
            name = media.safe_name(address, f"{word}-{number}.{media.extension_of(media_type)}")
            self._seen[digest] = len(self.artifacts)
            self.artifacts.append(ArtifactData(data, media_type, name))
        return self._seen.get(digest, -1)

    def _name(self, index: int, uri: str = "") -> None:
        words = self._words(index)
        self.texts.append(f"{words[:-1]}, from {uri}]" if uri and index >= 0 else words)

    def _words(self, index: int) -> str:
        if index < 0:
            return f"[a file beyond the limit of {MAX_ARTIFACTS} was left out]"
        artifact = self.artifacts[index]
        if artifact.media_type not in media.SHOWN_IMAGES:
            return f"[file “{artifact.name}” ({artifact.media_type}) was given to the user]"
        whom = "is attached" if self._images else "is shown to the user; you cannot see it"
        return f"[image “{artifact.name}” ({artifact.media_type}) {whom}]"

    def _show(self, indexes: list[int]) -> None:
        shown = {part.get("index") for part in self.content}
        for index in dict.fromkeys(indexes):
            if index >= 0 and index not in shown:
                self.content.append({"type": "artifact", "index": index})

    # --- the end --------------------------------------------------------------------------------------------------

    def outcome(self, status: Any, text: str, limit: int) -> ToolOutcome:
        if self._left_out:
            text += f"\n[{self._left_out} more parts were left out]"
        self._show(list(range(len(self.artifacts))))  # those that a title or an address brought
        if len(text) > limit:
            name = whole_name(text)
            self.content.insert(0, {"type": "artifact", "index": len(self.artifacts)})
            self.artifacts.append(ArtifactData(text.encode(), "text/plain", name))
            before = f"The result was cut: it has {len(text):,} characters. The user has the whole as “{name}”;"
            text = cut(text, limit, before, Cut(name), "Or ask for less at a time.")
        if not self.content:
            self.content.append({"type": "text", "text": text})
        return ToolOutcome(status, text, tuple(_bounded(self.content, limit)), tuple(self.artifacts))


def _bounded(content: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """The parts for people with at most `limit` characters of text in all: the whole is in the file."""
    result = []
    left = limit
    for part in content:
        if part["type"] in ("text", "resource"):
            text = part.get("text", "")
            part = {**part, "text": text if len(text) <= left else text[: max(0, left)] + "…"}
            left -= len(text)
            if part["text"] == "…":
                continue
        elif part["type"] == "json":
            size = len(json.dumps(part["value"], ensure_ascii=False))
            left -= size
            if left < 0:
                continue
        result.append(part)
    return result


def _an(kind: str) -> str:
    return "an image" if kind == "image" else "a sound"
