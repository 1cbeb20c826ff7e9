from django.urls import URLPattern, URLResolver, path, re_path

from tursiops.console import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("assets/<str:name>", views.asset),
    path("favicon.ico", views.public_file, {"name": "favicon.svg"}),
    path("favicon.svg", views.public_file, {"name": "favicon.svg"}),
    re_path(r"^(?:api|v1|ws)(?:/|$)", views.unknown_api),
    # Pages of the console have no dot in their last part; a missing file is a 404, not a page.
    re_path(r"^(?:[^.]*/)?[^./]*$", views.page, name="console"),
]
