"""The root of all our errors: a code for machines, a sentence for people, one class per situation."""

from typing import ClassVar


class ChatUIError(Exception):
    """Something that a person or a client is told in plain words.

    `code` is stable and documented; `public_message` may be shown to anyone; `status` is the HTTP status that the
    API answers with; `param` names the field that it is about, where a door tells that. `str(error)` is for the log and
    may say more.
    """

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 400
    public_message: str = "Something went wrong."
    param: str | None = None

    def __init__(self, message: str | None = None, *, public_message: str | None = None) -> None:
        if public_message is not None:
            self.public_message = public_message
        super().__init__(message or self.public_message)


class NotFoundError(ChatUIError):
    """The object does not exist, or not for this actor: the two are never told apart."""

    code = "not_found"
    status = 404
    public_message = "There is no such object."


class PermissionDeniedError(ChatUIError):
    """The actor sees the object but may not do this with it."""

    code = "permission_denied"
    status = 403
    public_message = "You are not allowed to do this."


class InvalidRequestError(ChatUIError):
    """What was sent cannot be understood; the message says what is wrong and where."""

    code = "invalid_request"
    public_message = "The request could not be understood."


class TooLargeError(ChatUIError):
    """What was sent is above a documented limit."""

    code = "too_large"
    status = 413
    public_message = "This is too large."


class DrainingError(ChatUIError):
    """This process is shutting down and takes no new work."""

    code = "draining"
    status = 503
    public_message = "The server is restarting. Please try again in a moment."
