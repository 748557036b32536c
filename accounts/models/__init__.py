"""Rows of people and organizations, of their keys, and of what was done."""

from accounts.models.audit import AuditAction, AuditRecord
from accounts.models.people import (
    ApiKey,
    Group,
    Membership,
    Organization,
    Role,
    SigninLink,
    User,
    digest,
    slug_validator,
)
from accounts.models.spending import BudgetCounter, BudgetWarning

__all__ = [
    "ApiKey",
    "AuditAction",
    "AuditRecord",
    "BudgetCounter",
    "BudgetWarning",
    "Group",
    "Membership",
    "Organization",
    "Role",
    "SigninLink",
    "User",
    "digest",
    "slug_validator",
]
