"""Tokens of a fake authorization server without a sign-in: a token source whose every step a test can see."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID, uuid4

from mcpservers.credentials import Account
from mcpservers.errors import SignInRequiredError
from mcpservers.oauth import dpop
from tests.fakes.authstate import PEOPLE, Person
from tests.fakes.mcp_protected import ProtectedMCPServer


@dataclass
class Wallet:
    """One person's account at `server`: `current` gives the token in hand, `renewed` a fresh one."""

    server: ProtectedMCPServer
    person: Person = PEOPLE[0]
    scopes: tuple[str, ...] = ("notes:read",)
    ended: bool = False  # only a person can help
    account_id: UUID = field(default_factory=uuid4)
    token: str = ""
    bound_to: str = ""  # the key of its tokens
    asked: list[str] = field(default_factory=list)  # "current", "renewed"

    def __post_init__(self) -> None:
        self.token = self.token or self._issued()

    @property
    def key(self) -> str:
        return f"account:{self.account_id}"

    @property
    def account(self) -> Account:
        return Account(self.account_id, self.person.name, self.scopes, "link")

    async def current(self) -> str:
        self.asked.append("current")
        return self._given()

    async def renewed(self, refused: str) -> str:
        self.asked.append("renewed")
        if self.token == refused:
            self.token = self._issued()
        return self._given()

    def _given(self) -> str:
        if self.ended:
            raise SignInRequiredError(
                UUID(int=1), "fake", "Fake", reason="expired", account=self.person.name, account_id=self.account_id
            )
        return self.token

    def _issued(self) -> str:
        memory, resource = self.server.auth.memory, self.server.url
        fields = {"person": self.person, "scopes": self.scopes, "resource": resource, "client_id": "app"}
        if not self.bound_to:
            return memory.issue("access", seconds=3600, **fields).value
        issued = memory.issue("access", seconds=3600, jkt=dpop.thumbprint(self.bound_to), **fields)
        return dpop.BoundToken(issued.value, self.bound_to)
