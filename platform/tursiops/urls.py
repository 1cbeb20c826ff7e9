"""URLs of the web process. /v1 is not here: it is the gateway's."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from tursiops.accounts import schema  # noqa: F401 - registers how API keys appear in the schema

api: list[URLPattern | URLResolver] = [
    path("", include("tursiops.core.urls")),
    path("", include("tursiops.accounts.urls")),
    path("", include("tursiops.registry.urls")),
    path("", include("tursiops.fleet.urls")),
    path("", include("tursiops.deployments.urls")),
    path("", include("tursiops.jobs.urls")),
    path("", include("tursiops.evaluations.urls")),
    path("", include("tursiops.quantization.urls")),
    path("", include("tursiops.usage.urls")),
    path("", include("tursiops.playground.urls")),
    path("schema", SpectacularAPIView.as_view(), name="schema"),
    # Split: its script comes as a file of its own, as the content security policy asks.
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
]

handler500 = "tursiops.core.error_responses.server_error"
urlpatterns = [
    path("api/v1/", include(api)),
    # One door: the console's sign-in counts failed attempts, Django's own form does not.
    path("admin/login/", RedirectView.as_view(url="/")),
    path("admin/", admin.site.urls),
    path("", include("tursiops.console.urls")),  # last: the console answers every other page
]
