"""What the leading controller does every few seconds for other apps."""

from __future__ import annotations

from tursiops.deployments.controller import Chore
from tursiops.evaluations.runs import start_waiting
from tursiops.jobs.services import reap_lost_jobs
from tursiops.usage.services import take_in


def chores() -> tuple[Chore, ...]:
    return (reap_lost_jobs, take_in, start_waiting)
