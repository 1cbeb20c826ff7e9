"""The built console: its page for every address that is not an API's, and its files with the headers they deserve."""

from __future__ import annotations

import mimetypes
import re
from pathlib import Path

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt, ensure_csrf_cookie
from django.views.decorators.http import require_safe

from tursiops.core.errors import body

DIST = Path(__file__).resolve().parent / "dist"
"""Where `npm run build` in webui/ puts the console; part of the wheel, not of the repository."""

FILE_NAME = re.compile(r"[\w-][\w.-]*")  # one flat folder: no separators, no leading dot
FOREVER = "public, max-age=31536000, immutable"
ONE_DAY = "public, max-age=86400"

NOT_BUILT = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Tursiops: console not built</title></head>
<body style="font-family: sans-serif; max-width: 40em; margin: 4em auto; line-height: 1.5">
<h1>The console is not built</h1>
<p>The platform runs, but the files of its console are missing. In the clone, with Node 20 or newer:</p>
<pre>cd webui
npm ci
npm run build</pre>
<p>then reload this page. <code>python3 manage.py up</code> does this by itself.
The REST API works meanwhile: <a href="/api/v1/docs">/api/v1/docs</a>.</p>
</body>
</html>
"""


@csrf_exempt  # nothing is changed here, and a program that sends to a wrong address must be told so, not of a cookie
@ensure_csrf_cookie
def page(request: HttpRequest) -> HttpResponse:
    """index.html, whatever the path: the console's own router reads it. Never stored, so an update is seen at once."""
    if request.method not in ("GET", "HEAD"):
        message = f"{request.path} is a page of the console; it takes GET, not {request.method}."
        hint = "Models answer under /v1; the platform's own addresses are listed at /api/v1/docs."
        return JsonResponse(body("method_not_allowed", message, hint), status=405, headers={"Allow": "GET, HEAD"})
    try:
        content = (DIST / "index.html").read_bytes()
    except FileNotFoundError:
        response = HttpResponse(NOT_BUILT, status=503)
    else:
        response = HttpResponse(content)
    response.headers["Cache-Control"] = "no-store"
    return response


@require_safe
def asset(request: HttpRequest, name: str) -> HttpResponse:
    """A file whose name holds the hash of its content: it may be kept for ever."""
    return _file(request, DIST / "assets", name, FOREVER)


@require_safe
def public_file(request: HttpRequest, name: str) -> HttpResponse:
    """A file of webui/public, such as the icon."""
    return _file(request, DIST, name, ONE_DAY)


@csrf_exempt
def unknown_api(request: HttpRequest) -> JsonResponse:
    """Programs get the API's error shape, not the console's page, for an address that does not exist."""
    return JsonResponse(
        body("not_found", f"There is no {request.path}.", "The addresses are listed at /api/v1/docs."), status=404
    )


def _file(request: HttpRequest, folder: Path, name: str, cache: str) -> HttpResponse:
    if not FILE_NAME.fullmatch(name):
        return HttpResponse(status=404)
    packed = folder / f"{name}.gz"
    zipped = "gzip" in request.headers.get("Accept-Encoding", "") and packed.is_file()
    try:
        content = (packed if zipped else folder / name).read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return HttpResponse(status=404)
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    response = HttpResponse(content, content_type=kind)
    response.headers["Cache-Control"] = cache
    response.headers["Vary"] = "Accept-Encoding"
    if zipped:
        response.headers["Content-Encoding"] = "gzip"
    return response
