"""The heartbeat, in a thread of its own: a slow disk, a hung engine or a long start never makes the node look dead."""

from __future__ import annotations

import threading
from pathlib import Path

import structlog
from django.db import DatabaseError, InterfaceError, close_old_connections, connection

from tursiops.fleet.health import HEARTBEAT_S
from tursiops.fleet.inventory import read_inventory
from tursiops.fleet.models import Node
from tursiops.fleet.services import node_heartbeat

log = structlog.get_logger(__name__)


class Heart(threading.Thread):
    def __init__(self, node: Node, data_dir: Path, stop: threading.Event) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.superseded = False  # a newer process of this node's name has reported
        self._node, self._data_dir, self._stop_asked = node, data_dir, stop

    def run(self) -> None:
        while not self._stop_asked.is_set():
            close_old_connections()
            self.beat()
            self._stop_asked.wait(HEARTBEAT_S)
        connection.close()

    def beat(self) -> None:
        """One report. A database that is away costs a log line, no more: engines go on, the next beat tells."""
        try:
            inventory = read_inventory(self._data_dir)
            if not node_heartbeat(node_id=self._node.pk, epoch=self._node.epoch, inventory=inventory):
                self.superseded = True
                self._stop_asked.set()
        except (DatabaseError, InterfaceError, OSError) as error:
            log.warning("heartbeat.failed", error=str(error))
            connection.close()
