"""What the tests of mcpservers share."""

from tests.fakes.admin_world import world

__all__ = ["world"]
