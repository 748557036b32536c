"""Fixtures of others, for the tests that knock at every door."""

from tests.conversations.conftest import house
from tests.fakes.admin_world import world

__all__ = ["house", "world"]
