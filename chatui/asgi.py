"""The ASGI application: HTTP to Django, websockets to the chat consumer; start and shutdown of this process."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatui.settings")

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

django_application = get_asgi_application()

from chatui import embedded, lifecycle  # noqa: E402  # models load only after Django is set up
from chatui.routing import websocket  # noqa: E402  # as above

embedded.claim_or_exit()
application = lifecycle.Lifespan(ProtocolTypeRouter({"http": django_application, "websocket": websocket}))
lifecycle.hook_daphne()
