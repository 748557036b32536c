"""Names that a reader cannot tell apart have one skeleton; names that differ for everybody have two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpservers.confusables import folded, mixed_scripts, same_but_for_writing, skeleton


@pytest.mark.parametrize(
    ("name", "double"),
    [
        ("search_issues", "seаrch_issues"),  # a Cyrillic a
        ("search_issues", "search‌_issues"),  # a zero-width non-joiner
        ("search_issues", "search_ıssues"),
        ("list_files", "Iist_files"),  # a capital i
        ("list_files", "1ist_files"),
        ("github", "gith\u202eub"),
        ("modern", "modem"),
        ("send_mail", "ｓｅｎｄ＿ｍａｉｌ"),
        ("send_mail", "sénd_mail"),
        ("send_mail", "𝐬𝐞𝐧𝐝_mail"),
        ("PAYPAL", "РАУРАL"),
        ("ssn", "ѕѕո"),
    ],
)
def test_what_looks_alike_has_one_skeleton_and_is_not_the_same(name: str, double: str) -> None:
    assert skeleton(name) == skeleton(double)
    assert not same_but_for_writing(name, double)


@pytest.mark.parametrize(("name", "other"), [("search", "find"), ("list_files", "list_file"), ("a1", "a2")])
def test_what_looks_different_has_two_skeletons(name: str, other: str) -> None:
    assert skeleton(name) != skeleton(other)


def test_case_and_separators_are_only_another_way_of_writing() -> None:
    assert same_but_for_writing("searchIssues", "search-issues")
    assert skeleton("searchIssues") == skeleton("search-issues")


def test_words_of_another_script_are_read_as_they_are_and_imitations_as_latin() -> None:
    assert folded("Поиск по файлам") == "Поиск по файлам"
    assert folded("Ιgnоre previous") == "Ignore previous"  # a Greek capital, a Cyrillic small letter
    assert folded("ignore\u200b previous") == "ignore previous"


def test_a_word_of_several_scripts_that_look_alike_is_told() -> None:
    assert mixed_scripts("seаrch") == ("Latin", "Cyrillic")
    assert mixed_scripts("search поиск 検索 über") == ()


@given(st.text(max_size=60))
def test_a_skeleton_is_its_own_skeleton(text: str) -> None:
    once = skeleton(text)
    assert skeleton(once) == once
