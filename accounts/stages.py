"""Our word on one step of a sign-in: whose e-mail address must be verified first."""

from typing import Any

from allauth.account.models import EmailAddress
from allauth.account.stages import EmailVerificationStage as BaseEmailVerificationStage


class EmailVerificationStage(BaseEmailVerificationStage):  # type: ignore[misc]  # allauth has no type stubs
    """Asks only those who signed up themselves and never came in.

    An open sign-up must not tell which addresses have an account, so a new one waits for its mail. Accounts that an
    administrator made have no such mail to wait for, and nobody who was in is locked out by adding an address.
    """

    def handle(self) -> tuple[Any, bool]:
        if not self.login.signup and not self._signed_up():
            return None, True
        answer: tuple[Any, bool] = super().handle()
        return answer

    def _signed_up(self) -> bool:
        user = self.login.user
        if user is None:  # allauth plays a sign-up with a known address through to the end
            return True
        return user.last_login is None and EmailAddress.objects.filter(user=user).exists()
