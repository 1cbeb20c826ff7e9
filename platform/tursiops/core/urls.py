from django.urls import URLPattern, URLResolver, path

from tursiops.core.api import EventsView
from tursiops.core.home_api import ChecklistView, OverviewView, PluginsView

urlpatterns: list[URLPattern | URLResolver] = [
    path("events", EventsView.as_view(), name="events"),
    path("checklist", ChecklistView.as_view()),
    path("overview", OverviewView.as_view()),
    path("plugins", PluginsView.as_view()),
]
