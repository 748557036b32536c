"""Titles of conversations: at once from the first question."""

from chatui.text import shorten

TITLE_LENGTH = 60


def from_question(text: str) -> str:
    """The deterministic title: whitespace collapsed, at most 60 characters, cut between graphemes, with an ellipsis."""
    return shorten(text, TITLE_LENGTH) or "New chat"
