"""Which tokens the next step computes. One token budget and no phases: each request is brought from `num_computed`
to `num_tokens`, so decode, prefill chunk and resume after a preemption are one rule.

    plan()    decodes first, then prefill chunks of running requests, then admissions, until the budget is spent
    commit()  the step is done: tokens are appended, endings found, full blocks made findable
    settle()  the one way out for every request: stop, length, abort, time-out, error, and preemption

A step may be planned while earlier ones run: a row's counts include what these will add, and only the values of the
tokens are missing. A request that turns out to have ended is passed over in the steps that are on their way; what
they may still touch, rows and blocks, is fenced until their commit. Memory is taken from others only when no step is
on its way: `plan` then returns None until the steps in flight are committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engines.native.admission import OutputHistory, peak_tokens
from engines.native.blocks import BlockPool
from engines.native.commit import append
from engines.native.deadlines import Deadlines, reason
from engines.native.disk_tier import DiskTier
from engines.native.draft import Draft, Drawn, Step
from engines.native.grammar.constraints import Constraints, masks_of
from engines.native.host_tier import HostTier
from engines.native.pace import Pace, Unpaced
from engines.native.policies import Policy
from engines.native.prefixes import Prefixes
from engines.native.request import Finish, Request, TimeoutLayer
from engines.native.rows import RowPool, RowTable
from engines.native.speculation.guess import guess, masks_of_drafts
from engines.native.speculation.proposer import History
from engines.native.speculation.speculator import Speculator
from engines.native.step import Int32, StepOutput, StepPlan, TokenMasks
from engines.native.tenants import Tenants
from engines.native.waiting import WaitingQueue

MAX_DEFERRALS = 16
"""Requests that one plan() may pass over because their prefix is being computed; bounds the matching work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """max_batched_tokens: budget of one step; at least one block more than max_num_seqs, so that a prefill advances
    beside a full batch of decodes. host_blocks, swap_min_tokens: see `HostTier`. policy: None is by arrival. pace: None
    lets prefill take the whole budget. speculation: None says one token a step."""

    max_num_seqs: int
    max_batched_tokens: int
    prefix_cache: bool = True
    host_blocks: int = 0
    swap_min_tokens: int = 1
    host_cache: bool = False
    disk: DiskTier | None = None
    policy: Policy | None = None
    pace: Pace | None = None
    speculation: Callable[[History], Speculator] | None = None


@dataclass(slots=True)
class Ending:
    id: int
    finish: Finish
    message: str = ""
    code: str = ""  # of a time-out: its layer
    drafted: int = -1  # tokens that were guessed for it; −1 where nobody guesses


class Scheduler:
    def __init__(
        self,
        config: SchedulerConfig,
        *,
        num_blocks: int,
        block_size: int,
        max_model_len: int,
        constraints: Constraints | None = None,
    ) -> None:
        if config.max_batched_tokens < config.max_num_seqs + block_size:
            raise ValueError(
                f"max_batched_tokens is {config.max_batched_tokens}; it must be at least max_num_seqs + block size "
                f"= {config.max_num_seqs + block_size}, or prefill could stand still beside a full batch of decodes"
            )
        self.config, self.constraints = config, constraints
        caching = config.prefix_cache and config.host_cache
        self.host = HostTier(config.host_blocks, block_size, config.swap_min_tokens, caching=caching, disk=config.disk)
        lower = self.host if self.host.caching else None
        self.pool = BlockPool(num_blocks, block_size, caching=config.prefix_cache, lower=lower)
        self.max_len = min(max_model_len, self.pool.usable * block_size)  # tokens of one request, prompt and output
        self.table = RowTable(config.max_num_seqs, self.max_len)
        self.tenants = Tenants()
        self.waiting = WaitingQueue(self.tenants, config.policy)
        self.running: list[Request] = []  # in order of admission
        self.requests: dict[int, Request] = {}  # all that have not ended
        self.preemptions = 0
        self.started: list[tuple[int, int]] = []  # (id, cached tokens) of new admissions, until taken
        self.endings: list[Ending] = []  # until taken
        self._history = OutputHistory()
        self._free_rows = RowPool(config.max_num_seqs)
        self._prefixes = Prefixes(self.pool, self.host)
        self._deadlines = Deadlines()
        self._pace = config.pace or Unpaced()
        self.speculator = (
            config.speculation(History(self.table.token_ids, self.table.known)) if config.speculation else None
        )
        self._sequence = 0
        self._launched = 0
        self._draining = False  # memory was short while steps were on their way
        self._rows: Int32 | None = None  # rows of `running`, made when asked

    @property
    def has_work(self) -> bool:
        return bool(self.requests)

    @property
    def launched(self) -> int:
        """Number of the newest step."""
        return self._launched

    @property
    def _in_flight(self) -> bool:
        return self._launched > self.pool.settled

    # Arrivals and endings

    def add(self, request: Request) -> None:
        """Queue it. One that could never fit ends at once with an error: its client must not wait for ever."""
        if request.id in self.requests:
            raise ValueError(f"request id {request.id} is in use")
        self.requests[request.id] = request
        request.slot = self.tenants.arrive(request.tenant)
        if not 0 < len(request.token_ids) < self.max_len:
            message = f"the prompt has {len(request.token_ids)} tokens; 1 to {self.max_len - 1} fit"
            self.settle(request, Finish.ERROR, message)
            return
        self._sequence += 1
        request.sequence = self._sequence
        request.prefix, request.rank = request.salt, request.priority
        self._deadlines.watch(request, self.requests)
        if request.params.grammar is None:
            self.waiting.arrive(request)
        elif self.constraints is not None:
            self.constraints.begin(request)
        else:
            self.settle(request, Finish.ERROR, "this engine was started without grammars")

    def end(self, request_id: int, finish: Finish) -> None:
        """From outside: the client left, or its stop string was met. Unknown ids have ended already."""
        request = self.requests.get(request_id)
        if request is not None:
            self.settle(request, finish)

    def settle(self, request: Request, finish: Finish | None, message: str = "", code: str = "") -> None:
        """Every way out of the running set. None is a preemption: back to the queue, to be computed again."""
        row = request.row
        if row >= 0:
            if finish is None:
                request.token_ids = self.table.history(request.row)
            elif finish in (Finish.STOP, Finish.LENGTH):
                self._history.add(int(self.table.known[request.row]) - request.prompt_len)
                if finish is Finish.LENGTH:
                    self._prefixes.keep_tail(request, self.table.token_ids[row, : self.table.committed[row]])
            self._vacate(request)
        if finish is None:
            request.preemptions += 1
            self.preemptions += 1
            self.waiting.push(request)
            return
        self.waiting.discard(request)
        self.host.release(request, self._launched)
        self.tenants.leave(request.tenant)
        del self.requests[request.id]
        request.finish = finish
        guessed = -1 if self.speculator is None else request.drafted
        self.endings.append(Ending(request.id, finish, message, code, guessed))

    def _vacate(self, request: Request) -> None:
        """Row and blocks go behind the fence of the newest launched step, never straight to free."""
        self.pool.release(request.blocks, self._launched)
        self._free_rows.release(request.row, self._launched, self.pool.settled)
        if self.speculator is not None:
            self.speculator.end(request.row)
        self.table.clear(request.row)
        self.running.remove(request)
        self._rows = None
        self._prefixes.expect(request, None)
        request.blocks, request.row, request.prefix, request.registered = [], -1, request.salt, 0

    def _expire(self, now: float) -> None:
        for request_id, layer in self._deadlines.due(now):
            request = self.requests.get(request_id)
            if request is None or (layer is TimeoutLayer.QUEUE and request.started):
                continue
            if layer is TimeoutLayer.FIRST_TOKEN and self._known(request) > request.prompt_len:
                continue
            self.settle(request, Finish.TIMEOUT, reason(request, layer), layer)

    def _take_compiled(self, now: float) -> None:
        """Requests whose grammar has been compiled go to their place in the queue."""
        assert self.constraints is not None
        for request, problem, code in self.constraints.begun(now):
            if request.finish is None and problem:
                self.settle(request, Finish.ERROR, problem, code)
            elif request.finish is None:
                self.waiting.arrive(request)

    def _known(self, request: Request) -> int:
        """Tokens of its prompt and its output so far."""
        return int(self.table.known[request.row]) if request.row >= 0 else len(request.token_ids)

    # Planning

    def plan(self, now: float) -> Step | None:
        """The next step, or None if nothing can be computed before a commit. `now`: time.monotonic(), s."""
        self._expire(now)
        if self.constraints is not None:
            self._take_compiled(now)
        self._draining = self._draining and self._in_flight
        if not self.requests or self._draining:
            return None
        if self.speculator is not None and self.speculator.active and self._in_flight:
            return None  # what follows is guessed when it is known
        draft = self._decodes()
        self._chunks(draft)
        if not draft.preempted:
            self._admit(draft)
        speculator, trees = self.speculator, {}
        if speculator is not None:
            trees = guess(draft, speculator, self.table, self.pool, self._grow, self.constraints, self._in_flight)
        step = draft.launch(self._launched + 1, self.table.num_computed, self.table.num_tokens)
        if step is not None:
            self._launched, plan = step.number, step.plan
            self._pace.launched(plan, len(draft.decodes), now)
            unseen = self.table.known[plan.rows] != self.table.num_tokens[plan.rows]
            plan.late = bool((self.table.constrained[plan.rows] & plan.sample & unseen).any())
            step.swap_out, step.leaving = self.host.departures(self.pool, step.number)
            self.table.num_computed[plan.rows] += plan.count
            if plan.drafts is not None:
                self.table.num_computed[draft.decodes] -= plan.drafts.nodes
            self.table.num_tokens[plan.rows] += plan.sample
            if speculator is not None:
                speculator.launched(plan, trees, len(draft.decodes), now)
            if plan.drafts is not None:
                plan.masks = masks_of_drafts(plan, draft.node_masks, self.table)
            elif not plan.late:
                plan.masks = self.masks(plan)
        return step

    def masks(self, plan: StepPlan) -> TokenMasks | None:
        """What the grammars of its rows allow now: of a late plan, after the commit of the step before it."""
        rows = plan.rows[plan.sample]
        matchers = [
            (place, request.matcher)
            for place in np.flatnonzero(self.table.constrained[rows]).tolist()
            if (request := self.table.requests[rows[place]]) is not None and request.matcher is not None
        ]
        return masks_of(matchers) if matchers else None

    def _running_rows(self) -> Int32:
        if self._rows is None:
            self._rows = np.fromiter((request.row for request in self.running), np.int32, len(self.running))
        return self._rows

    def _decodes(self) -> Draft:
        table, rows = self.table, self._running_rows()
        one_left = table.num_tokens[rows] - table.num_computed[rows] == 1
        decodes = rows[one_left & (table.num_tokens[rows] < table.max_total[rows])]  # not those whose last is drawn
        draft = Draft(self.config.max_batched_tokens - len(decodes), decodes)
        self._pace.begin(table.num_computed, decodes)
        full = table.num_tokens[decodes] > table.num_blocks[decodes] * self.pool.block_size
        for row in decodes[full].tolist():
            request = table.requests[row]
            if request is not None and not self._grow(request, int(table.num_tokens[row]), draft):
                draft.decodes = draft.decodes[draft.decodes != row]
        return draft

    def _chunks(self, draft: Draft) -> None:
        table, rows = self.table, self._running_rows()
        behind = rows[table.num_tokens[rows] - table.num_computed[rows] > 1].tolist()
        requests = [request for row in behind if (request := table.requests[row]) is not None]
        for request in sorted(requests, key=lambda request: request.order):
            if request.row >= 0:  # not preempted for one before it
                self._chunk(request, draft)

    def _chunk(self, request: Request, draft: Draft) -> None:
        start = int(self.table.num_computed[request.row])
        budget = self._pace.tokens(start, draft.budget)
        count = self._chunk_size(start, int(self.table.num_tokens[request.row]), budget)
        if count and self._grow(request, start + count, draft):
            draft.chunks.append((request, count))
            draft.budget -= count
            self._pace.took(start, count)

    def _chunk_size(self, start: int, end: int, budget: int) -> int:
        """Tokens to compute now. A chunk that is not the last ends at a block's end, so that the same prompt is
        always cut at places where the cache can take over."""
        if end - start <= budget:
            return end - start
        return max(0, (start + budget) // self.pool.block_size * self.pool.block_size - start)

    def _grow(self, request: Request, upto: int, draft: Draft) -> bool:
        """Blocks for the first `upto` tokens; takes them from the last in order. False: the request was it, or has
        to wait for the steps in flight."""
        need = -(-upto // self.pool.block_size) - len(request.blocks)
        if need > self.pool.available and self._in_flight:
            self._draining = True
            return False
        while need > self.pool.available:
            victim = max(self.running, key=lambda running: running.order)
            self._preempt(victim, draft)
            if victim is request:
                return False
        if need > 0:
            blocks = self.pool.allocate(need)
            draft.new_blocks.append((request, len(request.blocks), blocks))
            request.blocks.extend(blocks)
            self.table.num_blocks[request.row] = len(request.blocks)
        return True

    def _preempt(self, victim: Request, draft: Draft) -> None:
        draft.drop(victim)
        if victim not in draft.added:  # else nothing of it is computed yet
            self.host.keep(victim, int(self.table.committed[victim.row]))
        self.settle(victim, None)

    # Admission

    def _admit(self, draft: Draft) -> None:
        deferred: list[Request] = []
        while self.waiting and draft.budget > 0 and not self._pace.spent and len(deferred) < MAX_DEFERRALS:
            request = self.waiting.pop()
            blocks = self._prefixes.cached(request)
            if self._prefixes.awaits(request, blocks):
                deferred.append(request)  # it will hit what is being computed now
                continue
            while not (fits := self._fits(request, blocks, draft)) and self._outrank(request, draft):
                blocks = self._prefixes.cached(request)
            if not fits:
                deferred.append(request)
                break
            self._enter(request, blocks, draft)
            if draft.preempted:  # memory is short: who lost its row waits for the next step
                break
        for request in deferred:
            self.waiting.push(request)

    def _fits(self, request: Request, cached: list[int], draft: Draft) -> bool:
        """A free row, blocks for its first chunk, and room for all running ones at their expected peak."""
        size = self.pool.block_size
        idle = self.pool.idle_of(cached)
        count = len(request.token_ids)
        start, held, _ = self._prefixes.resume_at(request, cached)
        chunk = self._chunk_size(start, count, draft.budget)
        need = -(-(start + chunk) // size) - held + idle
        if not self._free_rows or not chunk or need > self.pool.available:
            return False
        if not self.running:
            return True  # alone it always fits: its length is bounded by the pool
        table, rows = self.table, self._running_rows()
        used = np.append(table.num_tokens[rows], count).astype(np.int64)
        prompts = np.append(table.prompt_len[rows], request.prompt_len)
        limits = np.append(table.max_total[rows], self._max_total(request))
        remaining = np.minimum(self._history.remaining(used - prompts), limits - used)
        shared = int(table.num_blocks[rows].sum()) + len(cached) - idle - self.pool.used
        rounded = -(-used // size) * size
        return peak_tokens(rounded, remaining) <= (self.pool.usable + max(0, shared)) * size

    def _max_total(self, request: Request) -> int:
        return min(request.prompt_len + request.params.max_tokens, self.max_len)

    def _outrank(self, request: Request, draft: Draft) -> bool:
        """Make room by preempting a running request of a strictly lower class. False: there is none."""
        victim = max(self.running, key=lambda running: running.order, default=None)
        if victim is None or victim.rank <= request.rank:
            return False
        if self._in_flight:
            self._draining = True
            return False
        self._preempt(victim, draft)
        return True

    def _enter(self, request: Request, cached: list[int], draft: Draft) -> None:
        """Give it a row and the blocks that it has already, and plan its first chunk."""
        row = self._free_rows.take()
        self.pool.acquire(cached)
        self.table.fill(row, request, self._max_total(request))
        request.row = row
        self.running.append(request)
        if self.speculator is not None:
            self.speculator.begin(request)
        self._rows = None
        draft.added.append(request)
        computed, held, missing = self._prefixes.resume_at(request, cached)
        forked, request.blocks = cached[held:], cached[:held]
        request.registered = held
        request.prefix = self.pool.prefix_after(request.blocks, request.salt)
        if missing:
            if not request.host_blocks:
                self.host.hold(missing, self._launched + 1)
            request.blocks += self.pool.allocate(len(missing))
            draft.swap_in.append((request, list(zip(missing, request.blocks[held:], strict=True))))
        self.host.release(request, self._launched + 1)  # read by the copy of this step
        self.table.registered[row], self.table.num_blocks[row] = held, len(request.blocks)
        self.table.num_computed[row] = self.table.committed[row] = computed
        if request.blocks:
            draft.new_blocks.append((request, 0, list(request.blocks)))
        self.waiting.admitted(request, len(request.token_ids) - computed)
        if not request.started:
            request.started, request.cached_tokens = True, computed
            self.started.append((request.id, computed))
        self._chunk(request, draft)
        if forked:
            draft.copies.append((request, forked[0], request.blocks[-1]))
            self.pool.release(forked, self._launched + 1)  # read by the copy of this step
        self._prefixes.expect(
            request, self._prefixes.next_key(request.token_ids, request.blocks[: request.registered], request.salt)
        )

    # Commit

    def commit(self, step: Step, output: StepOutput) -> Drawn:
        """Take in what the step computed. Rows whose request ended meanwhile are passed over."""
        self._pace.done()
        table, plan = self.table, step.plan
        live = table.alive[plan.rows]
        rows = plan.rows[live]
        said = append(table, plan, output, self.constraints)
        if plan.drafts is None:
            table.committed[rows] += plan.count[live]
        else:
            more = np.maximum(said.kept - 1, 0)  # of what was guessed, so much held and is computed
            own = plan.count + more
            own[: len(plan.drafts.nodes)] -= plan.drafts.nodes
            table.committed[rows] += own[live]
            table.num_computed[rows] += more[live]
            table.num_tokens[rows] += more[live]
        self.tenants.drawn(np.repeat(table.slots[plan.rows], said.kept))
        self._register(rows)
        if self.speculator is not None:
            self.speculator.committed(plan, output.verified, said.drawn)
        for broken in said.broken:
            assert broken.matcher is not None
            self.settle(broken, Finish.ERROR, broken.matcher.error, broken.matcher.code)
        for row, stop in said.ended:
            request = table.requests[row]
            assert request is not None
            self.settle(request, Finish.STOP if stop else Finish.LENGTH)
        self._done(step)
        return said.drawn

    def fail(self, step: Step, message: str) -> None:
        """The pass raised: end the requests of this step, and no others."""
        self._pace.done(failed=True)
        for row in step.plan.rows.tolist():
            request = self.table.requests[row]
            if request is not None:
                self.settle(request, Finish.ERROR, message)
        self.host.failed(step.swap_out, step.leaving, step.number)
        if self.speculator is not None:
            self.speculator.failed()
        self._done(step)

    def _done(self, step: Step) -> None:
        self.pool.settle(step.number)
        self.host.settle(step.number)
        self._free_rows.settle(self.pool.settled)

    def _register(self, rows: Int32) -> None:
        """Make blocks findable that have become full and computed."""
        table, size = self.table, self.pool.block_size
        for row in rows[table.committed[rows] // size > table.registered[rows]].tolist():
            request = table.requests[row]
            assert request is not None
            for index in range(request.registered, int(table.committed[row]) // size):
                tokens = table.token_ids[row, index * size : (index + 1) * size]
                request.prefix = self.pool.register(request.blocks[index], self.pool.key(request.prefix, tokens))
                request.registered = index + 1
            table.registered[row] = request.registered
            end = (request.registered + 1) * size
            prefilling = self.pool.caching and end <= table.known[row] and table.committed[row] < end
            key = self.pool.key(request.prefix, table.token_ids[row, end - size : end]) if prefilling else None
            self._prefixes.expect(request, key)

    # Integrity

    def check(self) -> list[str]:
        """What is wrong with blocks and rows, one sentence each."""
        problems = self.pool.check([request.blocks for request in self.running]) + self.host.check()
        problems += self._free_rows.check([request.row for request in self.running])
        compiling = 0 if self.constraints is None else self.constraints.compiling(self.requests)
        if len(self.waiting) + len(self.running) + compiling != len(self.requests):
            problems.append(f"{len(self.requests)} requests, {len(self.waiting)} wait and {len(self.running)} run")
        return problems

    def heal(self) -> list[str]:
        """`check` of the pools in production: rebuilds them from the requests where they are wrong, and logs."""
        return self.pool.heal([request.blocks for request in self.running]) + self.host.heal()
