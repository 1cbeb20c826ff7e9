"""An optimizer's child: the base's files, and one that tells how often it began. The recipe's `act` is how it behaves
in its first attempt: "crash" with a finished layer in its workdir, "stop" without one, "refuse", "wait" for its end,
"reject" by a rule of its own."""

import hashlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from engines.api import Channel, ChildError, read_spec

LAYERS = 3


def main() -> int:
    spec, channel = read_spec(), Channel()
    workdir, staging = Path(spec["workdir"]), Path(spec["staging"])
    workdir.mkdir(parents=True, exist_ok=True)
    staging.mkdir(parents=True, exist_ok=True)
    act = spec["recipe"].get("act", "")
    done = len(list(workdir.glob("layer-*")))
    channel.log(f"resumed at {done}")
    for layer in range(done, LAYERS):
        (workdir / f"layer-{layer}").write_text("done")
        channel.progress((layer + 1) / LAYERS, f"layer {layer + 1} of {LAYERS}")
        if act == "crash" and not done:
            os.kill(os.getpid(), signal.SIGKILL)
        if act == "wait":
            time.sleep(600)
    if act == "refuse":
        raise ChildError("bad_weights", "model.layers.1.mlp.down_proj holds NaN", "Import the model again.")
    files = []
    for name, path in spec["paths"].items():
        shutil.copyfile(path, staging / name)
        files.append(_told(staging / name))
    (staging / "copied.json").write_text(f'{{"resumed_at": {done}}}')
    files.append(_told(staging / "copied.json"))
    rule = {"metric": "gap_recovery", "value": 0.21, "limit": 0.3, "better": "higher", "passed": False}
    rules = [rule] if act == "reject" else []
    report = {"files": files, "format": spec["format"], "resumed_at": done, "fallbacks": [], "rules": rules}
    channel.report(report, "failed" if rules else "ok")
    return 0


def _told(path: Path) -> dict:
    data = path.read_bytes()
    return {"name": path.name, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ChildError as error:
        Channel().error(error.code, error.message, error.hint)
        sys.exit(1)
