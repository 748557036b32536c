"""Django's registration of the project package, which brings the start-up checks."""

from django.apps import AppConfig


class ChatUIConfig(AppConfig):
    name = "chatui"

    def ready(self) -> None:
        from chatui import checks  # noqa: F401  # registers them
