"""Request records by hand, in ms after 0."""

from evaluation.schema import RequestRecord

MS = 1_000_000


def record(intended=0.0, *, lag=0.0, ttft=10.0, gaps=(), tokens=None, index=0, status="ok", **fields) -> RequestRecord:
    """A request that was sent `lag` ms late; its first token came `ttft` ms after, further chunks `gaps` ms apart."""
    sent = round((intended + lag) * MS)
    times = [sent + round(ttft * MS)]
    for gap in gaps:
        times.append(times[-1] + round(gap * MS))
    tokens = tokens or [1] * len(times)
    values = {
        "first_ns": times[0],
        "chunks": list(zip(times, tokens, strict=True)),
        "end_ns": times[-1],
        "output_tokens": sum(tokens),
        **fields,
    }
    return RequestRecord(index=index, intended_ns=round(intended * MS), sent_ns=sent, status=status, **values)
