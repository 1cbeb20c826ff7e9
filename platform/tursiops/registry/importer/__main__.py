from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engines.protocol import Channel, ChildError, read_spec
from tursiops.core.filestore import FileStore, StoreError
from tursiops.registry.importer import demo, hub, path
from tursiops.registry.importer.progress import Progress

SOURCES: dict[str, Callable[[dict[str, Any], FileStore, Progress], dict[str, Any]]] = {
    "demo": demo.fetch,
    "path": path.fetch,
    "hub": hub.fetch,
}


def main() -> int:
    channel = Channel()
    try:
        spec = read_spec()
        report = SOURCES[spec["source"]](spec, FileStore(Path(spec["store"])), Progress(channel))
    except (ChildError, StoreError) as error:
        channel.error(error.code, error.message, error.hint)
        return 1
    channel.report(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
