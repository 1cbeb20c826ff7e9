from django.urls import path
from rest_framework.routers import SimpleRouter

from tursiops.accounts import api

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("keys", api.ApiKeyViewSet, basename="keys")
router.register("audit", api.AuditViewSet, basename="audit")
urlpatterns = [
    path("auth/session", api.SessionView.as_view()),
    path("auth/login", api.LoginView.as_view()),
    path("auth/logout", api.LogoutView.as_view()),
    path("auth/password", api.PasswordView.as_view()),
    path("auth/team", api.TeamView.as_view()),
    *router.urls,
]
