"""Testing an endpoint as an admin does: where it really is, which models it lists, and how long that took."""

from __future__ import annotations

import asyncio
import importlib
import time
from dataclasses import dataclass, field
from typing import Any

from agents.providers.chat_model import EndpointError, EndpointUnavailableError
from agents.providers.settings import ModelSettings, normalise_base_url
from agents.providers.sse import MALFORMED, parse_json
from chatui.text import clean

MAX_SECONDS = 30.0  # for the whole test: a person waits for it


@dataclass(frozen=True, slots=True)
class EndpointReport:
    """`effective_url` is the base URL that requests go to; `models` are the listed names, sorted."""

    effective_url: str
    models: list[str] = field(default_factory=list)
    duration_ms: int = 0
    error: EndpointError | None = None


async def test_endpoint(settings: ModelSettings) -> EndpointReport:
    """List the models of an endpoint through the same guarded connections that completions use.

    Never raises for what the endpoint does. Raises `BaseURLError` for a base URL that is none.
    """
    effective = normalise_base_url(settings.base_url)
    began = time.monotonic()
    models: list[str] = []
    failure: EndpointError | None = None
    exchange = await asyncio.to_thread(importlib.import_module, "agents.providers.exchange")
    try:
        deadline = asyncio.get_running_loop().time() + min(MAX_SECONDS, settings.first_token_timeout)
        models = _names(parse_json(await exchange.listing(settings, deadline)))
    except EndpointError as error:
        failure = error
    return EndpointReport(effective, models, round((time.monotonic() - began) * 1000), failure)


test_endpoint.__test__ = False  # type: ignore[attr-defined] # pytest would collect it where a test imports it


def _names(listing: Any) -> list[str]:
    """The names in a listing, in OpenAI's shape or one of its relatives' (`models`, a bare list, plain names)."""
    if isinstance(listing, dict):
        listing = listing.get("data", listing.get("models", MALFORMED))
    if listing is None:  # some servers write null for none
        return []
    if not isinstance(listing, list):
        detail = "It did not answer with a list of models. Check its base URL."
        raise EndpointUnavailableError("no list of models", detail=detail)
    names = [item if isinstance(item, str) else _name(item) for item in listing]
    return sorted({clean(name) for name in names if name})


def _name(item: Any) -> str:
    found = (item.get("id") or item.get("name") or item.get("model")) if isinstance(item, dict) else ""
    return found if isinstance(found, str) else ""
