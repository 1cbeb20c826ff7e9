"""The child of the job kind dummy.act: does what spec["act"] says."""

import os
import subprocess
import sys
import time
from pathlib import Path

from engines.protocol import Channel, read_spec

channel = Channel()
spec = read_spec()["spec"]
if spec["act"] == "sleep":  # with a grandchild; each start leaves a line in the mark file
    grandchild = subprocess.Popen(["sleep", "600"])
    with Path(spec["mark"]).open("a") as file:
        file.write(f"{os.getpid()} {grandchild.pid}\n")
    end = time.monotonic() + spec["seconds"]
    while time.monotonic() < end:
        channel.progress(0.5, "asleep")
        time.sleep(0.1)
    grandchild.kill()
elif spec["act"] == "ignore-term":
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
elif spec["act"] == "crash":
    print("loading the fourth shard", file=sys.stderr, flush=True)
    os.kill(os.getpid(), 9)
elif spec["act"] == "raise":
    raise ValueError("tensor 'lm_head' is bent")
elif spec["act"] == "explain":
    channel.error("bent_tensor", "Tensor 'lm_head' is bent.", "Straighten it.")
elif spec["act"] == "babble":  # all that is no protocol must end up in the log and harm nothing
    print("plain text")
    print('{"type": "progress", "value": "much"}')
    print('{"type": "progress", "value": NaN}')
    print('{"type": "report"}')
    print("[1, 2]")
    sys.stdout.buffer.write(b"\xff\xfe\n" + b"x" * 5_000_000 + b"\n")
channel.report({"did": spec["act"]})
