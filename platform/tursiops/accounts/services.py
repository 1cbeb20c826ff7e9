"""Every change of people, sessions and keys."""

from __future__ import annotations

import datetime
from typing import Any

from django.contrib.auth import authenticate, login, logout, password_validation, update_session_auth_hash
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone

from tursiops import secrets
from tursiops.accounts import throttle
from tursiops.accounts.models import ApiKey, Membership, Role, Team, User
from tursiops.accounts.serializers import ApiKeySerializer
from tursiops.core.audit import Actor, client_address, record_change
from tursiops.core.errors import Conflict, NotFound, TursiopsError

DEFAULT_TEAM = "default"


def sign_in(*, request: HttpRequest, username: str, password: str) -> User:
    """Start a session. Raises TursiopsError that does not tell whether the name exists, or throttle.TooMany."""
    attempt = throttle.start(username, client_address(request))
    user = authenticate(request, username=username, password=password)
    if user is None:
        raise TursiopsError(
            "User name or password is wrong.", code="wrong_credentials", hint="Check both; capitals matter."
        )
    throttle.clear(attempt)
    login(request, user)
    assert isinstance(user, User)
    return user


def sign_out(*, request: HttpRequest) -> None:
    logout(request)


@transaction.atomic
def change_password(*, request: HttpRequest, actor: Actor, team: Team | None, current: str, new: str) -> None:
    """Other sessions of the user end; this one goes on. Raises TursiopsError naming `current` or `new`."""
    user = actor.user
    assert user is not None
    if not user.check_password(current):
        raise TursiopsError("The current password is wrong.", fields={"current": ["This is not your password."]})
    try:
        password_validation.validate_password(new, user)
    except ValidationError as error:
        raise TursiopsError(" ".join(error.messages), fields={"new": error.messages}) from error
    user.set_password(new)
    user.save(update_fields=["password"])
    update_session_auth_hash(request, user)
    if not team:  # someone who is in no team yet; the audit list is the teams'
        return
    record_change(
        team=team,
        actor=actor,
        kind="user.password_changed",
        subject_type="user",
        subject_id=user.pk,
        text=f"{user.username} changed their password",
    )


def switch_team(*, request: HttpRequest, user: User, team_id: Any) -> Team:
    """Make a team that the user belongs to the session's current one. Raises NotFound."""
    team: Team | None = Team.objects.restrict(user).filter(pk=team_id).first()
    if team is None:
        raise NotFound("You are in no such team.", hint="Choose one of the teams of your session.")
    request.session["team"] = str(team.pk)
    return team


def set_preferences(*, user: User, language: str | None = None, theme: str | None = None) -> User:
    """None leaves a preference as it is. No event: nobody else sees it."""
    if language is not None:
        user.language = language
    if theme is not None:
        user.theme = theme
    user.save(update_fields=["language", "theme"])
    return user


@transaction.atomic
def create_api_key(
    *,
    team: Team,
    actor: Actor,
    name: str,
    allowed_models: list[str] | None = None,
    requests_per_minute: int | None = None,
    tokens_per_minute: int | None = None,
    max_parallel: int | None = None,
    traffic_consent: bool = False,
    expires_at: datetime.datetime | None = None,
) -> tuple[ApiKey, str]:
    """A new key and its secret, which is shown now and never again. Raises TursiopsError."""
    if expires_at is not None and expires_at <= timezone.now():
        raise TursiopsError("The key would already have expired.", fields={"expires_at": ["Must be in the future."]})
    new = secrets.new_api_key()
    key: ApiKey = ApiKey.objects.create(
        team=team,
        name=name,
        prefix=new.prefix,
        sha256=new.sha256,
        created_by=actor.user,
        allowed_models=allowed_models or [],
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        max_parallel=max_parallel,
        traffic_consent=traffic_consent,
        expires_at=expires_at,
    )
    _announce_key(key, actor, "key.created", f"API key {key.name} ({key.prefix}…) was made")
    return key, new.secret


@transaction.atomic
def revoke_api_key(*, key: ApiKey, actor: Actor) -> ApiKey:
    """Refused by every gateway within 5 s. Raises Conflict if it is revoked already."""
    now = timezone.now()
    if not ApiKey.objects.filter(pk=key.pk, revoked_at__isnull=True).update(revoked_at=now, updated_at=now):
        raise Conflict("This key is revoked already.", code="already_revoked")
    key.refresh_from_db()
    _announce_key(key, actor, "key.revoked", f"API key {key.name} ({key.prefix}…) was revoked")
    return key


@transaction.atomic
def create_admin(*, username: str, password: str) -> User:
    """An admin of the installation, and of its first team, which is made if there is none. Raises Conflict."""
    if User.objects.filter(username=username).exists():
        raise Conflict(f"There is a user {username!r} already.")
    team = Team.objects.order_by("created_at").first() or Team.objects.create(name=DEFAULT_TEAM)
    user = User.objects.create_superuser(username, password=password)
    Membership.objects.create(team=team, user=user, role=Role.ADMIN)
    record_change(
        team=team,
        actor=Actor("setup"),
        kind="user.created",
        subject_type="user",
        subject_id=user.pk,
        text=f"{username} was made an admin",
    )
    return user


def _announce_key(key: ApiKey, actor: Actor, kind: str, text: str) -> None:
    record_change(
        team=key.team,
        actor=actor,
        kind=kind,
        subject_type="key",
        subject_id=key.pk,
        text=text,
        payload=dict(ApiKeySerializer(key).data),
        changes={"name": key.name, "prefix": key.prefix},
    )
