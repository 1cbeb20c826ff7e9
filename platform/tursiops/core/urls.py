from django.urls import URLPattern, URLResolver, path

from tursiops.core.api import EventsView

urlpatterns: list[URLPattern | URLResolver] = [path("events", EventsView.as_view(), name="events")]
