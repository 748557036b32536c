"""What a sign-in is begun with, from a query or a form: none of it is trusted, and it leads back here alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from accounts.redirects import is_local_path
from chatui.errors import InvalidRequestError

SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")  # RFC 6749, appendix A.4
SCOPES_AT_MOST = 50
CLOSE = "#close"  # after `return_to`: the sign-in has a window of its own, to be closed at the end


@dataclass(frozen=True, slots=True)
class Wanted:
    """`account_id`: the account that is to be linked again. `back` is a path of the organization's pages."""

    account_id: UUID | None
    scopes: tuple[str, ...]
    back: str
    window: bool

    @property
    def return_to(self) -> str:
        return self.back + CLOSE if self.window else self.back


def wanted(values: Mapping[str, str], organization: str) -> Wanted:
    """Read `account`, `scopes` (separated by spaces), `back`, `window`. Raises `InvalidRequestError`."""
    scopes = tuple(dict.fromkeys(values.get("scopes", "").split()))
    if len(scopes) > SCOPES_AT_MOST or not all(SCOPE.fullmatch(scope) for scope in scopes):
        raise InvalidRequestError(
            public_message="The permissions in this address make no sense. Open the sign-in again."
        )
    account = values.get("account", "")
    try:
        account_id = UUID(account) if account else None
    except ValueError:
        raise InvalidRequestError(public_message="The account in this address makes no sense.") from None
    return Wanted(account_id, scopes, local_back(values.get("back", ""), organization), bool(values.get("window")))


def local_back(path: str, organization: str) -> str:
    """`path` where it is a page of the organization, without its fragment; else the page of connections."""
    home = f"/o/{organization}/"
    path = path.partition("#")[0]
    return path if path.startswith(home) and is_local_path(path) and len(path) <= 500 else f"{home}connections/"


def split_return(return_to: str) -> tuple[str, bool]:
    """`Wanted.return_to` as it came back: where to, and whether the window is to be closed."""
    path, _, mark = return_to.partition("#")
    return (path if is_local_path(path) else "/"), f"#{mark}" == CLOSE
