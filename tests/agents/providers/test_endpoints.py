"""Testing an endpoint: its models, its effective address, and a clear error for each way it may fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agents.providers.chat_model import (
    EndpointAuthenticationError,
    EndpointError,
    EndpointRequestError,
    EndpointTimeoutError,
    EndpointUnavailableError,
    EndpointUnreachableError,
)
from agents.providers.endpoints import test_endpoint as check_endpoint
from agents.providers.settings import BaseURLError, ModelSettings
from tests.fakes.endpoint import Answer, Endpoint, document, failure, never

SettingsOf = Callable[..., ModelSettings]


@pytest.fixture
def settings_for(endpoint: Endpoint) -> SettingsOf:
    def make(**fields: Any) -> ModelSettings:
        return ModelSettings(**{"base_url": endpoint.base_url, "model": "", "api_key": "k"} | fields)

    return make


async def test_the_models_are_listed_with_the_effective_url(endpoint: Endpoint, settings_for: SettingsOf) -> None:
    endpoint.models = ["b", "a"]
    report = await check_endpoint(settings_for(base_url=f" http://127.0.0.1:{endpoint.port}/ "))
    assert (report.effective_url, report.models, report.error) == (endpoint.base_url, ["a", "b"], None)
    assert report.duration_ms >= 0
    (request,) = endpoint.listings
    assert (request.method, request.path) == ("GET", "/v1/models")
    assert request.headers["authorization"] == "Bearer k"


@pytest.mark.parametrize(
    ("listing", "models"),
    [
        ([{"id": "a"}], ["a"]),
        ({"models": [{"name": "a"}]}, ["a"]),
        ({"models": [{"model": "a"}]}, ["a"]),
        (["a"], ["a"]),
        ({"data": None}, []),
        ({"data": [{"id": "a"}, {"id": "a"}, {"id": None}, None, 7, {}]}, ["a"]),
        ({"data": [{"id": "a\x00"}]}, ["a\ufffd"]),
    ],
)
async def test_listings_of_other_shapes_are_understood(
    endpoint: Endpoint, settings_for: SettingsOf, listing: Any, models: list[str]
) -> None:
    endpoint.listing = document(listing)
    assert (await check_endpoint(settings_for())).models == models


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (failure(401, "Incorrect API key provided: sk-SECRET123456"), EndpointAuthenticationError),
        (failure(404, "no such page"), EndpointRequestError),
        (failure(500, "broken"), EndpointUnavailableError),
        (failure(302, location="http://127.0.0.1:9/"), EndpointRequestError),
        (document("<html></html>"), EndpointUnavailableError),
        (document({"object": "list"}), EndpointUnavailableError),
        (document("x" * 2**23), EndpointUnavailableError),
        (Answer(['{"data": ['], "reset"), EndpointUnavailableError),
        (never(), EndpointTimeoutError),
        (Answer(['{"data": [', asyncio.Event()]), EndpointTimeoutError),
    ],
)
async def test_every_failure_is_reported_and_none_is_raised(
    endpoint: Endpoint, settings_for: SettingsOf, answer: Answer, kind: type[EndpointError]
) -> None:
    endpoint.listing = answer
    short = {"first_token_timeout": 0.2} if kind is EndpointTimeoutError else {}  # the others may take their time
    report = await check_endpoint(settings_for(**short))
    assert isinstance(report.error, kind)
    assert report.models == []
    assert "SECRET" not in f"{report.error} {report.error.detail} {report.error.public_message}"


async def test_an_endpoint_that_is_down_is_reported(endpoint: Endpoint, settings_for: SettingsOf) -> None:
    await endpoint.stop()
    assert isinstance((await check_endpoint(settings_for())).error, EndpointUnreachableError)


async def test_a_base_url_that_is_none_is_said_to_be_so(settings_for: SettingsOf) -> None:
    with pytest.raises(BaseURLError):
        await check_endpoint(settings_for(base_url="api.example.org"))
