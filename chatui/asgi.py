"""The ASGI application: HTTP to Django, websockets to the chat consumer; start and shutdown of this process."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatui.settings")

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

django_application = get_asgi_application()

from chatui import lifecycle
from chatui.routing import websocket

application = lifecycle.Lifespan(ProtocolTypeRouter({"http": django_application, "websocket": websocket}))
lifecycle.hook_daphne()
