"""Django's registration of this app."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class AccountsConfig(AppConfig):
    name = "accounts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from accounts import audit_guard, audit_signin, signals

        signals.watch()
        audit_signin.watch()
        post_migrate.connect(audit_guard.after_migrate, sender=self, dispatch_uid="audit-guard")
