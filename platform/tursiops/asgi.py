"""The web process: Django over HTTP, Channels over websockets, and an answer to the server's lifespan."""

import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tursiops.settings.prod")

from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application

django_application = get_asgi_application()  # before consumers: they import models

from channels.auth import AuthMiddlewareStack  # noqa: E402 - needs Django set up

from tursiops.core.origins import SameOrigin  # noqa: E402 - needs Django set up
from tursiops.routing import websocket_urlpatterns  # noqa: E402 - needs Django set up


async def lifespan(scope: dict[str, Any], receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


application = ProtocolTypeRouter(
    {
        "http": django_application,
        "websocket": SameOrigin(AuthMiddlewareStack(URLRouter(websocket_urlpatterns))),
        "lifespan": lifespan,
    }
)
