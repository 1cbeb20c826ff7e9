"""The child of the model source `letters`."""

import hashlib
from pathlib import Path

from engines.protocol import Channel, read_spec

channel = Channel()
spec = read_spec()
data = spec["ref"].encode()
(Path(spec["staging"]) / "letters.gguf").write_bytes(data)
channel.report(
    {
        "files": [{"name": "letters.gguf", "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}],
        "revision": "1",
        "license": "CC0-1.0",
    }
)
