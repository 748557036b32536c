from chatui.text import clean, clean_json, shorten


def test_nul_and_lone_surrogates_become_replacement_characters() -> None:
    assert clean("ab\x00cd") == "ab\ufffdcd"
    assert clean("hi \ud83d there") == "hi \ufffd there"


def test_a_surrogate_pair_is_joined_and_emoji_and_chinese_stay() -> None:
    assert clean("\ud83c\udf78 bar") == "\U0001f378 bar"
    assert clean("🎉 北京") == "🎉 北京"


def test_json_is_cleaned_in_keys_values_and_lists() -> None:
    assert clean_json({"a\x00": ["b\x00", {"c": 1}]}) == {"a\ufffd": ["b\ufffd", {"c": 1}]}


def test_shortening_collapses_whitespace_and_says_that_it_cut() -> None:
    assert shorten("  one\n two ", 60) == "one two"
    assert shorten("x" * 61, 60) == "x" * 59 + "…"


def test_shortening_never_splits_a_family_or_a_flag() -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    assert shorten("a" * 57 + family + "b", 60) == "a" * 57 + "…"
    assert shorten("\U0001f1e9\U0001f1ea" * 40, 4) == "\U0001f1e9\U0001f1ea…"
