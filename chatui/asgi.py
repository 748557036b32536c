"""The ASGI application: HTTP to Django, websockets to the chat consumer."""

import os

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatui.settings")
django_application = get_asgi_application()

from chatui.routing import websocket  # noqa: E402  # models load only after Django is set up

application = ProtocolTypeRouter({"http": django_application, "websocket": websocket})
