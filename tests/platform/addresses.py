"""Every address of the API, and a row of the team behind each, for tests that walk all of them."""

from __future__ import annotations

from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver
from tursiops.accounts.models import AuditEntry, Role, Team
from tursiops.core.audit import Actor, record_change
from tursiops.registry.models import LineageEdge, LineageKind

from tests import factories


def addresses() -> list[tuple[str, object]]:
    """(route below /api/v1/, view) of each pattern."""

    def walk(patterns, prefix=""):
        for item in patterns:
            route = prefix + str(item.pattern)
            if isinstance(item, URLResolver):
                yield from walk(item.url_patterns, route)
            elif isinstance(item, URLPattern) and route.startswith("api/v1/"):
                yield route.removeprefix("api/v1/"), item.callback

    return list(walk(get_resolver().url_patterns))


ROUTES = sorted({route for route, _ in addresses()})


def fill(route: str, pk: object) -> str:
    """The route with `pk` for its uuid and something harmless for the rest."""
    parts = [
        part if not part.startswith("<") else str(pk) if part.startswith(("<uuid", "<pk")) else "champion"
        for part in route.split("/")
    ]
    return "/api/v1/" + "/".join(parts)


def kind_of(route: str, rows: dict[str, Any]) -> str | None:
    """Which of `rows` an address is about, by the words in it; None where it names none of them."""
    words = route.partition("<")[0].split("/")
    return next((name for word in words for name in (word, word.removesuffix("s")) if name in rows), None)


def one_of_each(team: Team) -> dict[str, Any]:
    """One row of everything that a team can own, by the first part of its address."""
    user = factories.make_user(team, Role.ADMIN)
    version = factories.make_version(team=team)
    parent = factories.make_version(version.model)
    deployment = factories.make_deployment(version=version)
    edge = LineageEdge.objects.create(kind=LineageKind.QUANTIZED_FROM, parent=parent, child=version)
    record_change(
        team=team,
        actor=Actor(user.username),
        kind="deployment.scaled",
        subject_type="deployment",
        subject_id=deployment.pk,
        text=f"{deployment.name} was scaled",
    )
    return {
        "models": version.model,
        "versions": version,
        "deployments": deployment,
        "instances": factories.make_instance(deployment, node=factories.make_node()),
        "jobs": factories.make_job(team, subject_type="version", subject_id=version.pk),
        "keys": factories.make_api_key(team, created_by=user),
        "audit": AuditEntry.objects.get(team=team),
        "alias": factories.make_alias(version),
        "edge": edge,
        "revision": deployment.current,
        "corpora": factories.make_corpus(team),
        "quantizations": factories.make_quantization(base=parent),
        "usage": factories.make_usage(team, deployment_id=deployment.pk),
        **evaluations(team),
    }


def evaluations(team: Team) -> dict[str, Any]:
    """By the second part of their address, as all begin alike."""
    run = factories.make_run(team=team)
    return {
        "suite": run.suite,
        "run": run,
        "baseline": factories.make_baseline(run),
        "endpoint": factories.make_endpoint(team),
        "schedule": factories.make_schedule(team=team),
        "gate": factories.make_gate(team=team),
        "plan": factories.make_plan(team),
    }
