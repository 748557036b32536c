"""Texts that are cut for a model: the note says how to read on, and is understood again."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpservers.cuts import Cut, cut, find_name, read_cut, whole_name

NAME = whole_name("x" * 100_000)


def offset_of(text: str) -> int:
    return int(re.findall(r"offset (\d+)", text)[-1])


def test_the_note_leads_to_the_very_next_character() -> None:
    whole = "".join(chr(0x4E00 + n % 5000) for n in range(100_000))
    told = cut(whole, 50_000, "Cut.", Cut(NAME), "Ask for less.")
    assert len(told) == 50_000
    assert told[: offset_of(told)] == whole[: offset_of(told)]
    assert told[offset_of(told) :].startswith(f"\n[Cut. read_result with result “{NAME}” and offset ")
    assert told.endswith("reads on. Ask for less.]")


@pytest.mark.parametrize("prefix", ["", "Error: ", "(The user changed the arguments.)\n\n"])
def test_what_is_cut_again_leads_into_the_same_whole(prefix: str) -> None:
    whole = "".join(map(str, range(40_000)))
    told = prefix + cut(whole, 50_000, "Cut.", Cut(NAME))
    again = cut(told, 8_000, "Cut again.", read_cut(told))
    assert read_cut(again) == Cut(NAME, len(prefix))
    offset = offset_of(again)
    assert (prefix + whole)[: offset + len(prefix)] + "\n[" == again[: offset + len(prefix) + 2]


def test_without_a_whole_nothing_is_said_of_reading_on() -> None:
    assert cut("x" * 100, 50, "Cut.", None) == "x" * 43 + "\n[Cut.]"
    assert read_cut(cut("x" * 100, 50, "Cut.", None)) is None


@pytest.mark.parametrize(
    "text", ["", "x", f"see “{NAME}”", f"[read_result with result “{NAME}” and offset 5 reads on.] and more"]
)
def test_a_text_without_a_note_at_its_end_is_whole(text: str) -> None:
    assert read_cut(text) is None


def test_a_name_is_made_of_the_content_and_storable_as_a_file() -> None:
    assert re.fullmatch(r"result-[0-9a-f]{10}\.txt", NAME)
    assert whole_name("a") != whole_name("b")
    assert whole_name("\ud800")


@pytest.mark.parametrize("written", [NAME, f"“{NAME}”", f"./{NAME}", NAME.removesuffix(".txt"), f"file {NAME}!"])
def test_a_name_is_found_however_a_model_writes_it(written: str) -> None:
    assert find_name(written) == NAME
    assert find_name("result.txt") == ""


@given(st.text(max_size=300), st.integers(0, 400))
def test_no_cut_is_longer_than_its_limit(text: str, limit: int) -> None:
    assert len(cut(text, limit, "Cut.", Cut(NAME))) <= limit
