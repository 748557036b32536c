"""Usage where an endpoint does not tell it."""

from __future__ import annotations

from agents.parts import Completion, ImageContent, ModelMessage, TextContent, ToolRequest, text_message
from agents.providers.usage import estimate_tokens, estimate_usage


def test_about_four_letters_are_a_token() -> None:
    assert estimate_tokens([]) == estimate_tokens([""]) == 0
    assert estimate_tokens(["a"]) == 1
    assert estimate_tokens(["four", "char"]) == 2
    assert estimate_tokens(["北京北京"]) == 3
    assert estimate_tokens(["\ud83d"]) == 1


def test_an_estimate_counts_all_that_went_and_came_and_says_that_it_is_one() -> None:
    request = ToolRequest("c", "name", '{"a": 123}')
    image = ModelMessage("user", (TextContent("four"), ImageContent(b"", "image/png")))
    sent = [text_message("system", "x" * 400), image, ModelMessage("assistant", (), (request,))]
    usage = estimate_usage(sent, Completion("y" * 40, "z" * 40, (request,), "t" * 4))
    assert usage.estimated
    assert usage.input_tokens == 100 + 1 + 1000 + 4 + 3 * 4
    assert usage.output_tokens == (40 + 40 + 4 + 4 + 10 + 3) // 4
