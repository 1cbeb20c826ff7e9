"""What this client can do on this machine, against a server that costs nothing: measured before a run, not assumed."""

from __future__ import annotations

from evaluation.client.pool import send
from evaluation.client.servers import MODEL, running
from evaluation.schema import Endpoint, Health, RequestRecord
from evaluation.workload.item import Item, Turn, plan

MARGIN = 2.0  # the null server is asked for so many times the run's highest rate
REACHED = 0.95  # of it


async def calibrate(rate: float, *, chunks: int = 20, processes: int = 1, seconds: float = 2.0) -> Health:
    """Health at `MARGIN` x `rate` requests/s of `chunks` events each; `null_server_rate` is what was reached.

    The reason "null_server" means that a run at `rate` would measure the client.
    """
    asked = MARGIN * rate
    count = max(20, round(asked * seconds))
    turn = Turn(messages=[{"role": "user", "content": "calibration"}], prompt="calibration", max_tokens=chunks)
    offsets = [round(number * 1e9 / asked) for number in range(count)]
    records: list[RequestRecord] = []
    async with running(chunks=chunks) as url:
        endpoint = Endpoint(url=url, model=MODEL, timeout_s=30.0)
        outcome = await send(
            plan([Item(turns=[turn])] * count, offsets), endpoint, on_record=records.append, processes=processes
        )
    ends = [record.end_ns for record in records if record.status == "ok" and record.end_ns is not None]
    begun = min(record.intended_ns for record in records)
    health = outcome.health
    health.null_server_rate = (len(ends) - 1) * 1e9 / (max(ends) - begun) if len(ends) > 1 else 0.0
    if health.null_server_rate < REACHED * (count - 1) / count * asked:
        health.reasons.append("null_server")
        health.healthy = False
    return health
