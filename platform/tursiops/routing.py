"""Websocket addresses."""

from django.urls import URLPattern, path, re_path

from tursiops.core import sockets
from tursiops.core.live import LiveConsumer
from tursiops.playground.consumers import ChatConsumer

websocket_urlpatterns: list[URLPattern] = [
    path("ws/live", LiveConsumer.as_asgi()),
    path("ws/chat", ChatConsumer.as_asgi()),
    # Last: without it, a path of no consumer is a crash in the log.
    re_path("", sockets.unknown_path),  # type: ignore[arg-type] # Channels routes ASGI applications by Django's patterns
]
