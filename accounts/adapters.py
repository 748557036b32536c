"""What allauth asks us: whether strangers may sign up, where a sign-in may lead, whom a rate limit counts."""

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from accounts import audit_signin, signals
from accounts.redirects import is_local_path


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # allauth has no type stubs
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return bool(settings.SIGNUP_OPEN)

    def get_login_stages(self) -> list[str]:
        ours = {"allauth.account.stages.EmailVerificationStage": "accounts.stages.EmailVerificationStage"}
        return [ours.get(stage, stage) for stage in super().get_login_stages()]

    def authentication_failed(self, request: HttpRequest, **credentials: Any) -> None:
        audit_signin.record_failure(str(credentials.get("username") or credentials.get("email") or ""))

    def logout(self, request: HttpRequest) -> None:
        user_id = request.user.pk
        super().logout(request)
        if user_id is not None:
            signals.tell(user_id)

    def is_safe_url(self, url: str) -> bool:
        """Only paths of this site: allauth's own rule also lets every host of `ALLOWED_HOSTS` through."""
        return is_local_path(url)

    def get_client_ip(self, request: HttpRequest) -> str:
        """The client's address, for rate limits. Behind a Unix socket there is none: all share one limit."""
        try:
            return str(super().get_client_ip(request))
        except PermissionDenied:
            return "0.0.0.0"  # a name for "unknown"
