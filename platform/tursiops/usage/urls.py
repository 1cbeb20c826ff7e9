from django.urls import URLPattern, URLResolver, path

from tursiops.usage.api import UsageView

urlpatterns: list[URLPattern | URLResolver] = [path("usage", UsageView.as_view(), name="usage")]
