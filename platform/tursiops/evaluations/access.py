"""A run's way to its target: a key made for it alone, open for the time that it can take at most, closed at its end."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from urllib.parse import urlsplit

from django.utils import timezone

from engines.protocol import ChildError
from tursiops.accounts.models import ApiKey
from tursiops.accounts.services import create_api_key, revoke_api_key
from tursiops.core.audit import Actor
from tursiops.core.errors import Conflict
from tursiops.evaluations import specs, targets
from tursiops.evaluations.models import Run
from tursiops.evaluations.targets import Target

EVALUATOR = Actor("evaluator")
KNOWN_WITHIN_S = 30.0  # a new key reaches every gateway within 5 s
_LOOK_EVERY_S = 0.25


@contextmanager
def opened(run: Run, target: Target, url: str, look_after: Callable[[], None]) -> Iterator[str]:
    """The bearer key for the run's requests; empty where an endpoint needs none.

    `look_after` is called while the gateway has not heard of the key. Raises ChildError: no_owner, gateway_away,
    not_served.
    """
    if target.endpoint is not None:
        yield targets.open_key(target.endpoint)
        return
    secret = _new_key(run, target)
    try:
        _wait_known(url, secret, target.name, look_after)
        yield secret
    finally:
        close(run)


def _new_key(run: Run, target: Target) -> str:
    close(run)  # of an attempt before
    owner = run.requested_by
    if owner is None or not owner.is_active:
        raise ChildError(
            "no_owner",
            "the person who asked for this run has no account any more, and its key would have their rights",
            "Start it, or save its schedule, as somebody else.",
        )
    until = timezone.now() + timedelta(seconds=specs.time_limit_s(run.suite_version.spec) + KNOWN_WITHIN_S)
    key, secret = create_api_key(
        team=run.team,
        actor=Actor(owner.get_username(), owner),
        name=f"evaluation {str(run.pk)[-12:]}",
        allowed_models=[target.name, *specs.served_names(run.suite_version.spec)],
        expires_at=until,
    )
    Run.objects.filter(pk=run.pk).update(key=key)
    run.key = key
    return secret


def close(run: Run) -> None:
    """Revoke the run's key, if it has one that is open. Idempotent."""
    key = ApiKey.objects.filter(pk=run.key_id, revoked_at=None).select_related("team").first() if run.key_id else None
    if key is not None:
        with suppress(Conflict):  # somebody else was quicker
            revoke_api_key(key=key, actor=EVALUATOR)


def _wait_known(url: str, secret: str, model: str, look_after: Callable[[], None]) -> None:
    end = time.monotonic() + KNOWN_WITHIN_S
    while True:
        status, names = models(url, secret)
        if status == 200 and model in names:
            return
        if time.monotonic() > end:
            break
        look_after()
        time.sleep(_LOOK_EVERY_S)
    if status == 200:
        raise ChildError("not_served", f"the gateway serves no {model}", "See the deployment's state.")
    answer = f"answers {status}" if status else "does not answer"
    raise ChildError("gateway_away", f"the gateway at {url} {answer}", "See gateway.log and controller.log.")


def models(url: str, secret: str) -> tuple[int, list[str]]:
    """Status of GET <url>/v1/models, 0 where nobody answers, and the names."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=5)
    try:
        connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {secret}"})
        response = connection.getresponse()
        body = json.loads(response.read())
        return response.status, [item["id"] for item in body["data"]] if response.status == 200 else []
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return 0, []
    finally:
        connection.close()
