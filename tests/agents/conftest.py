"""What the tests of agents share."""

from tests.fakes.admin_world import world

__all__ = ["world"]
