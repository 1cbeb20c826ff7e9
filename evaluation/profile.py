"""What a business asks of a deployment: prefixes, lengths of prompts and answers together, arrivals, objectives.

A profile is written by hand, or fitted from the gateway's usage records (`fit`), which are rows with the fields of
`UsageRecord` (docs/contracts.md §4) exported as JSON: no Django here, and no text of any request.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from evaluation.schema import NotNegative, Objective, Positive, RequestRecord, Spec

KEPT = 5_000
"""Pairs of lengths that a fitted profile keeps, evenly chosen in time."""
FEWEST = 20
"""Successful records without which nothing is fitted."""
PREFIX_SHARE = 0.2
"""Of a group's records that must have the same cached tokens for these to be taken as its prefix."""

Floats = NDArray[np.float64]


class ProfileError(ValueError):
    """Names the field or the missing rows, the reason and the fix."""

    code = "invalid_profile"


class Lengths(Spec, kw_only=True, frozen=True):
    """Joint distribution of a request's own prompt tokens and its output tokens: what is long in, is often short out.

    Either `pairs` of (user, output) as they came, or a histogram: `counts[i][j]` requests with user tokens in
    [user_edges[i], user_edges[i + 1]) and output in [output_edges[j], output_edges[j + 1])."""

    pairs: list[tuple[int, int]] = []
    user_edges: list[int] = []
    output_edges: list[int] = []
    counts: list[list[float]] = []


class PrefixGroup(Spec, kw_only=True, frozen=True):
    """Requests that begin alike, as with one system prompt. share: of all requests."""

    name: str = ""
    prefix_tokens: Annotated[int, Meta(ge=0)] = 0
    share: Positive = 1.0
    lengths: Lengths | None = None  # null: the profile's


class Arrivals(Spec, kw_only=True, frozen=True):
    """rate: mean requests/s. peak_factor: the stable peak, P99 of minutes, over the mean. burstiness: shape of the
    gamma gaps, 1 = Poisson, less = burstier."""

    rate: Positive
    peak_factor: Annotated[float, Meta(ge=1)] = 1.0
    burstiness: Positive = 1.0

    @property
    def peak(self) -> float:
        """Requests/s."""
        return self.rate * self.peak_factor


class Guesses(Spec, kw_only=True, frozen=True):
    """What speculation makes of this traffic, of a request and a pass: tokens told, and guesses checked to tell them.
    1 and 0: nothing is guessed."""

    tokens: Annotated[float, Meta(ge=1)] = 1.0
    checked: NotNegative = 0.0


class Drawn(NamedTuple):
    """Tokens of as many requests."""

    prefix: Floats
    user: Floats
    output: Floats


class BusinessProfile(Spec, kw_only=True, frozen=True):
    name: str
    arrivals: Arrivals
    lengths: Lengths
    guesses: Guesses = Guesses()
    groups: list[PrefixGroup] = []  # empty: nothing is shared
    slo: list[Objective] = []
    weights: dict[str, NotNegative] = {}  # of metrics in a score; never instead of the objectives
    source: str = ""  # where it comes from, in words
    notes: list[str] = []  # codes of what a fit could not know

    def draw(self, chooser: np.random.Generator, count: int) -> Drawn:
        """Raises ProfileError where the lengths hold nothing."""
        groups = self.groups or [PrefixGroup()]
        shares = np.array([group.share for group in groups])
        chosen = chooser.choice(len(groups), count, p=shares / shares.sum())
        prefix = np.array([float(group.prefix_tokens) for group in groups])[chosen]
        user, output = np.empty(count), np.empty(count)
        for index, group in enumerate(groups):
            places = np.flatnonzero(chosen == index)
            user[places], output[places] = _sample(group.lengths or self.lengths, chooser, len(places))
        return Drawn(prefix, user, output)

    def objective(self, metric: str) -> Objective | None:
        """The tightest of that metric."""
        found = [each for each in self.slo if each.metric == metric]
        return min(found, key=lambda each: each.limit_ms, default=None)


def read_profile(data: bytes | str | Mapping[str, Any]) -> BusinessProfile:
    """Raises ProfileError, which names the path of what is wrong."""
    try:
        if isinstance(data, Mapping):
            profile = msgspec.convert(data, BusinessProfile)
        else:
            profile = msgspec.json.decode(data, type=BusinessProfile)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ProfileError(f"profile: {error}; docs/planner.md has an example") from error
    for at, lengths in [("$.lengths", profile.lengths), *_own_lengths(profile)]:
        _check(at, lengths)
    told, checked = profile.guesses.tokens, profile.guesses.checked
    if told > 1 + checked:
        raise ProfileError(
            f"$.guesses.tokens: {told:g} are more than 1 and all {checked:g} guesses that were checked; give both as "
            "they were measured together"
        )
    return profile


def guesses_in(records: Iterable[RequestRecord]) -> Guesses:
    """From what answers tell of themselves in their usage (docs/speculation.md).

    Each pass of a request tells one token that nobody guessed, and the first token is the prompt's own."""
    passes = guessed = rejected = 0
    for record in records:
        accepted = record.accepted_tokens or 0
        passes += max(0, (record.output_tokens or 0) - 1 - accepted)
        guessed += accepted
        rejected += record.rejected_tokens or 0
    if not passes:
        return Guesses()
    return Guesses(tokens=1 + guessed / passes, checked=(guessed + rejected) / passes)


def fixed(user: int, output: int) -> Lengths:
    """All requests alike."""
    return Lengths(pairs=[(user, output)])


def fit(
    rows: Iterable[Mapping[str, Any]],
    name: str,
    *,
    slo: list[Objective] | None = None,
    weights: dict[str, float] | None = None,
) -> BusinessProfile:
    """From usage records: lengths of the requests that were answered, arrivals of all that came.

    A prefix is told by the cached tokens that most records of one key have in common, so it is a lower bound: what the
    cache did not hold can't be seen. Raises ProfileError where fewer than 20 records were answered.
    """
    timed = [(_started(row), row) for row in rows if row.get("started_at") is not None]
    came = sorted(timed, key=lambda pair: pair[0])
    return _fit([row for _, row in came], np.array([at for at, _ in came]), name, slo or [], weights or {})


def _fit(
    rows: list[Mapping[str, Any]], times: Floats, name: str, slo: list[Objective], weights: dict[str, float]
) -> BusinessProfile:
    good = [
        row
        for row in rows
        if 200 <= int(row.get("status", 0)) < 300
        and int(row.get("prompt_tokens", 0)) > 0
        and int(row.get("completion_tokens", 0)) > 0
        and not row.get("disconnected", False)
    ]
    if len(good) < FEWEST:
        raise ProfileError(
            f"rows: {len(good)} of {len(rows)} usage records were answered in full, and a profile needs {FEWEST}; "
            "take a longer time range"
        )
    by_key: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in good:
        by_key[str(row.get("api_key_id") or "")].append(row)
    groups, notes = [], []
    for key, mine in sorted(by_key.items(), key=lambda item: -len(item[1])):
        prefix = _prefix(mine)
        pairs = _thin([_pair(row, prefix) for row in mine], max(FEWEST, KEPT * len(mine) // len(good)))
        groups.append(
            PrefixGroup(name=key, prefix_tokens=prefix, share=len(mine) / len(good), lengths=Lengths(pairs=pairs))
        )
    if not any(group.prefix_tokens for group in groups):
        notes.append("no_prefix_seen")
    if any(int(row.get("retries", 0)) for row in good):
        notes.append("retries_counted_once")
    arrivals = _arrivals(times, notes)
    every = [pair for group in groups for pair in (group.lengths.pairs if group.lengths else [])]
    span = times[-1] - times[0]
    return BusinessProfile(
        name=name,
        arrivals=arrivals,
        lengths=Lengths(pairs=_thin(every, KEPT)),
        groups=groups,
        slo=slo,
        weights=weights,
        source=f"{len(good)} answered of {len(rows)} usage records over {span / 3600:.1f} h",
        notes=notes,
    )


def _arrivals(times: Floats, notes: list[str]) -> Arrivals:
    """Rates by whole minutes with traffic about them; burstiness from the gaps within the busiest tenth of minutes."""
    minutes = np.floor(times / 60).astype(np.int64)
    counts = np.bincount(minutes - minutes[0])
    span = max(times[-1] - times[0], 1.0)
    if len(counts) < 3:
        notes.append("under_three_minutes")
        return Arrivals(rate=len(times) / span)
    if len(counts) < 100:
        notes.append("peak_of_few_minutes")
    whole = counts[1:-1]  # the first and the last minute are cut off somewhere
    rate = max(float(whole.mean()), 1e-9) / 60
    peak = float(np.quantile(whole, 0.99)) / 60
    busy = np.flatnonzero(counts >= np.quantile(whole, 0.9)) + minutes[0]
    gaps = np.concatenate([np.diff(times[minutes == minute]) for minute in busy])
    burstiness = 1.0
    if len(gaps) >= FEWEST and gaps.mean() > 0:
        burstiness = float(np.clip((gaps.mean() / max(gaps.std(), 1e-12)) ** 2, 0.05, 20.0))
    else:
        notes.append("burstiness_assumed")
    return Arrivals(rate=rate, peak_factor=max(1.0, peak / rate), burstiness=burstiness)


def _prefix(rows: list[Mapping[str, Any]]) -> int:
    """Tokens."""
    cached = Counter(int(row.get("cached_tokens", 0)) for row in rows)
    common = [(count, tokens) for tokens, count in cached.items() if tokens and count >= PREFIX_SHARE * len(rows)]
    return max(common, default=(0, 0))[1]


def _pair(row: Mapping[str, Any], prefix: int) -> tuple[int, int]:
    return max(1, int(row["prompt_tokens"]) - prefix), int(row["completion_tokens"])


def _thin(pairs: list[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    if len(pairs) <= most:
        return pairs
    return [pairs[index] for index in np.linspace(0, len(pairs) - 1, most).astype(int)]


def _started(row: Mapping[str, Any]) -> float:
    """Unix seconds; exports of the database have ISO 8601."""
    value = row["started_at"]
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, datetime):
        return value.timestamp()
    try:
        return datetime.fromisoformat(str(value).replace("Z", "+00:00")).timestamp()
    except ValueError as error:
        raise ProfileError(f"started_at: {value!r} is no time; give unix seconds or ISO 8601") from error


def _sample(lengths: Lengths, chooser: np.random.Generator, count: int) -> tuple[Floats, Floats]:
    if lengths.pairs:
        table = np.array(lengths.pairs, np.float64)
        chosen = chooser.integers(0, len(table), count)
        return table[chosen, 0], table[chosen, 1]
    weights = np.array(lengths.counts, np.float64)
    if not weights.size or weights.sum() <= 0:
        raise ProfileError("lengths: neither pairs nor counts hold a request; give at least one pair [user, output]")
    cells = chooser.choice(weights.size, count, p=(weights / weights.sum()).ravel())
    rows, columns = np.divmod(cells, weights.shape[1])
    return _within(lengths.user_edges, rows, chooser), _within(lengths.output_edges, columns, chooser)


def _within(edges: list[int], cells: NDArray[np.int64], chooser: np.random.Generator) -> Floats:
    """Whole tokens, uniform within the cell."""
    low, high = np.array(edges[:-1])[cells], np.array(edges[1:])[cells]
    return np.asarray(np.floor(low + chooser.random(len(cells)) * (high - low)), np.float64)


def _own_lengths(profile: BusinessProfile) -> list[tuple[str, Lengths]]:
    return [(f"$.groups[{at}].lengths", each.lengths) for at, each in enumerate(profile.groups) if each.lengths]


def _check(path: str, lengths: Lengths) -> None:
    if lengths.pairs:
        if any(user < 0 or output < 1 for user, output in lengths.pairs):
            raise ProfileError(f"{path}.pairs: a pair is [user ≥ 0, output ≥ 1] in tokens")
        return
    rows, columns = len(lengths.user_edges) - 1, len(lengths.output_edges) - 1
    if rows < 1 or columns < 1:
        raise ProfileError(f"{path}: give `pairs`, or edges and counts of a histogram")
    if len(lengths.counts) != rows or any(len(row) != columns for row in lengths.counts):
        raise ProfileError(f"{path}.counts: {rows} rows of {columns} are needed, as many as there are cells")
    for name in ("user_edges", "output_edges"):
        edges = getattr(lengths, name)
        if edges != sorted(set(edges)) or edges[0] < 0:
            raise ProfileError(f"{path}.{name}: edges go up from 0 or more, without repeats")
