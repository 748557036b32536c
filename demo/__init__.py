"""The demonstration: an organization to look at, and an MCP server of our own for it to use."""
