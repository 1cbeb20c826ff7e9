"""Our engine. Importing any part of it fixes how OpenMP threads wait, before torch starts them: threads that spin
take the core from their neighbours (a 31 ms step became 1,170 ms on a busy two-core machine). Where they may spin after
all is `engines.native.threads`' affair."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
