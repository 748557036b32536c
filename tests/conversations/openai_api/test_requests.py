"""Requests are understood as OpenAI's reference describes them, and refused by name where they cannot be met."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

from chatui.errors import InvalidRequestError
from conversations.openai_api.requests import (
    EARLIER_IMAGE,
    IGNORED,
    UNSUPPORTED,
    CompletionRequest,
    InlineImage,
    ParameterError,
    understand,
)

USER = {"role": "user", "content": "Hi"}


def understood(*messages: dict[str, Any], **parameters: Any) -> Any:
    return understand({"model": "helper", "messages": list(messages), **parameters})


def image_part(data: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(data).decode()}}


def test_a_plain_question() -> None:
    question = understood(USER)
    assert (question.model, question.content, question.earlier, question.system) == ("helper", ["Hi"], [], "")
    assert not question.stream
    assert question.parameters == {}


def test_instructions_are_gathered_in_order_wherever_they_stand() -> None:
    question = understood(
        {"role": "system", "content": "A"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "developer", "content": [{"type": "text", "text": "B"}]},
        USER,
    )
    assert question.system == "A\n\nB"
    assert question.earlier == [("user", "one"), ("assistant", "two")]


def test_text_parts_and_images_of_the_question_keep_their_order() -> None:
    question = understood({"role": "user", "content": [{"type": "text", "text": "See:"}, image_part(b"png")]})
    assert question.content == ["See:", InlineImage(b"png")]


def test_an_image_of_an_earlier_message_is_mentioned() -> None:
    earlier = {"role": "user", "content": [image_part(b"png"), {"type": "text", "text": "What is it?"}]}
    question = understood(earlier, {"role": "assistant", "content": "A cat."}, USER)
    assert question.earlier[0] == ("user", f"{EARLIER_IMAGE}\nWhat is it?")


def test_empty_earlier_messages_are_left_out() -> None:
    question = understood(USER, {"role": "assistant", "content": None}, {"role": "assistant", "content": " "}, USER)
    assert question.earlier == [("user", "Hi")]


def test_the_models_parameters_go_along() -> None:
    question = understood(USER, temperature=0.5, top_p=0.9, max_tokens=10, reasoning_effort="low", stream=True)
    assert question.parameters == {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 10,
        "reasoning_effort": "low",
    }
    assert understood(USER, max_tokens=10, max_completion_tokens=20).parameters == {"max_output_tokens": 20}


def test_usage_in_a_stream_is_on_request() -> None:
    assert understood(USER, stream=True, stream_options={"include_usage": True}).include_usage
    assert not understood(USER, stream=True, stream_options=None).include_usage


@pytest.mark.parametrize(
    "parameters",
    [
        {"user": "someone", "seed": 7, "metadata": {"a": "b"}, "store": True, "service_tier": "auto"},
        {"tools": [], "tool_choice": "auto", "stop": None, "n": 1, "response_format": {"type": "text"}},
        {"presence_penalty": 0.1, "frequency_penalty": 0, "logit_bias": {}, "logprobs": False, "modalities": ["text"]},
        {"a_parameter_of_next_year": {"x": 1}},
    ],
)
def test_what_changes_nothing_here_is_let_through(parameters: dict[str, Any]) -> None:
    assert understood(USER, **parameters).content == ["Hi"]


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"n": 2}, "n"),
        ({"stop": ["\n"]}, "stop"),
        ({"logprobs": True}, "logprobs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"function_call": {"name": "f"}}, "function_call"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"moderation": {"model": "m"}}, "moderation"),
    ],
)
def test_what_cannot_be_met_is_refused_by_name(parameters: dict[str, Any], param: str) -> None:
    with pytest.raises(ParameterError) as refused:
        understood(USER, **parameters)
    assert refused.value.param == param


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([USER, {"role": "assistant", "content": "Hello"}], "the last message is the user's"),
        ([{"role": "system", "content": "x"}], "the last message is the user's"),
        ([{"role": "user", "content": ""}], "messages.0: the message is empty"),
        ([{"role": "user", "content": []}], "messages.0: the message is empty"),
        ([{"role": "user"}], "messages.0: the message is empty"),
        ([USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, USER], "messages.1: The agent's own"),
        ([USER, {"role": "assistant", "audio": {"id": "a"}}, USER], "messages.1.audio: only text"),
        ([USER, {"role": "tool", "tool_call_id": "1", "content": "x"}, USER], "messages.1: The agent's own"),
        ([{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}], "'input_audio'"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}]}],
            "only images inside the request",
        ),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,!"}}]}],
            "not valid base64",
        ),
    ],
)
def test_messages_that_cannot_be_sent_are_named(messages: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(ParameterError) as refused:
        understood(*messages)
    assert words in refused.value.public_message
    assert str(refused.value.param).startswith("messages")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "model"),
        ({"model": "helper"}, "messages"),
        ({"model": "helper", "messages": []}, "messages"),
        ({"model": "helper", "messages": "Hi"}, "messages"),
        ({"model": "helper", "messages": [USER, "Hi"]}, "messages.1"),
        ({"model": "helper", "messages": [{"role": "wizard", "content": "x"}]}, "messages.0.role"),
        ({"model": "helper", "messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        (
            {"model": "helper", "messages": [USER, {"role": "user", "content": [{"text": 1}]}]},
            "messages.1.content.0.type",
        ),
        ({"model": "helper", "messages": [USER], "temperature": 3}, "temperature"),
        ({"model": "helper", "messages": [USER], "max_tokens": 0}, "max_tokens"),
        ({"model": "helper", "messages": [USER], "stream_options": 1}, "stream_options"),
        (
            {"model": "helper", "messages": [USER], "stream_options": {"include_usage": 7}},
            "stream_options.include_usage",
        ),
    ],
)
def test_a_body_that_is_no_request_names_the_field(body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        understand(body)
    assert refused.value.param == param
    assert refused.value.public_message.startswith(f"{param}: ")


def test_every_parameter_of_the_openai_package_is_honoured_refused_or_known_to_change_nothing() -> None:
    known = {*CompletionRequest.model_fields, *UNSUPPORTED, *IGNORED}
    assert set(CompletionCreateParamsStreaming.__annotations__) - known == set()
    documented = (Path(__file__).parents[3] / "docs/reference/openai-api.md").read_text()
    assert [name for name in sorted(known) if f"`{name}`" not in documented] == []


def test_a_refusal_of_an_earlier_answer_is_what_was_said() -> None:
    refusal = {"role": "assistant", "content": None, "refusal": "I will not."}
    assert understood(USER, refusal, USER).earlier == [("user", "Hi"), ("assistant", "I will not.")]


def test_the_choice_of_no_tool_leaves_the_agents_tools_out() -> None:
    assert understood(USER, tool_choice="auto").tools
    assert not understood(USER, tool_choice="none").tools
    assert not understood(USER, function_call="none").tools
