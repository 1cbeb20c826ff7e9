"""The controller: compares desired with observed state, one idempotent step at a time. Several run, one leads."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import datetime

import redis
import structlog
from django.db import DatabaseError
from django.utils import timezone

from tursiops.deployments.apply import apply
from tursiops.deployments.models import Deployment, Instance
from tursiops.deployments.plan import DeploymentView, FleetView, InstanceView, plan
from tursiops.deployments.publish import Publisher
from tursiops.deployments.selectors import live_deployments
from tursiops.deployments.watch import NodeWatch, Watched
from tursiops.fleet.health import LOST_AFTER_S
from tursiops.fleet.lease import Lease

log = structlog.get_logger(__name__)

TICK_S = 1.0
CHORES_EVERY_S = 5.0

Chore = Callable[[], object]


class Controller:
    def __init__(self, lease: Lease | None = None, chores: tuple[Chore, ...] = ()) -> None:
        """`chores`: small jobs of other apps that the leader does every 5 s; a failure of one is logged."""
        self.lease = lease or Lease("controller")
        self._chores = chores
        self._chores_at = float("-inf")
        self._watch: NodeWatch | None = None
        self._publisher: Publisher | None = None

    def tick(self, now: datetime | None = None) -> bool:
        """One round, if this controller leads. Raises DatabaseError while the database is away."""
        now = now or timezone.now()
        if not self.lease.hold(now):
            self._step_down()
            return False
        self._watch = self._watch or NodeWatch()
        self._publisher = self._publisher or Publisher()
        watched = self._watch.look(now)
        fleet = self._after_grace(watched.fleet, now)
        rows = live_deployments()
        acted = [self._reconcile(deployment, fleet) for deployment in rows]
        self._publish(watched, live_deployments() if any(acted) else rows)
        self._do_chores()
        return True

    def close(self) -> None:
        self._step_down()
        self.lease.release()

    def _step_down(self) -> None:
        if self._watch is not None:
            log.info("controller.steps_down", holder=self.lease.holder)
            self._watch.close()
        self._watch = self._publisher = None

    def _after_grace(self, fleet: FleetView, now: datetime) -> FleetView:
        """A new leader evicts nothing until it has itself watched a node's silence for as long as loss takes."""
        since = self.lease.since
        if since is not None and (now - since).total_seconds() >= LOST_AFTER_S:
            return fleet
        return FleetView(lost=fleet.lost, draining=fleet.draining, frozen=True)

    def _reconcile(self, deployment: Deployment, fleet: FleetView) -> bool:
        """True if something was to be done, so that what was read of it may be out of date."""
        try:
            actions = plan(view_of(deployment), fleet)
            for action in actions:
                apply(deployment, action)
            return bool(actions)
        except DatabaseError:
            raise
        except Exception:  # one deployment that can't be handled must not stop the others
            log.exception("controller.deployment_failed", deployment=str(deployment.pk), name=deployment.name)
            return True

    def _publish(self, watched: Watched, rows: list[Deployment]) -> None:
        if self._publisher is None:
            return
        try:
            trusted = watched.silent if watched.fleet.frozen else frozenset()
            self._publisher.publish(rows, trusted_nodes=trusted)
        except redis.RedisError as error:  # gateways serve from what they have
            log.warning("controller.not_published", error=str(error))

    def _do_chores(self) -> None:
        if time.monotonic() - self._chores_at < CHORES_EVERY_S:
            return
        self._chores_at = time.monotonic()
        for chore in self._chores:
            try:
                chore()
            except DatabaseError:
                raise
            except Exception:
                log.exception("controller.chore_failed", chore=getattr(chore, "__name__", repr(chore)))


def view_of(deployment: Deployment) -> DeploymentView:
    return DeploymentView(
        id=deployment.pk,
        current=deployment.current_id,  # type: ignore[arg-type] # deployments without a revision are left out
        desired=deployment.desired,
        replicas=deployment.replicas,
        instances=tuple(_instance_view(row) for row in deployment.instances.all()),
    )


def _instance_view(row: Instance) -> InstanceView:
    return InstanceView(
        id=row.pk,
        revision=row.revision_id,
        role=row.role,
        index=row.index,
        desired=row.desired,
        state=row.state,
        node=row.node.name if row.node else None,
        makes_room=_uuid(row.placement.get("makes_room")),
    )


def _uuid(text: str | None) -> uuid.UUID | None:
    return uuid.UUID(text) if text else None
