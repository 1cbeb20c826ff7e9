"""A whole run: its levels one after the other, written down after each, resumable, ended by a signal with what it has.

The folder: spec.json, result.json, requests.jsonl, report.html, summary.csv, gates.junit.xml (evaluation/report).
"""

from __future__ import annotations

import asyncio
import os
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from evaluation import scenarios
from evaluation.client.calibrate import calibrate
from evaluation.client.http import Client, RequestError
from evaluation.client.target import Target
from evaluation.progress import Reporter
from evaluation.report import files
from evaluation.runner import search
from evaluation.runner.counters import Scraper, change
from evaluation.runner.diagnose import diagnose, measured_prefix
from evaluation.runner.level import Level, LevelPlan
from evaluation.runner.outcome import charted, duplicates, environment, line_of, verdict
from evaluation.runner.traffic import traffic
from evaluation.schema import (
    Concurrency,
    LevelResult,
    Rate,
    RequestRecord,
    ResultDoc,
    RunSpec,
    Search,
    Sweep,
)
from evaluation.workload.seeds import fresh
from evaluation.workload.tokens import Tokenizer, tokenizer_for

CALIBRATED_FROM = 20.0  # requests/s: below, the client is no question
SETTLE_S = 1.0  # between levels where the engine does not say when it is idle


class RunError(Exception):
    """Nothing can be measured. `code` is stable, `hint` says what to do."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


class Run:
    """`go` measures what is missing; `interrupt` ends it after what is under way was cut off."""

    def __init__(self, spec: RunSpec, folder: Path, report: Reporter, before: ResultDoc | None = None) -> None:
        """before: the result that the folder holds, where the run goes on."""
        self._given = spec
        self._spec = spec
        self._folder = folder
        self._report = report
        self._level: Level | None = None
        self._other: Client | None = None  # of the metrics, where they are another server's
        self._interrupted = False
        self._calibrated: tuple[float, float | None] = (0.0, None)  # greatest rate, and what the client reached
        self._used = 0
        self._objectives = scenarios.objectives(spec)
        self.result = before or ResultDoc(
            id=uuid.uuid4().hex,
            kind="search" if isinstance(spec.load, Search) else "load",
            seed=spec.seed if spec.seed is not None else fresh(),
            started_at=_now(),
        )
        self.result.spec = spec
        self.result.state = "running"
        if before is not None:
            self._used = sum(level.items for level in before.levels)
            self.result.levels = [level for level in before.levels if "interrupted" not in level.reasons]
            self.result.resumed += 1

    def interrupt(self) -> None:
        self._interrupted = True
        if self._level is not None:
            self._level.interrupt()

    async def go(self) -> ResultDoc:
        """Raises RunError, DatasetError, DuplicatePrompts, EndpointError, SenderDied; what was measured is kept."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "spec.json").write_bytes(msgspec.json.format(msgspec.json.encode(self._given)) + b"\n")
        key = _key(self._spec)
        target = Target(self._spec.endpoint, key)
        client = Client(target)
        tokenizer: Tokenizer | None = None
        try:
            await target.look_up()
            await self._name_model(client)
            tokenizer = await tokenizer_for(self._spec.endpoint, key)
            scraper = await self._scraper(client)
            self.result.environment = environment(self._spec, await scraper.now())
            files.write(self._folder, self.result)
            while not self._interrupted and (rate := self._next()) is not None:
                await self._measure(rate or None, tokenizer, scraper, key)
        except RequestError as error:  # whoever asks for anything but tokens translates its own
            self._end("incomplete")
            raise RunError(
                "tokenize_failed",
                f"{self._spec.endpoint.url} stopped answering /tokenize: {error}",
                "Name the model's tokenizer.json in endpoint.tokenizer, or lower the rate; then --resume.",
            ) from error
        except BaseException:
            self._end("incomplete")
            raise
        finally:
            if tokenizer is not None:
                await tokenizer.close()
            await client.close()
            if self._other is not None:
                await self._other.close()
        self._end("incomplete" if self._interrupted else "complete")
        return self.result

    async def _name_model(self, client: Client) -> None:
        """An endpoint that is down ends the run here. Raises RunError."""
        try:
            answer = await client.request("GET", "/v1/models", timeout_s=min(30.0, self._spec.endpoint.timeout_s))
        except RequestError as error:
            if self._spec.endpoint.model and error.code.startswith("http_4"):
                return  # a server that lists no models; the requests will tell
            raise RunError(
                "endpoint_down" if not error.code.startswith("http_") else "endpoint_refuses",
                f"{self._spec.endpoint.url} does not answer /v1/models: {error}",
                "Start it and check url and key; nothing was measured.",
            ) from error
        if self._spec.endpoint.model:
            return
        try:
            names = [str(one["id"]) for one in msgspec.json.decode(answer)["data"]]
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise RunError("endpoint_refuses", f"/v1/models is no list of models: {error}") from error
        if len(names) != 1:
            raise RunError(
                "model_unnamed",
                f"the endpoint has {len(names)} models: {', '.join(names[:10])}",
                "Name one in endpoint.model.",
            )
        self._spec = msgspec.structs.replace(
            self._spec, endpoint=msgspec.structs.replace(self._spec.endpoint, model=names[0])
        )

    async def _scraper(self, client: Client) -> Scraper:
        """Of the endpoint itself, or of `metrics_url`, which does not get the key where it is another server."""
        url = self._spec.endpoint.metrics_url
        if not url:
            return Scraper(client)
        parts = urlsplit(url)
        same = _origin(url) == _origin(self._spec.endpoint.url)
        root = msgspec.structs.replace(self._spec.endpoint, url=f"{parts.scheme}://{parts.netloc}")
        self._other = Client(Target(root, _key(self._spec) if same else ""))
        await self._other.target.look_up()
        return Scraper(self._other, parts.path or "/metrics")

    def _next(self) -> float | None:
        """requests/s of the next level (0: the load has no rate of its own); None: that was all."""
        load, levels = self._spec.load, self.result.levels
        if levels and "all_failed" in levels[-1].reasons and not any(level.counts.ok for level in levels):
            return None  # nothing was ever answered: no rate can tell more
        if isinstance(load, Search):
            return search.next_rate(load, levels)
        rates = load.rates if isinstance(load, Sweep) else [(load.rate or 0.0) if isinstance(load, Rate) else 0.0]
        return rates[len(levels)] if len(levels) < len(rates) else None

    async def _measure(self, rate: float | None, tokenizer: Tokenizer, scraper: Scraper, key: str) -> None:
        spec, index = self._spec, len(self.result.levels)
        sent = await traffic(
            spec,
            tokenizer,
            rate=rate,
            index=index,
            seed=self.result.seed,
            first=self._used,
            resumed=self.result.resumed,
        )
        if self._interrupted:
            return
        self.result.dataset = sent.info
        before = await scraper.now()
        plan = LevelPlan(
            index=index,
            rate=rate,
            planned=sent.planned,
            warm_up_s=sent.warm_up_s,
            concurrency=spec.load.concurrency if isinstance(spec.load, Concurrency) else None,
            seed=sent.seed,
            drop_backlog="running" in before,
        )
        self._level = Level(plan, spec, self._objectives, api_key=key, progress=self._progress(index, rate))
        reached = await self._calibrate(rate)
        try:
            async with scraper.watching():
                level = await self._level.run()
        except Exception:
            self._keep_broken(self._level, sent.used())
            raise
        records, self._level = self._level.records, None
        level.health.null_server_rate = reached
        if reached is not None and rate is not None and reached < rate:
            level.health.healthy, level.verdict, level.decision = False, "invalid", "undetermined"
            level.health.reasons.append("null_server")
        level.items = sent.used()
        self._used += level.items
        level.server = change(before, await scraper.now()) | {f"{n}_peak": v for n, v in scraper.peaks.items()}
        measured = [record for record in records if not record.warm_up]
        known = tokenizer.verified and tokenizer.template
        level.prefix = measured_prefix(sent.info.expected_hit_rate, measured, level.server, verified=known)
        level.findings = diagnose(level, records)
        if any(finding.code == "cache_inflated" for finding in level.findings):
            level.verdict, level.decision = "invalid", "undetermined"
        self._keep(level, records)
        await self._cool_down(scraper)

    async def _calibrate(self, rate: float | None) -> float | None:
        """requests/s that this client reaches against a server that costs nothing, asked for twice the rate.

        Once per greatest rate; slow rates are beyond doubt.
        """
        if rate is None or rate < CALIBRATED_FROM:
            return None
        if rate > self._calibrated[0]:
            health = await calibrate(rate, processes=self._spec.processes)
            self._calibrated = (rate, health.null_server_rate)
        return self._calibrated[1]

    def _keep_broken(self, level: Level, items: int) -> None:
        """What a level had measured when its sending broke off."""
        if level.records:
            result = level.broken_off()
            result.items = items
            self._keep(result, level.records)

    def _keep(self, level: LevelResult, records: list[RequestRecord]) -> None:
        self.result.levels.append(level)
        files.append_requests(self._folder, records)
        self._conclude()
        files.write(self._folder, self.result)
        self._report.log(line_of(level))
        for name, value in charted(level):
            self._report.metric(name, value, level.index)

    async def _cool_down(self, scraper: Scraper) -> None:
        if self._next() is not None and not self._interrupted and not await scraper.until_idle(self._spec.cool_down_s):
            await asyncio.sleep(min(SETTLE_S, self._spec.cool_down_s))

    def _conclude(self) -> None:
        """The run's own findings, answer and verdict, from the levels so far."""
        result, load = self.result, self._spec.load
        result.findings = []
        if isinstance(load, Search):
            result.capacity = search.capacity(load, result.levels)
            result.findings += search.findings(load, result.levels)
        if result.levels and result.dataset.requests and result.dataset.duplicates:
            result.findings.append(duplicates(result))
        result.verdict = verdict(result)
        result.score = scenarios.score(self._spec, result)

    def _end(self, state: str) -> None:
        self.result.state = "incomplete" if state == "incomplete" else "complete"
        self.result.ended_at = _now()
        self._conclude()
        files.write(self._folder, self.result)

    def _progress(self, index: int, rate: float | None) -> Any:
        load = self._spec.load
        levels = load.max_levels if isinstance(load, Search) else len(load.rates) if isinstance(load, Sweep) else 1
        name = f"{rate:.3g} requests/s" if rate else "load"

        def tell(share: float, text: str) -> None:
            self._report.progress(min(0.99, (index + share) / levels), f"level {index + 1}, {name}: {text}")

        return tell


def _key(spec: RunSpec) -> str:
    name = spec.endpoint.api_key_env
    if not name:
        return ""
    if name not in os.environ:
        raise RunError("no_key", f"the environment has no variable {name}", "Set it to the endpoint's key.")
    return os.environ[name]


def _origin(url: str) -> tuple[str, str | None, int]:
    """Scheme, host and port: only there does a key belong."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
