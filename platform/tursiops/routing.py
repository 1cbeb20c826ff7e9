"""Websocket addresses."""

from django.urls import URLPattern, path

from tursiops.core.live import LiveConsumer
from tursiops.playground.consumers import ChatConsumer

websocket_urlpatterns: list[URLPattern] = [
    path("ws/live", LiveConsumer.as_asgi()),
    path("ws/chat", ChatConsumer.as_asgi()),
]
