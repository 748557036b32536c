"""Accounts at MCP servers by OAuth: discovery, clients, the sign-in in two requests, tokens, machine accounts, exchange."""
