"""Which model the demo's agent uses: the operator's endpoint, else a local Ollama, else the scripted model."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OPENAI = "https://api.openai.com/v1"
OLLAMA = "http://127.0.0.1:11434/v1"
OLLAMA_SECONDS = 0.5
LISTING_SECONDS = 10.0
# Among many models of an endpoint, one that chats, calls tools and costs little.
_PREFERRED = (
    "gpt-5-mini",
    "gpt-5",
    "gpt-4.1-mini",
    "gpt-4o-mini",
    "qwen3",
    "qwen2.5",
    "llama3",
    "mistral",
    "gpt",
    "claude",
)
_NO_CHAT = re.compile(
    r"embed|whisper|tts|audio|image|dall-e|moderation|realtime|transcribe|rerank|davinci|babbage|sora"
)


@dataclass(frozen=True, slots=True)
class Choice:
    """An endpoint and a model of it, for `demo/chatui.yaml`; `note` is for the person who started the demo."""

    name: str
    base_url: str
    model: str
    api_key: str = ""
    dialect: str = "permissive"
    note: str = ""

    def environment(self) -> dict[str, str]:
        return {
            "DEMO_ENDPOINT_NAME": self.name,
            "DEMO_BASE_URL": self.base_url,
            "DEMO_API_KEY": self.api_key,
            "DEMO_DIALECT": self.dialect,
            "DEMO_MODEL": self.model,
        }


def choose(environment: Mapping[str, str], scripted: Choice, *, ollama: str = OLLAMA) -> Choice:
    """The endpoint that `environment` names, else an Ollama that answers and has a model, else `scripted`.

    An endpoint that is named and does not list its models is not used, and the note says so: set OPENAI_MODEL.
    """
    base_url, api_key = environment.get("OPENAI_BASE_URL", ""), environment.get("OPENAI_API_KEY", "")
    if base_url or api_key:
        return _named(base_url or OPENAI, api_key, environment.get("OPENAI_MODEL", ""), scripted)
    try:
        models = list_models(ollama, "", OLLAMA_SECONDS)
    except OSError:
        return scripted
    model = pick(models)
    return Choice("Ollama", ollama, model, note=f"Ollama answers here: using {model}.") if model else scripted


def _named(base_url: str, api_key: str, model: str, scripted: Choice) -> Choice:
    dialect = "openai" if base_url.startswith(OPENAI) else "permissive"
    place = re.sub(r"^https?://([^/@]*@)?", "", base_url).rstrip("/")
    if not model:
        try:
            model = pick(list_models(base_url, api_key, LISTING_SECONDS))
        except OSError as error:
            return _instead(scripted, f"{place} does not list its models ({_words(error)})")
    if not model:
        return _instead(scripted, f"{place} lists no model that chats")
    return Choice(place, base_url, model, api_key, dialect, f"Using {model} at {place}.")


def _instead(scripted: Choice, reason: str) -> Choice:
    note = f"{reason}, so the scripted demo model answers. Set OPENAI_MODEL to use the endpoint all the same."
    return Choice(scripted.name, scripted.base_url, scripted.model, note=note)


def _words(error: OSError) -> str:
    match error:
        case urllib.error.HTTPError():
            return f"HTTP {error.code}"
        case urllib.error.URLError():
            return str(getattr(error.reason, "strerror", "") or error.reason)
        case _:
            return str(error) or type(error).__name__


def list_models(base_url: str, api_key: str, timeout: float) -> list[str]:
    """The names at `/models`. Raises `OSError` when there is no such list within `timeout` seconds."""
    root = base_url.rstrip("/")
    path = "/models" if re.match(r"https?://[^/]+/", root) else "/v1/models"
    try:
        request = urllib.request.Request(root + path, headers={"Authorization": f"Bearer {api_key}"} if api_key else {})
        # Not through a proxy: what is asked here is asked for this machine.
        opener = urllib.request.build_opener(*([] if api_key else [urllib.request.ProxyHandler({})]))
        with opener.open(request, timeout=timeout) as response:
            value: Any = json.load(response)
        return [str(item["id"]) for item in value["data"] or ()]
    except (ValueError, TypeError, KeyError) as error:
        raise OSError("no list of models") from error


def pick(models: list[str]) -> str:
    """The model that suits a chat with tools best, by its name; empty if none does."""
    chat = sorted((model for model in models if not _NO_CHAT.search(model)), key=len)
    return next((model for wanted in _PREFERRED for model in chat if model.startswith(wanted)), chat[0] if chat else "")
