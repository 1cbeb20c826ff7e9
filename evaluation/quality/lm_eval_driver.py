"""Several command lines of lm-eval in one process, since loading it takes half a minute. Run by lm-eval's own Python,
and imports nothing of ours.

    VENV/bin/python evaluation/quality/lm_eval_driver.py < jobs.json

Standard input: [{"argv": ["run", …], "folder": output folder, "rows": …}]. A job that ends well leaves `command.json`,
with the job, in its folder; the first that fails ends the process.
"""

import json
import shutil
import sys
from pathlib import Path


def main() -> None:
    jobs = json.load(sys.stdin)
    from lm_eval.__main__ import cli_evaluate

    for job in jobs:
        folder = Path(job["folder"])
        shutil.rmtree(folder, ignore_errors=True)  # an earlier run's; its answers are in lm-eval's cache
        sys.argv = ["lm_eval", *job["argv"]]
        cli_evaluate()
        (folder / "command.json").write_text(json.dumps(job))


if __name__ == "__main__":
    main()
