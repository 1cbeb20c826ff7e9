"""`manage.py controller`: leads the installation, or waits to."""

from __future__ import annotations

import signal
import threading
from typing import Any

import structlog
from django.core.management.base import BaseCommand
from django.db import DatabaseError, InterfaceError, close_old_connections, connection

from tursiops.deployments.chores import chores
from tursiops.deployments.controller import TICK_S, Controller
from tursiops.fleet import wake

log = structlog.get_logger(__name__)


class Command(BaseCommand):
    help = "Compares desired with observed state; publishes the gateway's snapshot; takes in usage."

    def handle(self, *args: Any, **options: Any) -> None:
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        controller = Controller(chores=chores())
        waker = wake.Waker(wake.CONTROLLER)
        log.info("controller.started", holder=controller.lease.holder)
        while not stop.is_set():
            _tick(controller, stop)
            waker.wait(TICK_S)
        waker.close()
        try:
            controller.close()
        except (DatabaseError, InterfaceError) as error:  # the lease runs out by itself
            log.warning("controller.lease_not_released", error=str(error))
        log.info("controller.stopped")


def _tick(controller: Controller, stop: threading.Event) -> None:
    try:
        close_old_connections()
        controller.tick()
    except (DatabaseError, InterfaceError) as error:
        log.warning("controller.database_away", error=str(error))
        connection.close()
        stop.wait(2)
