"""What can go wrong between us and an MCP server: one class per situation, each with words for a person."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from accounts.redirects import local_path
from chatui.errors import ChatUIError

if TYPE_CHECKING:
    from mcpservers.models import MCPServer
    from mcpservers.oauth.challenges import Challenge


class NotReadyError(ChatUIError):
    """Something that a definition needs is missing: a variable's value, a placeholder that nobody knows."""

    code = "not_ready"
    status = 409
    public_message = "This server needs to be set up first."

    def __init__(self, message: str, *, missing: tuple[str, ...] = ()) -> None:
        super().__init__(message, public_message=message)
        self.missing = missing  # names of the variables without a value


class OutsideTurnError(NotReadyError):
    """The definition uses `{{request.*}}`, and there is no turn."""

    def __init__(self) -> None:
        super().__init__("This server is connected to within a turn only: its definition uses {{request.*}}.")


class ServerUnavailableError(ChatUIError):
    """The server cannot be connected to. `str(error)` may say more than `public_message`: it is for admins."""

    code = "server_unavailable"
    status = 502
    public_message = "The server cannot be reached."
    http_status: int | None = None  # that connecting ended with
    challenge = ""  # WWW-Authenticate, beside it


class ThrottledError(ServerUnavailableError):
    """The server failed several times in a row and is left alone until `retry_at`."""

    code = "server_throttled"
    status = 503
    public_message = "The server failed several times and is left alone for a while."

    def __init__(self, message: str, *, retry_at: datetime) -> None:
        super().__init__(message, public_message=message)
        self.retry_at = retry_at


class BusyError(ServerUnavailableError):
    """Every place for a connection is in use, and none became free in time."""

    code = "connections_busy"
    status = 503
    public_message = "Too many connections to MCP servers are in use at the moment. Please try again."


class ToolMissingError(ServerUnavailableError):
    """The server is there, and has no such tool (any more)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, public_message=message)


class ConnectionLostError(ServerUnavailableError):
    """A connection ended under a request. `sent` is False only when the request certainly never left us."""

    code = "connection_lost"
    public_message = "The connection to the server was lost."

    def __init__(self, message: str, *, sent: bool = True, public_message: str | None = None) -> None:
        super().__init__(message, public_message=public_message)
        self.sent = sent


class NobodyPresentError(ChatUIError):
    """The server asked a person during the call, and there is nobody who could answer: the call was ended."""

    code = "nobody_present"
    status = 409
    public_message = "The server asks a person for more before it goes on, and nobody is present to answer."


class RequestFailedError(ChatUIError):
    """The server answered a request with an error (JSON-RPC or HTTP). `data` is JSON; the text is the server's."""

    code = "request_failed"
    status = 502
    public_message = "The server answered with an error."

    def __init__(
        self,
        message: str,
        *,
        rpc_code: int = 0,
        data: object = None,
        http_status: int | None = None,
        challenge: str = "",
    ) -> None:
        super().__init__(message, public_message=message)
        self.rpc_code = rpc_code
        self.data = data
        self.http_status = http_status
        self.challenge = challenge  # WWW-Authenticate


class RequestTimeoutError(ChatUIError):
    """The server gave no sign of life for `seconds`, or worked longer than the absolute limit allows."""

    code = "request_timeout"
    status = 504
    public_message = "The server did not answer in time."


SignInReason = Literal["none", "expired", "refused", "insufficient_scope"]
_WHY_SIGN_IN: dict[SignInReason, str] = {
    "none": "“{title}” needs an account of yours: sign in to it first.",
    "expired": "Your sign-in to “{title}” has ended: sign in again.",
    "refused": "“{title}” no longer accepts your sign-in: sign in again.",
    "insufficient_scope": "“{title}” asks for more access than you gave it: sign in again to give it.",
}


class SignInRequiredError(ChatUIError):
    """An account at the server is needed, and there is none that can be used. Only a person can help.

    `account` names the one that there is, else it is ""; `scopes` are to be asked for, and `new_scopes` are those of
    them that the account does not have; `host` is where the person will
    sign in, "" while that is not known.
    """

    code = "sign_in_required"
    status = 409
    public_message = "This server needs an account of yours: sign in to it first."

    def __init__(
        self,
        server_id: UUID,
        slug: str,
        title: str,
        *,
        reason: SignInReason = "none",
        scopes: Sequence[str] = (),
        account: str = "",
        account_id: UUID | None = None,
        host: str = "",
        new_scopes: Sequence[str] = (),
    ) -> None:
        super().__init__(public_message=_WHY_SIGN_IN[reason].format(title=title))
        self.server_id, self.slug, self.title, self.reason = server_id, slug, title, reason
        self.scopes, self.account, self.account_id, self.host = tuple(scopes), account, account_id, host
        self.new_scopes = tuple(new_scopes)
        self.challenge: Challenge | None = None  # what the server said, if it was asked


def account_refused(title: str, detail: str = "", *, of_organization: bool = True) -> ServerUnavailableError:
    """The error for a token that is not accepted, or not enough, where no sign-in of a person helps.

    `detail` is a sentence for admins.
    """
    whose = f"The organization's account at “{title}”" if of_organization else f"Your sign-in here, used at “{title}”,"
    message = f"{whose} is not accepted."
    return ServerUnavailableError(f"{message} {detail}".strip(), public_message=f"{message} Tell an administrator.")


class LinkError(ChatUIError):
    """An account could not be linked. `public_message` says what the person can do, `for_admin` says more.

    `reason` is for machines (`docs/how-to/link-accounts.md` lists them). Where it is known which sign-in failed, the
    ids, the names and `return_to` are set.
    """

    code = "link_failed"
    status = 502
    public_message = "The account could not be linked."

    def __init__(self, reason: str, message: str, *, for_admin: str = "", status: int | None = None) -> None:
        super().__init__(for_admin or message, public_message=message)
        self.reason, self.for_admin = reason, for_admin or message
        if status is not None:
            self.status = status  # type: ignore[misc]  # of this very failure
        self.organization_id: UUID | None = None
        self.server_id: UUID | None = None
        self.server_slug = self.server_title = self.return_to = ""

    def about(self, server: MCPServer, return_to: str = "") -> None:
        """Say which sign-in failed, so that a page can offer to begin again."""
        self.organization_id, self.server_id = server.organization_id, server.pk
        self.server_slug, self.server_title = server.slug, server.title
        self.return_to = local_path(return_to, "")
