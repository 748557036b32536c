"""Base URLs as they are meant, and settings as the rows say."""

from __future__ import annotations

from decimal import Decimal

import pytest

from accounts.models import Organization
from agents.models import Agent, ModelEndpoint, ModelProfile
from agents.providers.openai_chat import OpenAIChatModel
from agents.providers.settings import BaseURLError, ModelSettings, normalise_base_url, settings_of
from tests.agents.providers.conftest import ask
from tests.agents.providers.request_shape import check_request
from tests.fakes.endpoint import Endpoint, calls, text


@pytest.mark.parametrize(
    ("given", "effective"),
    [
        ("https://api.openai.com", "https://api.openai.com/v1"),
        ("https://api.openai.com/", "https://api.openai.com/v1"),
        ("https://api.openai.com/v1", "https://api.openai.com/v1"),
        ("https://api.openai.com/v1///", "https://api.openai.com/v1"),
        (" http://localhost:11434 ", "http://localhost:11434/v1"),
        ("https://openrouter.ai/api/v1/", "https://openrouter.ai/api/v1"),
        ("https://example.org/proxy", "https://example.org/proxy"),
        (
            "https://generativelanguage.googleapis.com/v1beta/openai/",
            "https://generativelanguage.googleapis.com/v1beta/openai",
        ),
        ("https://x.openai.azure.com/openai?api-version=1", "https://x.openai.azure.com/openai?api-version=1"),
        ("http://[::1]:8000", "http://[::1]:8000/v1"),
    ],
)
def test_a_base_url_is_normalised_and_never_guessed(given: str, effective: str) -> None:
    assert normalise_base_url(given) == effective
    assert normalise_base_url(effective) == effective


@pytest.mark.parametrize(
    "given",
    [
        "",
        "api.openai.com/v1",
        "ftp://x/v1",
        "file:///etc/passwd",
        "https://",
        "http://x:99999",
        "http://[::1",
        "http://a b/v1",
    ],
)
def test_what_is_no_base_url_is_refused(given: str) -> None:
    with pytest.raises(BaseURLError):
        normalise_base_url(given)


@pytest.fixture
def profile(organization: Organization) -> ModelProfile:
    endpoint = ModelEndpoint.objects.create(
        organization=organization,
        slug="main",
        base_url="https://api.example.org",
        api_key="the-key",
        headers={"X-Title": "chatui"},
        dialect="gemini",
        retries=5,
        max_concurrency=7,
    )
    return ModelProfile.objects.create(
        organization=organization,
        endpoint=endpoint,
        slug="m",
        name="m-1",
        title="Model One",
        images=True,
        max_tokens_parameter="max_completion_tokens",
        input_price=Decimal("0.25"),
    )


def test_settings_are_what_the_rows_say(profile: ModelProfile, organization: Organization) -> None:
    agent = Agent(organization=organization, slug="a", name="A", model=profile, temperature=0.0, max_output_tokens=9)
    found = settings_of(profile, agent)
    assert (found.base_url, found.model, found.title) == ("https://api.example.org/v1", "m-1", "Model One")
    assert (found.api_key, found.headers, found.dialect) == ("the-key", {"X-Title": "chatui"}, "gemini")
    assert (found.retries, found.max_concurrency, found.endpoint_key) == (5, 7, str(profile.endpoint.pk))
    assert (found.temperature, found.top_p, found.max_output_tokens) == (0.0, None, 9)
    assert (found.max_tokens_parameter, found.input_price) == ("max_completion_tokens", Decimal("0.25"))
    assert found.capabilities.images


def test_the_dialect_of_the_profile_is_stronger(profile: ModelProfile) -> None:
    profile.dialect = "mistral"
    assert settings_of(profile).dialect == "mistral"


async def test_a_model_of_which_nothing_but_the_name_is_known_is_called(endpoint: Endpoint) -> None:
    name = "nobody/ever-heard-of:1b"
    unknown = ModelProfile(endpoint=ModelEndpoint(base_url=endpoint.base_url), name=name)
    endpoint.script(calls(("get_weather", {"city": "Oslo"})), text("Rain."))
    model = OpenAIChatModel(settings_of(unknown))
    assert (await ask(model)).calls == [("get_weather", '{"city": "Oslo"}')]
    assert (await ask(model)).text == "Rain."
    for request in endpoint.requests:
        assert (request.body["model"], request.tools) == (name, ["get_weather", "add_numbers"])
        check_request(request.body)


def test_settings_never_show_their_secrets() -> None:
    shown = repr(ModelSettings("https://x/v1", "m", api_key="the-key", headers={"X": "the-header"}))
    assert "the-key" not in shown
    assert "the-header" not in shown
