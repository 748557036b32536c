"""The ASGI application: HTTP to Django, websockets to the chat consumer; start and shutdown of this process."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatui.settings")

from channels.routing import ProtocolTypeRouter
from django.conf import settings
from django.core.asgi import get_asgi_application

django_application = get_asgi_application()

from chatui import body_limit, embedded, lifecycle  # noqa: E402  # models load only after Django is set up
from chatui.routing import websocket  # noqa: E402  # as above

embedded.claim_or_exit()
http = body_limit.BodyLimit(django_application, settings.HTTP_BODY_MAX_BYTES)
application = lifecycle.Lifespan(ProtocolTypeRouter({"http": http, "websocket": websocket}))
lifecycle.hook_daphne()
