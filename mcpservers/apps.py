"""Django's registration of this app."""

from django.apps import AppConfig


class MCPServersConfig(AppConfig):
    name = "mcpservers"
    verbose_name = "MCP servers"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from mcpservers import departing
        from mcpservers.oauth import signins

        signins.connect_signals()
        departing.watch()
