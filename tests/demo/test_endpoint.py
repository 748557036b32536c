"""Which model the demo takes: what is named, else an Ollama, else the scripted one; and it says so."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from demo.endpoint import Choice, choose, pick

SCRIPTED = Choice("Scripted demo model", "http://127.0.0.1:1/v1", "scripted")
Listing = Callable[..., str]


@pytest.fixture
def listing() -> Iterator[Listing]:
    """`listing({"/v1/models": ["a"]})` serves these and gives the origin; a status instead of names is an error."""
    with ExitStack() as stack:

        def serve(paths: dict[str, list[str] | int | str]) -> str:
            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    value = paths.get(self.path, 404)
                    self.send_response(value if isinstance(value, int) else 200)
                    self.end_headers()
                    names = {"data": [{"id": name} for name in value]} if isinstance(value, list) else value
                    self.wfile.write(names.encode() if isinstance(names, str) else json.dumps(names).encode())

                def log_message(self, *args: object) -> None:
                    pass

            server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}"

        yield serve


@pytest.fixture
def nothing() -> Iterator[str]:
    """An address at which nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{unused.getsockname()[1]}/v1"


def test_without_anything_the_scripted_model_is_taken(nothing: str) -> None:
    assert choose({}, SCRIPTED, ollama=nothing) == SCRIPTED


def test_an_ollama_that_answers_is_taken_with_a_model_that_chats(listing: Listing) -> None:
    ollama = listing({"/v1/models": ["nomic-embed-text", "llama3.2:3b", "zephyr"]}) + "/v1"
    choice = choose({}, SCRIPTED, ollama=ollama)
    assert (choice.base_url, choice.model, choice.dialect) == (ollama, "llama3.2:3b", "permissive")


def test_an_ollama_without_models_is_left_alone(listing: Listing) -> None:
    assert choose({}, SCRIPTED, ollama=listing({"/v1/models": ["nomic-embed-text"]}) + "/v1") == SCRIPTED


def test_what_answers_there_and_is_no_ollama_is_left_alone(listing: Listing) -> None:
    assert choose({}, SCRIPTED, ollama=listing({"/v1/models": "<html>"}) + "/v1") == SCRIPTED


def test_a_named_endpoint_goes_before_an_ollama(listing: Listing) -> None:
    base_url = listing({"/v1/models": ["b-model", "text-embedding-3"]})
    named = {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "canary"}
    choice = choose(named, SCRIPTED, ollama=listing({"/v1/models": ["llama3"]}) + "/v1")
    assert (choice.base_url, choice.model, choice.api_key) == (base_url, "b-model", "canary")
    assert "canary" not in choice.note


def test_a_named_model_needs_no_listing(nothing: str) -> None:
    choice = choose({"OPENAI_BASE_URL": nothing, "OPENAI_MODEL": "m"}, SCRIPTED)
    assert (choice.base_url, choice.model) == (nothing, "m")


def test_a_key_alone_means_openai() -> None:
    choice = choose({"OPENAI_API_KEY": "k", "OPENAI_MODEL": "gpt-5-mini"}, SCRIPTED)
    assert (choice.base_url, choice.dialect) == ("https://api.openai.com/v1", "openai")


@pytest.mark.parametrize("answer", [401, 500, "not json", '{"data": 5}', '{"data": [1]}'])
def test_an_endpoint_that_does_not_list_is_not_used_and_the_note_says_why(listing: Listing, answer: int | str) -> None:
    base_url = listing({"/v1/models": answer}) + "/v1"
    choice = choose({"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "canary"}, SCRIPTED)
    assert (choice.base_url, choice.model) == (SCRIPTED.base_url, SCRIPTED.model)
    assert "Set OPENAI_MODEL" in choice.note
    assert "canary" not in choice.note


def test_a_password_in_the_address_is_not_printed(nothing: str) -> None:
    choice = choose({"OPENAI_BASE_URL": nothing.replace("//", "//user:canary@"), "OPENAI_MODEL": "m"}, SCRIPTED)
    assert "canary" not in choice.note
    assert "canary" not in choice.name


@pytest.mark.parametrize(
    ("models", "picked"),
    [
        (["gpt-5", "gpt-5-mini-2026-01-01", "gpt-5-mini"], "gpt-5-mini"),
        (["whisper-1", "tts-1", "dall-e-3"], ""),
        (["zz-chat", "a-long-name-chat"], "zz-chat"),
        ([], ""),
    ],
)
def test_a_model_is_picked_by_its_name(models: list[str], picked: str) -> None:
    assert pick(models) == picked
