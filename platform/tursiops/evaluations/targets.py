"""What a run is aimed at: one of the team's deployments, through the gateway, or a service that is not ours."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from tursiops import secrets
from tursiops.core.addresses import addresses
from tursiops.core.errors import Conflict, TursiopsError
from tursiops.deployments.models import Deployment, Desired
from tursiops.evaluations.models import ExternalEndpoint
from tursiops.supervisor.ask import reachable

KEY_LABEL = "evaluation-endpoint"
KEY_VARIABLE = "EVALUATION_API_KEY"  # where the child finds the key


@dataclass(frozen=True)
class Target:
    """Exactly one of both."""

    deployment: Deployment | None = None
    endpoint: ExternalEndpoint | None = None

    @property
    def name(self) -> str:
        return str(self.deployment or self.endpoint)

    @property
    def kind(self) -> str:
        return "deployment" if self.deployment is not None else "endpoint"

    @property
    def fields(self) -> dict[str, Any]:
        """As columns of a row that has a target."""
        return {"deployment": self.deployment, "endpoint": self.endpoint}


def chosen(deployment: Deployment | None, endpoint: ExternalEndpoint | None) -> Target:
    """Raises TursiopsError unless exactly one is given."""
    if (deployment is None) == (endpoint is None):
        message = "Give a deployment or an endpoint: one of them."
        raise TursiopsError(f"deployment: {message}", fields={"deployment": [message]})
    return Target(deployment, endpoint)


def of(row: Any) -> Target | None:
    """The target of a run, schedule or baseline; None where it has been deleted."""
    return Target(row.deployment, row.endpoint) if row.deployment_id or row.endpoint_id else None


def require_running(deployment: Deployment) -> None:
    """Raises Conflict."""
    if deployment.desired != Desired.RUNNING:
        raise Conflict(
            f"Deployment {deployment.name} is {deployment.desired}.",
            code="target_not_running",
            hint="Start it, or choose another.",
        )


def require_one_key(target: Target, beside: list[str]) -> None:
    """A run has one key: an endpoint's must not go to the gateway. `beside`: deployments that the suite asks, too.

    Raises TursiopsError.
    """
    if target.endpoint is not None and beside:
        names = " and ".join(sorted(set(beside)))
        name = target.endpoint.name
        message = f"The suite asks {names}, too: a run has one key, and that of {name} must not go there."
        hint = "Choose a deployment as the target, or a suite without judge and reference."
        raise TursiopsError(f"endpoint: {message}", hint=hint, fields={"endpoint": [f"{message} {hint}"]})


def check_url(url: str) -> str:
    """The URL without a trailing slash or /v1. Raises TursiopsError naming what is wrong with it.

    Addresses inside this network are refused unless TURSIOPS_EVALUATION_HOSTS names the host: whoever may write an
    endpoint could otherwise reach what only the server can.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _bad_url(f"{url[:100]!r} is no address: {error}.") from error
    if parts.scheme not in ("http", "https") or not host:
        raise _bad_url("It must begin with http:// or https:// and name a host.")
    if parts.username is not None or parts.password is not None:
        raise _bad_url("A name or password in the address would be shown: give the key as `key`.")
    if parts.query or parts.fragment:
        raise _bad_url("It ends before the query: give the part up to and without /v1.")
    if host not in settings.EVALUATION_HOSTS and f"{host}:{port}" not in settings.EVALUATION_HOSTS:
        _require_public(host)
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def _require_public(host: str) -> None:
    try:
        found = addresses(host)
    except OSError as error:
        raise _bad_url(f"{host} has no address: {error.strerror or error}.") from error
    private = [address for address in found if not public(address)]
    if private:
        raise _bad_url(
            f"{host} is {private[0]}, an address inside this network.",
            "An admin of the installation can name it in TURSIOPS_EVALUATION_HOSTS.",
        )


def public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Reachable from everywhere. An IPv4 address in IPv6's clothes is judged as what it is."""
    mapped = getattr(address, "ipv4_mapped", None)
    judged = mapped or address
    return judged.is_global and not judged.is_multicast


def _bad_url(message: str, hint: str = "") -> TursiopsError:
    return TursiopsError(f"url: {message}", hint=hint, code="bad_url", fields={"url": [message]})


def gateway_spec() -> dict[str, Any]:
    """Where a child of this machine finds deployments; the key comes in its environment, never in a file."""
    return {
        "url": f"http://{reachable(settings.GATEWAY_HOST)}:{settings.GATEWAY_PORT}",
        "api_key_env": KEY_VARIABLE,
    }


def endpoint_spec(target: Target) -> dict[str, Any]:
    """The endpoint part of the child's spec. Raises TursiopsError for an address that is not allowed (any more)."""
    if target.deployment is not None:
        return {**gateway_spec(), "model": target.deployment.name}
    assert target.endpoint is not None
    spec = {"url": check_url(target.endpoint.url), "model": target.endpoint.model, "api": target.endpoint.api}
    return {**spec, "api_key_env": KEY_VARIABLE} if target.endpoint.key_encrypted else spec


def seal_key(key: str) -> str:
    """As `ExternalEndpoint.key_encrypted` holds it; empty where there is none."""
    return secrets.encrypt(KEY_LABEL, key.encode()).decode() if key else ""


def open_key(endpoint: ExternalEndpoint) -> str:
    """Raises secrets.SecretError where the installation's secret was replaced."""
    sealed = endpoint.key_encrypted
    return secrets.decrypt(KEY_LABEL, sealed.encode()).decode() if sealed else ""
