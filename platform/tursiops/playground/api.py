"""The playground without websockets: the same frames as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt
from redis.exceptions import RedisError
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import APIException
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from tursiops.accounts.authentication import ApiKeyAuthentication
from tursiops.core import errors
from tursiops.core.inputs import unknown_fields
from tursiops.core.permissions import Action, may
from tursiops.playground import runs
from tursiops.playground.answers import Answer
from tursiops.playground.consumers import BROKER_AWAY
from tursiops.playground.follow import follow
from tursiops.playground.messages import Refused, parse_place, parse_start

Handler = Callable[[HttpRequest, str, str], Awaitable[HttpResponseBase]]


def _view(handlers: dict[str, Handler]) -> Any:
    """An asynchronous view by method: `handler(request, user id, team id)`. DRF's own views are synchronous."""

    async def view(request: HttpRequest) -> HttpResponseBase:
        handler = handlers.get(request.method or "")
        if handler is None:
            return _error(405, "method_not_allowed", f"Use {' or '.join(handlers)}.")
        try:
            user, team = await sync_to_async(_identify)(request)
            if request.method != "GET" and (unknown := unknown_fields(request.GET, (), "parameter")):
                raise Refused("invalid", "; ".join(f"{name}: {text}" for name, (text,) in unknown.items()))
            return await handler(request, user, team)
        except Refused as refused:
            return _error(refused.status, refused.code, refused.message, refused.hint)
        except (RedisError, OSError):
            return _error(BROKER_AWAY.status, BROKER_AWAY.code, BROKER_AWAY.message, BROKER_AWAY.hint)

    return csrf_exempt(view)  # SessionAuthentication checks the token, as in every other view of the API


class _Unread(BaseParser):
    """The check of the CSRF token asks for form fields first; the body is the handler's to read."""

    media_type = "*/*"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> dict[str, Any]:
        return {}


def _identify(request: HttpRequest) -> tuple[str, str]:
    """Ids of user and team. Raises Refused."""
    wrapped = Request(request, parsers=[_Unread()], authenticators=[ApiKeyAuthentication(), SessionAuthentication()])
    try:
        user = wrapped.user
    except APIException as error:
        status = 401 if error.status_code == 401 else 403
        raise Refused(str(error.get_codes()), str(error.detail), status=status) from None
    team = getattr(request, "team", None)
    if not user.is_authenticated:
        raise Refused("not_authenticated", "Sign in, or send an API key.", status=401)
    if not may(user, Action.VIEW, team):
        raise Refused("permission_denied", "You are not in this team.", "Ask an admin of the team.", 403)
    assert team is not None
    return str(user.pk), str(team.pk)


async def _start(request: HttpRequest, user: str, team: str) -> HttpResponseBase:
    message = parse_start(request.body)
    answer = Answer(user, message.chat, message.lane)
    await runs.start(answer, message, team)
    return _events(answer, 0)


async def _resume(request: HttpRequest, user: str, team: str) -> HttpResponseBase:
    """`Last-Event-ID`, which a browser sends when it reconnects by itself, goes before `after`."""
    fields = request.GET.dict()
    if last := request.headers.get("Last-Event-ID"):
        fields["after"] = last
    place = parse_place(fields)
    return _events(Answer(user, place.chat, place.lane), place.after)


async def _stop(request: HttpRequest, user: str, team: str) -> HttpResponseBase:
    try:
        fields = orjson.loads(request.body)
    except orjson.JSONDecodeError as error:
        raise Refused("invalid", f"The body is not valid JSON: {error}.") from None
    place = parse_place(fields if isinstance(fields, dict) else {})
    await runs.stop(Answer(user, place.chat, place.lane))
    return JsonResponse({}, status=202)


def _events(answer: Answer, after: int) -> StreamingHttpResponse:
    response = StreamingHttpResponse(_bytes(answer, after), content_type="text/event-stream")
    response["Cache-Control"] = "no-cache"
    response["X-Accel-Buffering"] = "no"
    return response


async def _bytes(answer: Answer, after: int) -> AsyncIterator[bytes]:
    try:
        async for frame in follow(answer, after):
            yield b"id: %d\ndata: %s\n\n" % (frame["seq"], orjson.dumps(frame))
    except (RedisError, OSError):
        fields = {"code": BROKER_AWAY.code, "message": BROKER_AWAY.message, "hint": BROKER_AWAY.hint}
        yield b"data: " + orjson.dumps(answer.frame("error", 0, **fields)) + b"\n\n"


def _error(status: int, code: str, message: str, hint: str = "") -> JsonResponse:
    return JsonResponse(errors.body(code, message, hint), status=status)


stream = _view({"POST": _start, "GET": _resume})
stop = _view({"POST": _stop})
