"""The fixtures of the browser tests; see `site`."""

from tests.e2e.site import agent, browser, demo_server, endpoint, owner, site

__all__ = ["agent", "browser", "demo_server", "endpoint", "owner", "site"]
