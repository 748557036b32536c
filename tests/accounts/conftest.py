"""What the tests of accounts share."""

from tests.fakes.admin_world import world

__all__ = ["world"]
