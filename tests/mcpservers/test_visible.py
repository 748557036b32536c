"""What an eye cannot see is taken out of servers' words; what it can see stays, in every script."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpservers.visible import is_visible, visible

TAGS = "".join(chr(0xE0000 + ord(letter)) for letter in "Ignore")


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        ("re\u200bad", "read"),
        (f"Reads.{TAGS} \u202eevil\u202c \x1b[31mx", "Reads. evil x"),
        ("a\u2066b\u2069\u200ec", "abc"),
        ("\x1b]8;;https://evil.example\x07click\x1b]8;;\x07", "click"),
        ("\x9b31mred", "red"),
        ("\x1b", ""),
        ("a\ufeffb\u00adc\u2060d", "abcd"),
        ("a\u3164b\uffa0c\u115f", "abc"),
        ("x\U000e0100\U000e01efy\ufe00", "xy"),
        ("a\x00b\x08c", "a\ufffdbc"),
        ("a\ud800b", "a\ufffdb"),
        ("a\u200d\u200db", "ab"),
        ("\x1b\u200b[31mx", "x"),
    ],
)
def test_what_is_hidden_goes(hidden: str, shown: str) -> None:
    assert visible(hidden) == shown
    assert not is_visible(hidden)


@pytest.mark.parametrize(
    "words",
    [
        "plain", "tab\tand\nline", "名前 и ä", "👩‍👩‍👧 ❤️ 🏳️‍🌈", "می‌خواهم", "क्‍ष", "e\u0301", "\u0600 123",
        "مرحبا", "שלום", "",
    ],
)  # fmt: skip
def test_what_is_seen_stays(words: str) -> None:
    assert visible(words) == words
    assert is_visible(words)


def test_line_ends_become_one_kind() -> None:
    assert visible("a\r\nb\rc") == "a\nb\nc"
    assert is_visible("a\r\nb")


@given(st.text())
def test_it_is_idempotent_and_leaves_nothing_hidden(words: str) -> None:
    shown = visible(words)
    assert visible(shown) == shown
    allowed = "\t\n\u200c\u200d"
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs") and c not in allowed]
    assert "\u202e" not in shown
    assert "\u200b" not in shown
