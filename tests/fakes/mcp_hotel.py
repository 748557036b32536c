"""A server of the official SDK that asks whoever books a room: `python mcp_hotel.py`, over stdio."""

from __future__ import annotations

from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel, Field


class Guest(BaseModel):
    name: str = Field(title="Your name", min_length=2)
    nights: int = Field(default=2, ge=1, le=9)


server = MCPServer("hotel")


def whom(city: str) -> Elicit[Guest]:
    return Elicit(f"Who stays in {city}?", Guest)


@server.tool()
def book(city: str, guest: Annotated[Guest, Resolve(whom)]) -> str:
    """Book a room."""
    return f"{guest.name} stays {guest.nights} nights in {city}"


if __name__ == "__main__":
    server.run("stdio")
