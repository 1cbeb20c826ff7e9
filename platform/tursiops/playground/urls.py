from django.urls import URLPattern, URLResolver, path

from tursiops.playground import api

urlpatterns: list[URLPattern | URLResolver] = [
    path("playground/stream", api.stream, name="playground-stream"),
    path("playground/stop", api.stop, name="playground-stop"),
]
