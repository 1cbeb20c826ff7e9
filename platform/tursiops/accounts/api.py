"""REST of sessions, API keys and the audit list."""

from __future__ import annotations

from typing import Any

from django.middleware.csrf import get_token
from django.utils.decorators import method_decorator
from django.views.decorators.csrf import csrf_protect
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_view
from rest_framework import mixins, status
from rest_framework.permissions import AllowAny, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from tursiops import __version__
from tursiops.accounts import selectors, services
from tursiops.accounts.models import ApiKey, User
from tursiops.accounts.serializers import (
    ApiKeyInput,
    ApiKeySerializer,
    AuditEntrySerializer,
    LoginInput,
    NewApiKeySerializer,
    PasswordInput,
    PreferencesInput,
    SessionSerializer,
    TeamInput,
)
from tursiops.core import errors
from tursiops.core.audit import actor_of
from tursiops.core.permissions import Action, RestrictedQuerySet
from tursiops.core.views import DeclaredView, TeamViewSet


def _session(request: Any) -> Response:
    user: User = request.user
    teams = [{"id": team.pk, "name": team.name, "role": role} for team, role in selectors.teams_with_role(user)]
    current = request.team.pk if request.team else None
    return Response(
        SessionSerializer(
            {
                "user": user,
                "team": next((team for team in teams if team["id"] == current), None),
                "teams": teams,
                "version": __version__,
            }
        ).data
    )


class SessionView(DeclaredView):
    """Who is signed in. Sets the CSRF cookie in any case, so that the sign-in form can be sent."""

    permission_classes = [AllowAny]
    inputs = {"patch": PreferencesInput}

    @extend_schema(
        operation_id="auth_session",
        responses={200: SessionSerializer, 401: OpenApiResponse(description="Signed out; the CSRF cookie is set")},
    )
    def get(self, request: Request) -> Response:
        get_token(request._request)
        if request.user.is_authenticated:
            return _session(request)
        body = errors.body("not_authenticated", "You are not signed in.", "Sign in with your user name and password.")
        return Response(body, status=status.HTTP_401_UNAUTHORIZED)

    @extend_schema(operation_id="auth_preferences", request=PreferencesInput, responses=SessionSerializer)
    def patch(self, request: Request) -> Response:
        if not request.user.is_authenticated:
            self.permission_denied(request)
        assert isinstance(request.user, User)
        services.set_preferences(user=request.user, **self.valid_input())
        return _session(request)


@method_decorator(csrf_protect, name="dispatch")
class LoginView(DeclaredView):
    permission_classes = [AllowAny]
    authentication_classes = []  # a stale cookie or key must not stand in the way
    inputs = {"post": LoginInput}

    @extend_schema(operation_id="auth_login", request=LoginInput, responses=SessionSerializer)
    def post(self, request: Request) -> Response:
        user = services.sign_in(request=request._request, **self.valid_input())
        request.user = user
        return _session(request)


class LogoutView(DeclaredView):
    permission_classes = [AllowAny]

    @extend_schema(operation_id="auth_logout", request=None, responses={204: None})
    def post(self, request: Request) -> Response:
        services.sign_out(request=request._request)
        return Response(status=status.HTTP_204_NO_CONTENT)


class PasswordView(DeclaredView):
    permission_classes = [IsAuthenticated]
    inputs = {"post": PasswordInput}

    @extend_schema(operation_id="auth_password", request=PasswordInput, responses={204: None})
    def post(self, request: Request) -> Response:
        data = self.valid_input()
        if request.auth is not None:
            raise errors.TursiopsError("A password is changed by its owner.", hint="Sign in to the console for that.")
        team = request.team  # type: ignore[attr-defined] # set by middleware
        services.change_password(request=request._request, actor=actor_of(request), team=team, **data)
        return Response(status=status.HTTP_204_NO_CONTENT)


class TeamView(DeclaredView):
    permission_classes = [IsAuthenticated]
    inputs = {"post": TeamInput}

    @extend_schema(operation_id="auth_team", request=TeamInput, responses=SessionSerializer)
    def post(self, request: Request) -> Response:
        assert isinstance(request.user, User)
        team_id = self.valid_input()["team"]
        request._request.team = services.switch_team(  # type: ignore[attr-defined] # as the middleware sets it
            request=request._request, user=request.user, team_id=team_id
        )
        return _session(request)


@extend_schema_view(list=extend_schema(operation_id="keys_list"))
class ApiKeyViewSet(mixins.ListModelMixin, TeamViewSet):
    serializer_class = ApiKeySerializer
    inputs = {"create": ApiKeyInput}

    def rows(self) -> RestrictedQuerySet:
        if getattr(self, "swagger_fake_view", False):
            return ApiKey.objects.all()
        assert isinstance(self.request.user, User)
        return selectors.api_keys(self.request.user, self.team)

    @extend_schema(operation_id="keys_create", request=ApiKeyInput, responses={201: NewApiKeySerializer})
    def create(self, request: Request) -> Response:
        data = self.valid_input()
        key, secret = services.create_api_key(team=self.team, actor=self.actor, **data)
        key.secret = secret  # type: ignore[attr-defined] # for this one answer, never stored
        return Response(NewApiKeySerializer(key).data, status=status.HTTP_201_CREATED)

    @extend_schema(operation_id="keys_revoke", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        services.revoke_api_key(key=self.get_object(), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


@extend_schema_view(list=extend_schema(operation_id="audit_list"))
class AuditViewSet(mixins.ListModelMixin, TeamViewSet):
    serializer_class = AuditEntrySerializer
    required_action = Action.ADMIN
    filterset_fields = ["actor", "action", "subject_type", "subject_id"]

    def rows(self) -> RestrictedQuerySet:
        return selectors.audit()
