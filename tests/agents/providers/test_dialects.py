"""Any history becomes a request that a strict endpoint takes; parameters are sent where they are wanted."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.parts import ImageContent, ModelMessage, TextContent, ToolRequest, ToolSpec, text_message
from agents.providers.dialects import request_body
from agents.providers.history_shape import BRIDGE, GO_ON, MISSING_RESULT, NO_OUTPUT
from agents.providers.settings import ModelSettings
from tests.agents.providers.conftest import TOOLS, Reply, ask
from tests.agents.providers.request_shape import check_request
from tests.fakes.endpoint import Endpoint, calls, text

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 16
JPEG = b"\xff\xd8\xff\xe0" + b"\x00" * 16


def model_settings(**fields: Any) -> ModelSettings:
    return ModelSettings(**{"base_url": "https://example.org/v1", "model": "m"} | fields)


def body_of(*messages: ModelMessage, tools: Any = (), tool_choice: Any = "auto", **fields: Any) -> dict[str, Any]:
    given = model_settings(**fields)
    body = request_body(given, messages, tools, tool_choice=tool_choice)
    strict = given.alternate_roles or given.dialect == "mistral"
    check_request(body, alternating=strict, extras=given.dialect != "mistral")
    return body


def sent(*messages: ModelMessage, **fields: Any) -> list[dict[str, Any]]:
    return list(body_of(*messages, **fields)["messages"])


def user(words: str) -> ModelMessage:
    return text_message("user", words)


def assistant(words: str = "", *requests: ToolRequest, reasoning: str = "") -> ModelMessage:
    return ModelMessage("assistant", text_message("assistant", words).content, requests, reasoning=reasoning)


def made(call_id: str, name: str = "t", arguments: str = "{}", **extra: Any) -> ToolRequest:
    return ToolRequest(call_id, name, arguments, extra)


def result(call_id: str, words: str, *images: ImageContent) -> ModelMessage:
    return ModelMessage("tool", (TextContent(words), *images), tool_call_id=call_id)


def roles(messages: list[dict[str, Any]]) -> list[str]:
    return [message["role"] for message in messages]


# --- History ------------------------------------------------------------------------------------------------------


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    messages = sent(user("go"), assistant("", made("c1")), user("hi again"))
    assert roles(messages) == ["user", "assistant", "tool", "user"]
    assert messages[2] == {"role": "tool", "tool_call_id": "c1", "content": MISSING_RESULT}


def test_a_result_without_its_call_is_left_out() -> None:
    assert roles(sent(user("run"), result("c1", "out"), user("continue"))) == ["user", "user"]
    assert roles(sent(result("c1", "1"), result("c2", "2"), assistant("done"), user("B"))) == [
        "user",
        "assistant",
        "user",
    ]


def test_a_result_that_comes_late_still_answers_its_call() -> None:
    messages = sent(
        user("q"), assistant("", made("c1")), user("and?"), result("c1", "late"), assistant("ok"), user("n")
    )
    assert roles(messages) == ["user", "assistant", "tool", "user", "assistant", "user"]
    assert messages[2]["content"] == "late"


def test_two_results_for_one_call_are_one() -> None:
    messages = sent(user("q"), assistant("", made("c1")), result("c1", "one"), result("c1", "two"))
    assert [message["content"] for message in messages if message["role"] == "tool"] == ["one"]


def test_content_beside_calls_is_an_empty_string_and_there_are_no_empty_calls() -> None:
    messages = sent(user("q"), assistant("", made("c1")), result("c1", "r"))
    assert messages[1]["content"] == ""
    assert "tool_calls" not in sent(user("q"), assistant("x"), user("y"))[1]


@pytest.mark.parametrize(
    "arguments", ['{"value": ', "", "[1]", "null", "not json", '{"x": NaN}', "\x00", '{"a":1}{"b":2}']
)
def test_arguments_are_always_an_object(arguments: str) -> None:
    messages = sent(user("q"), assistant("", made("c1", "t", arguments)), result("c1", "error"), user("continue"))
    assert messages[1]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_arguments_are_written_anew() -> None:
    call = made("c1", "t", '```json\n{"q": "line1\nline2", "x": "\\ud83d"}\n```')
    messages = sent(user("q"), assistant("", call), result("c1", "r"))
    written = messages[1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(written) == {"q": "line1\nline2", "x": "\ufffd"}


def test_neighbours_are_merged_only_where_roles_must_alternate() -> None:
    assert sent(user("first"), user("second"), alternate_roles=True) == [{"role": "user", "content": "first\n\nsecond"}]
    assert roles(sent(user("first"), user("second"))) == ["user", "user"]
    messages = sent(
        user("q"), assistant("a"), assistant("b", made("c")), result("c", "r"), user("n"), alternate_roles=True
    )
    assert roles(messages) == ["user", "assistant", "tool", "assistant", "user"]
    assert messages[1]["content"] == "a\n\nb"
    assert messages[3]["content"] == BRIDGE


def test_reasoning_is_returned_only_where_the_profile_says_so() -> None:
    history = [user("q"), assistant("x"), assistant("y", reasoning="z"), user("n")]
    assert "reasoning_content" not in json.dumps(sent(*history))
    messages = sent(*history, return_reasoning=True)
    assert "reasoning_content" not in messages[1]
    assert messages[2]["reasoning_content"] == "z"


def test_results_go_back_in_call_order() -> None:
    both = assistant("", made("c1", "slow"), made("c2", "fast"))
    messages = sent(user("q"), both, result("c2", "F"), result("c1", "S"))
    assert [(message["tool_call_id"], message["content"]) for message in messages[2:]] == [("c1", "S"), ("c2", "F")]


def test_mistral_gets_ids_of_its_own_form_always_the_same() -> None:
    history = [user("q"), assistant("", made("call_Zq4TestTestTestTest0001"), made("abcdefghi")), user("n")]
    messages = sent(*history, dialect="mistral")
    ids = [call["id"] for call in messages[1]["tool_calls"]]
    assert all(re.fullmatch(r"[a-zA-Z0-9]{9}", call_id) for call_id in ids)
    assert ids[1] == "abcdefghi"
    assert [message["tool_call_id"] for message in messages[2:4]] == ids
    assert sent(*history, dialect="mistral") == messages
    assert sent(*history, user("more"), dialect="mistral")[1] == messages[1]


def test_ids_that_repeat_are_paired_by_position() -> None:
    messages = sent(
        user("q"),
        assistant("", made("call_0")),
        result("call_0", "one"),
        assistant("ok"),
        user("q2"),
        assistant("", made("call_0")),
        result("call_0", "two"),
    )
    results = [message for message in messages if message["role"] == "tool"]
    assert [message["content"] for message in results] == ["one", "two"]
    assert results[0]["tool_call_id"] != results[1]["tool_call_id"]
    same = sent(user("q"), assistant("", made("c"), made("c")), result("c", "one"), result("c", "two"))
    assert [message["content"] for message in same[2:]] == ["one", "two"]


def test_a_later_result_of_the_same_id_does_not_answer_an_earlier_call() -> None:
    history = [
        user("q"),
        assistant("", made("call_0")),
        user("n"),
        assistant("", made("call_0")),
        result("call_0", "two"),
    ]
    assert [message["content"] for message in sent(*history) if message["role"] == "tool"] == [MISSING_RESULT, "two"]


@pytest.mark.parametrize("call_id", ["", "x" * 200, "call:1", "führe", "\ud83d", "functions.get:0"])
def test_ids_that_an_endpoint_refuses_are_replaced(call_id: str) -> None:
    messages = sent(user("q"), assistant("", made(call_id)), result(call_id, "r"))
    assert messages[2]["content"] == "r"


@pytest.mark.parametrize("name", ["", "x" * 100, "get weather", "tools.get", "取得"])
def test_names_that_an_endpoint_refuses_are_replaced(name: str) -> None:
    assert sent(user("q"), assistant("", made("c", name)), result("c", "no such tool"))


def test_extra_goes_back_with_its_call_and_nothing_else_does() -> None:
    signature = {"google": {"thought_signature": "c2ln"}}
    history = [user("q"), assistant("", made("f1", extra_content=signature, index=3, other=None), made("f2"))]
    tool_calls = sent(*history)[1]["tool_calls"]
    assert tool_calls[0]["extra_content"] == signature
    assert (
        set(tool_calls[1]) == set(sent(*history, dialect="mistral")[1]["tool_calls"][0]) == {"id", "type", "function"}
    )


def test_empty_messages_are_left_out() -> None:
    messages = sent(
        user("q"), assistant(""), assistant(" \n"), assistant("", reasoning="only thought"), user(""), user("n")
    )
    assert messages == [{"role": "user", "content": "q"}, {"role": "user", "content": "n"}]


def test_an_empty_result_says_so() -> None:
    messages = sent(user("q"), assistant("", made("c")), ModelMessage("tool", (), tool_call_id="c"))
    assert messages[2]["content"] == NO_OUTPUT


@pytest.mark.parametrize("history", [[], [assistant("hi")], [text_message("system", "S")], [user("")]])
def test_a_request_always_begins_with_a_user_message(history: list[ModelMessage]) -> None:
    assert sent(*history)


def test_an_answer_at_the_end_is_gone_on_with_only_by_models_that_can() -> None:
    history = [user("q"), assistant("The answer is")]
    assert sent(*history)[-1] == {"role": "user", "content": GO_ON}
    assert sent(*history, prefill=True)[-1] == {"role": "assistant", "content": "The answer is"}
    assert sent(*history, prefill=True, dialect="mistral")[-1]["prefix"] is True


def test_system_messages_become_one_and_take_the_role_of_the_profile() -> None:
    history = [
        text_message("system", "You help."),
        text_message("system", ""),
        user("q"),
        text_message("system", "Be brief."),
    ]
    assert sent(*history)[0] == {"role": "system", "content": "You help.\n\nBe brief."}
    assert sent(*history, system_role="developer")[0]["role"] == "developer"
    assert sent(*history, system_role="user") == [{"role": "user", "content": "You help.\n\nBe brief.\n\nq"}]
    assert roles(sent(text_message("system", " \n"), user("q"))) == ["user"]


def test_surrogates_and_nul_never_reach_the_wire() -> None:
    broken = "a\x00b\ud83d"
    history = [
        text_message("system", broken),
        user(broken + "\ud83c\udf89"),
        assistant(broken, made("c", "t", '{"q": "' + broken + '"}', extra_content={broken: broken}), reasoning=broken),
        result("c", broken),
    ]
    tool = ToolSpec("t", broken, {"type": "object", "description": broken})
    body = body_of(*history, tools=[tool], return_reasoning=True, extra_body={"user": broken})
    assert "\U0001f389" in body["messages"][1]["content"]


# --- Images -------------------------------------------------------------------------------------------------------


def test_images_go_to_models_that_see_and_are_named() -> None:
    message = ModelMessage("user", (TextContent("What is it?"), ImageContent(PNG, "image/png", "image_1")))
    content = sent(message, images=True)[0]["content"]
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert content == [
        {"type": "text", "text": "What is it?"},
        {"type": "text", "text": "image_1:"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    blind = sent(message)[0]["content"]
    assert blind.startswith("What is it?\n[image_1: not shown")


def test_a_wrong_type_is_put_right_and_what_is_no_image_is_withheld() -> None:
    wrong = sent(ModelMessage("user", (ImageContent(JPEG, "image/png"),)), images=True)
    assert wrong[0]["content"][0]["image_url"]["url"].startswith("data:image/jpeg;")
    broken = sent(ModelMessage("user", (ImageContent(b"<svg/>", "image/png", "image_1"),)), images=True)
    assert broken[0]["content"] == "[image_1: not shown: not a readable image]"


def test_images_of_tools_follow_all_results_as_a_user_message() -> None:
    image = ImageContent(PNG, "image/png", "image_1")
    history = [user("q"), assistant("", made("a"), made("b")), result("a", "here", image), result("b", "other")]
    messages = sent(*history, images=True)
    assert roles(messages) == ["user", "assistant", "tool", "tool", "user"]
    assert messages[2]["content"] == "here\n[image_1: see below]"
    assert messages[4]["content"][-1]["type"] == "image_url"
    assert roles(sent(*history)) == ["user", "assistant", "tool", "tool"]
    assert "base64" not in json.dumps(sent(*history))
    assert roles(sent(*history, images=True, dialect="mistral")) == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "user",
    ]


@pytest.mark.parametrize(
    "words", ['{"parameters":{"$ref":"#/$defs/Input"}}', "[1, 2]", "null", "true", '"quoted"', '{"type": "text"}']
)
def test_a_result_is_sent_as_the_text_that_it_is_whatever_it_looks_like(words: str) -> None:
    history = [user("q"), assistant("", made("c1")), result("c1", words), user("and?")]
    for fields in ({}, {"images": True}, {"alternate_roles": True}, {"dialect": "gemini"}, {"dialect": "mistral"}):
        told = [message["content"] for message in sent(*history, **fields) if message["role"] == "tool"]
        assert told == [words]


@pytest.mark.parametrize(
    "words",
    [
        "f{('p q')}",
        '{"reply": "text"}',
        "{user.__class__.__init__.__globals__}",
        "100% %s %(x)s",
        "$HOME ${X}",
        "{{7*7}} {% debug %}",
    ],
)
def test_braces_and_percent_signs_are_text_wherever_they_stand(words: str) -> None:
    tool = ToolSpec("s__t", words, {"type": "object", "properties": {"q": {"type": "string", "description": words}}})
    history = [text_message("system", words), user(words), assistant("", made("c1")), result("c1", words), user("?")]
    body = body_of(*history, tools=[tool])
    assert [body["messages"][place]["content"] for place in (0, 1, 3)] == [words] * 3
    function = body["tools"][0]["function"]
    assert (function["description"], function["parameters"]["properties"]["q"]["description"]) == (words, words)


def test_merged_messages_keep_their_images() -> None:
    image = ModelMessage("user", (ImageContent(PNG, "image/png"),))
    (message,) = sent(user("a"), image, user("b"), images=True, alternate_roles=True)
    assert [part["type"] for part in message["content"]] == ["text", "image_url", "text"]


# --- Parameters ---------------------------------------------------------------------------------------------------


def test_nothing_is_sent_that_was_not_set() -> None:
    assert set(body_of(user("q"))) == {"model", "messages", "stream", "stream_options"}
    assert set(body_of(user("q"), stream_options=False)) == {"model", "messages", "stream"}
    assert body_of(user("q"), stream=False)["stream"] is False
    assert "stream_options" not in body_of(user("q"), stream=False)
    assert "stream_options" not in body_of(user("q"), dialect="mistral")


def test_parameters_have_the_names_of_the_profile() -> None:
    fields = {"temperature": 0.0, "top_p": 0.5, "max_output_tokens": 9, "reasoning_effort": "low"}
    body = body_of(user("q"), **fields, max_tokens_parameter="max_completion_tokens", reasoning=True)
    assert (body["temperature"], body["top_p"], body["max_completion_tokens"]) == (0.0, 0.5, 9)
    assert body["reasoning_effort"] == "low"
    refusing = body_of(user("q"), **fields, temperature_allowed=False)
    assert set(refusing) & {"temperature", "top_p", "reasoning_effort", "max_tokens"} == {"max_tokens"}


def test_tools_are_offered_to_models_that_take_them() -> None:
    body = body_of(user("q"), tools=TOOLS)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["get_weather", "add_numbers"]
    assert body["tool_choice"] == "auto"
    assert "parallel_tool_calls" not in body
    assert body_of(user("q"), tools=TOOLS, parallel_tools=False)["parallel_tool_calls"] is False


def test_a_model_without_tools_gets_none() -> None:
    body = request_body(model_settings(tools=False), [user("q")], TOOLS)
    assert not {"tools", "tool_choice"} & set(body)


def test_the_closing_call_keeps_the_tools_unless_the_profile_drops_them() -> None:
    closing = body_of(user("q"), tools=TOOLS, tool_choice="none")
    assert closing["tool_choice"] == "none"
    assert closing["tools"]
    dropped = body_of(user("q"), tools=TOOLS, tool_choice="none", drop_tools_on_close=True)
    assert not {"tools", "tool_choice"} & set(dropped)


def test_a_long_description_is_cut_only_where_it_is_refused() -> None:
    tool = ToolSpec("t", "x" * 5000, {})
    assert len(body_of(user("q"), tools=[tool])["tools"][0]["function"]["description"]) == 1024
    permissive = body_of(user("q"), tools=[tool], dialect="permissive")["tools"][0]["function"]
    assert len(permissive["description"]) == 5000
    assert permissive["parameters"] == {"type": "object", "properties": {}}
    assert "description" not in body_of(user("q"), tools=[ToolSpec("t", "", {})])["tools"][0]["function"]


@pytest.mark.parametrize(
    ("parameters", "strict"),
    [
        ({"type": "object", "properties": {}, "additionalProperties": False}, True),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "required": ["a"],
                "additionalProperties": False,
            },
            True,
        ),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}, False),
        ({"type": "object", "properties": {}}, False),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "array", "items": {"type": "object", "properties": {}}}},
                "required": ["a"],
                "additionalProperties": False,
            },
            False,
        ),
    ],
)
def test_strict_is_claimed_only_for_schemas_that_are(parameters: dict[str, Any], strict: bool) -> None:
    tool = ToolSpec("t", "", parameters)
    assert ("strict" in body_of(user("q"), tools=[tool], dialect="openai-strict")["tools"][0]["function"]) == strict
    assert "strict" not in body_of(user("q"), tools=[tool])["tools"][0]["function"]


def test_extra_body_adds_and_takes_away_but_never_the_conversation() -> None:
    extra = {"provider": {"order": ["a"]}, "stream_options": None, "messages": [], "stream": False, "model": "other"}
    body = body_of(user("q"), extra_body=extra)
    assert body["provider"] == {"order": ["a"]}
    assert "stream_options" not in body
    assert body["messages"]
    assert (body["stream"], body["model"]) == (True, "m")


async def test_the_body_is_what_the_endpoint_receives(endpoint: Endpoint, model_of: Any) -> None:
    endpoint.script(text("ok"))
    history = [text_message("system", "S"), user("grüß 🦀")]
    await ask(model_of(), history)
    assert endpoint.last.body == request_body(model_of().settings, history, TOOLS)


# --- A profile that does not stream -------------------------------------------------------------------------------


async def test_a_model_that_does_not_stream_gives_the_same_events(
    endpoint: Endpoint, model_of: Any, reply: Reply
) -> None:
    scripts = [text("Hello ", "there", reasoning="hmm"), calls(("get_weather", {"city": "Oslo"}), text="Let me.")]
    for script in scripts:
        endpoint.script(script, script)
        whole, streamed = await ask(model_of(stream=False)), await ask(model_of())
        assert endpoint.requests[-2].body["stream"] is False
        assert (whole.text, whole.reasoning) == (streamed.text, streamed.reasoning)
        assert whole.completion == streamed.completion


# --- Properties ---------------------------------------------------------------------------------------------------

WORDS = st.text(max_size=6) | st.sampled_from(["", " ", "a\x00", "\ud83d", "hello"])
IDS = st.sampled_from(["", "c1", "c2", "call_0", "x" * 50, "a b", "abcdefghi"])
IMAGES = st.builds(ImageContent, st.sampled_from([PNG, JPEG, b"", b"<svg/>"]), st.just("image/png"), WORDS)
CONTENT = st.lists(st.builds(TextContent, WORDS) | IMAGES, max_size=3).map(tuple)
ARGUMENTS = st.sampled_from(["{}", "", '{"a": 1}', '{"a":', "null", '"{}"']) | WORDS
EXTRA = st.sampled_from([{}, {"extra_content": {"a": "\x00"}}, {"index": 1}])
REQUESTS = st.lists(st.builds(ToolRequest, IDS, WORDS, ARGUMENTS, EXTRA, st.booleans()), max_size=3).map(tuple)
MESSAGES = st.lists(
    st.builds(ModelMessage, st.sampled_from(["system", "user", "assistant"]), CONTENT)
    | st.builds(ModelMessage, st.just("assistant"), CONTENT, REQUESTS, st.just(""), WORDS)
    | st.builds(ModelMessage, st.just("tool"), CONTENT, st.just(()), IDS),
    max_size=8,
)
SETTINGS = st.builds(
    model_settings,
    dialect=st.sampled_from(["openai", "mistral", "gemini", "permissive"]),
    images=st.booleans(),
    alternate_roles=st.booleans(),
    return_reasoning=st.booleans(),
    prefill=st.booleans(),
    system_role=st.sampled_from(["system", "developer", "user"]),
)


@settings(max_examples=300, deadline=None)
@given(MESSAGES, SETTINGS)
def test_every_history_becomes_a_valid_request(messages: list[ModelMessage], given_settings: ModelSettings) -> None:
    body = request_body(given_settings, messages, TOOLS)
    strict = given_settings.alternate_roles or given_settings.dialect == "mistral"
    check_request(body, alternating=strict, extras=given_settings.dialect != "mistral")
    assert body == request_body(given_settings, messages, TOOLS)
