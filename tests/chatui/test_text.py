from chatui.text import clean, clean_json, duration, shorten


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


def test_a_duration_is_told_in_the_unit_that_a_person_thinks_in() -> None:
    seconds = (0, 0.2, 1, 119, 120, 3600, 7199, 7200, 86400, 172800, 31536000)
    words = ["0 s", "1 s", "1 s", "119 s", "2 min", "60 min", "120 min", "2 h", "24 h", "2 days", "365 days"]
    assert [duration(number) for number in seconds] == words
