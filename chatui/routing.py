"""Which consumer answers which websocket path."""

from channels.routing import URLRouter
from django.urls import path

from conversations.consumers import ChatConsumer

websocket = URLRouter([path("ws/o/<slug:organization>/", ChatConsumer.as_asgi())])  # type: ignore[arg-type,list-item]  # an ASGI application
