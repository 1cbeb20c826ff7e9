"""Loaded by schemathesis (SCHEMATHESIS_HOOKS), in its own environment: notes every answer, and tries bytes that no
schema describes. A line of JSON per request goes to the file that FUZZ_CALLS names."""

from __future__ import annotations

import json
import os
from typing import Any

import schemathesis

_CALLS = open(os.environ["FUZZ_CALLS"], "a", encoding="utf-8")  # noqa: SIM115 - lives as long as the process


@schemathesis.hook  # type: ignore[misc, untyped-decorator, unused-ignore]
def after_call(_: Any, case: Any, response: Any) -> None:
    body = response.request.body
    sent = body if isinstance(body, str) else (body or b"").decode("utf-8", "replace")
    call = {"path": case.path, "method": case.method, "status": response.status_code, "seconds": response.elapsed}
    if response.status_code >= 500:
        call |= {"sent": sent[:20_000], "answer": response.text[:2_000]}
    _CALLS.write(json.dumps(call) + "\n")
    _CALLS.flush()
