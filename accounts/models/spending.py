"""What was spent in a period, counted where budgets want to know, and who was warned of it."""

from __future__ import annotations

from django.db import models

from accounts.tenancy import TenantModel, TenantQuerySet


class BudgetCounter(TenantModel):
    """What an organization, a group, a user or an agent has spent in one period. Made when a budget first asks."""

    per = models.CharField(max_length=12)  # organization, group, user, agent
    subject_id = models.UUIDField()  # which one
    period = models.CharField(max_length=8)  # minute, day, month
    began = models.DateTimeField()
    tokens = models.PositiveBigIntegerField(default=0)
    cost = models.FloatField(default=0)
    calls = models.PositiveBigIntegerField(default=0)
    requests = models.PositiveBigIntegerField(default=0)

    objects = TenantQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "subject_id", "period", "began", "per"], name="one_counter_per_period"
            )
        ]
        indexes = [models.Index(fields=["began"], name="budget_counter_age")]

    def __str__(self) -> str:
        return f"{self.per} {self.subject_id} in the {self.period} from {self.began:%Y-%m-%d %H:%M}"


class BudgetWarning(TenantModel):
    """That somebody was told, once in a period, that a limit is nearly reached."""

    user_id = models.UUIDField()
    limit = models.CharField(max_length=64)  # Limit.key and whose
    began = models.DateTimeField()

    objects = TenantQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organization", "user_id", "limit", "began"], name="one_warning_per_period")
        ]
        indexes = [models.Index(fields=["began"], name="budget_warning_age")]

    def __str__(self) -> str:
        return f"{self.limit} to {self.user_id}"
