"""What speculation brings just now: asked of the running engines, behind their tokens, as `diagnose` asks them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from tursiops.core.errors import TursiopsError
from tursiops.deployments.diagnose import ask_engine
from tursiops.deployments.models import Deployment, Instance
from tursiops.deployments.shown import shown
from tursiops.deployments.speculation import OFF, draft_used, mode_of

ASK_S = 3.0
"""How long all engines may take together: a page waits for them."""
_AT_ONCE = 64
_SUMS = ("steps", "verified_steps", "rows", "drafted_tokens", "accepted_tokens", "tokens", "guessed_tokens", "saved_s")


def of_deployment(deployment: Deployment) -> dict[str, Any]:
    """Of all its instances, and of each. Instances with their deployment, revision and node."""
    instances = list(deployment.instances.select_related("deployment", "revision", "node"))
    rows = [_row(instance, *told) for instance, told in zip(instances, _all_told(instances), strict=True)]
    revision = deployment.current
    draft = draft_used(revision) if revision else None
    return {
        "speculation": mode_of(revision) if revision else OFF,
        "draft_version": str(draft.pk) if draft else None,
        "draft_label": str(draft) if draft else None,
        "since_start": summed(row["since_start"] for row in rows),
        "recent": summed(row["recent"] for row in rows),
        "instances": rows,
    }


def of_instance(instance: Instance) -> dict[str, Any]:
    (told,) = _all_told([instance])
    return _row(instance, *told)


def _all_told(instances: Sequence[Instance]) -> list[tuple[dict[str, Any], str]]:
    """`_told` of each, all asked at once: who has not answered when ASK_S are over is left out."""
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="speculation")  # no query of the database in there
    asked = [pool.submit(_told, instance) for instance in instances]
    done = wait(asked, ASK_S).done
    pool.shutdown(wait=False, cancel_futures=True)
    late = f"It did not answer within {ASK_S:g} seconds."
    return [each.result() if each in done else ({}, late) for each in asked]


def _told(instance: Instance) -> tuple[dict[str, Any], str]:
    """(what its engine says, why there are no figures)."""
    try:
        data, _ = ask_engine(instance, "GET", "/debug/speculation", None, 2 * ASK_S)  # nobody waits so long
    except TursiopsError as error:
        return {}, error.message
    try:
        found: dict[str, Any] = json.loads(data)
        nothing = found["since_start"] is None
    except (ValueError, KeyError, TypeError):
        return {}, "The engine's answer can't be read."
    if nothing:
        off = found["mode"] == OFF
        return found, "It does not speculate." if off else "It has said nothing yet, or nothing speculates."
    return found, ""


def _row(instance: Instance, told: dict[str, Any], reason: str) -> dict[str, Any]:
    return {
        "instance": str(instance.pk),
        "role": instance.role,
        "index": instance.index,
        "state": shown(instance).state,
        "mode": told.get("mode"),
        "proposers": told.get("proposers", []),
        "reason": reason,
        "since_start": told.get("since_start"),
        "recent": told.get("recent"),
    }


def summed(found: Iterable[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Several engines' figures as one's: counts are added, rates made of the sums, the speed-up weighted by the passes
    that it is of. None where there are none."""
    each = [figures for figures in found if figures is not None]
    if not each:
        return None
    total: dict[str, Any] = {name: sum(figures[name] for figures in each) for name in _SUMS}
    verified = total["verified_steps"]
    speedups = sum(figures["speedup"] * figures["verified_steps"] for figures in each if figures["speedup"] is not None)
    sources: dict[str, list[int]] = {}
    for source in (source for figures in each for source in figures["sources"]):
        counts = sources.setdefault(source["source"], [0, 0])
        counts[0], counts[1] = counts[0] + source["drafted"], counts[1] + source["accepted"]
    return total | {
        "window_s": max(figures["window_s"] for figures in each),
        "acceptance_length": 1 + total["accepted_tokens"] / total["rows"] if total["rows"] else None,
        "hit_rate": _rate(total["accepted_tokens"], total["drafted_tokens"]),
        "tokens_per_step": _rate(total["tokens"], total["tokens"] - total["guessed_tokens"]),
        "share_speculated": _rate(verified, total["steps"]),
        "speedup": _rate(speedups, verified),
        "width": max(figures["width"] for figures in each),
        "sources": [
            {"source": name, "drafted": drafted, "accepted": accepted, "hit_rate": _rate(accepted, drafted)}
            for name, (drafted, accepted) in sources.items()
        ],
    }


def _rate(part: float, whole: float) -> float | None:
    return part / whole if whole else None
