"""What a gateway process does before it serves."""

import subprocess
import sys

from tests.running import ROOT

SCRIPT = """
import resource, sys
sys.path[:0] = [{platform!r}]
from tursiops.gateway.__main__ import allow_files
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, min(hard, 512)))
for wanted in (32, 256, 100_000):
    allow_files(wanted)
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def test_open_files_are_allowed_as_far_as_may_be_and_never_fewer():
    script = SCRIPT.format(platform=str(ROOT / "platform"))
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ran.stdout.split() == ["64", "256", "512"], ran.stderr
