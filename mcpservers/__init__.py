"""What agents use: MCP servers, their catalogue, connections and calls."""
