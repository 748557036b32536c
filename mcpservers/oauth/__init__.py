"""Accounts at MCP servers by OAuth: where they come from, how one is linked, its tokens, and machines of their own."""
