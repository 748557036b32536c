"""Sign-ins, sign-outs and what is changed about them, as audit entries: one for each organization of the person.

Of a sign-in that failed for an unknown name there is one entry of no organization, without the name: people type
their passwords there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from allauth.account import signals as account
from allauth.mfa import signals as mfa
from django.contrib.auth import signals as auth

from accounts import audit
from accounts.models import AuditAction, Membership, User


def record_for_person(
    action: AuditAction, user_id: UUID, *, by: UUID | None = None, details: Mapping[str, Any] | None = None
) -> None:
    """One entry in each organization that the person is a member of; one of none where there is none.

    `by` is who did it, if that is known. Two statements.
    """
    memberships = Membership.objects.filter(user=user_id, is_active=True)
    organizations: list[UUID | None] = list(memberships.values_list("organization_id", flat=True))
    via = audit.Via.WEB if by is None and audit.doer() is None else None
    audit.write(
        [
            audit.entry(action, organization, by, via, person_id=user_id, details=details)
            for organization in organizations or [None]
        ]
    )


def record_failure(login: str, factor: str = "password") -> None:
    """A sign-in with this name or address failed."""
    user = User.named(login.strip()) if login else None
    if user is not None:
        record_for_person(AuditAction.SIGN_IN_FAILED, user.pk, details={"factor": factor})
    else:
        details = {"factor": factor, "known": False}
        audit.record(AuditAction.SIGN_IN_FAILED, organization_id=None, via=audit.Via.WEB, details=details)


def watch() -> None:
    """Record what Django and allauth report."""
    auth.user_logged_in.connect(_signed_in, dispatch_uid="audit-sign-in")
    auth.user_logged_out.connect(_signed_out, dispatch_uid="audit-sign-out")
    account.user_signed_up.connect(_signed_up, dispatch_uid="audit-sign-up")
    mfa.authentication_failed.connect(_second_factor_failed, dispatch_uid="audit-second-factor")
    for signal, what in (
        (account.password_set, "password"),
        (account.password_changed, "password"),
        (account.password_reset, "password"),
        (account.email_changed, "address"),
        (mfa.authenticator_added, "second factor added"),
        (mfa.authenticator_removed, "second factor removed"),
        (mfa.authenticator_reset, "recovery codes"),
    ):
        signal.connect(_changed(what), weak=False, dispatch_uid=f"audit-{what}-{id(signal)}")


def _signed_in(user: User, request: Any = None, **_: Any) -> None:
    methods = request.session.get("account_authentication_methods", []) if request is not None else []
    used = [method.get("method") for method in methods if isinstance(method, Mapping)]
    record_for_person(AuditAction.SIGN_IN, user.pk, by=user.pk, details={"methods": used} if used else {})


def _signed_out(user: User | None, **_: Any) -> None:
    if user is not None:
        record_for_person(AuditAction.SIGN_OUT, user.pk, by=user.pk)


def _signed_up(user: User, **_: Any) -> None:
    record_for_person(AuditAction.USER_CREATED, user.pk, by=user.pk, details={"signed_up": True})


def _second_factor_failed(user: User, **_: Any) -> None:
    record_for_person(AuditAction.SIGN_IN_FAILED, user.pk, details={"factor": "second factor"})


def _changed(what: str) -> Any:
    def record(user: User, **_: Any) -> None:
        record_for_person(AuditAction.CREDENTIALS_CHANGED, user.pk, by=user.pk, details={"changed": what})

    return record
