"""What verifies trees on a GPU, against plain torch and the host's way, on fresh random inputs; and a whole engine
whose guesses change nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from engines.native.graph_buckets import width_bucket
from engines.native.kernels import INTERPRETED
from engines.native.kernels.verify import Planes, accept, compact, prepare_trees
from engines.native.offline import Offline
from engines.native.ops.quantized_kv_triton import QuantizedKvTritonOps
from engines.native.ops.triton_ops import TritonOps
from engines.native.quantized_kv import Pool
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner
from engines.native.speculation import verify
from engines.native.speculation.tree import ancestors
from engines.native.step import Drafts, Int32, StepPlan
from evaluation.benchmarks import graph_check
from evaluation.benchmarks.kernel_cases import Heads, Paged, paged
from evaluation.benchmarks.kernel_checks import TOLERANCE, attention_reference
from evaluation.benchmarks.kv_quantized import meant, rounded
from evaluation.benchmarks.replay import FreeGuesses, Script, replaying
from evaluation.benchmarks.report import Row

METRICS = ("relative error", "wrong tensors", "wrong passes", "requests with other tokens")
"""A row with one of these that misses its target is a wrong result, not a slow one."""
HEADS = (Heads(32, 8, 128), Heads(9, 3, 64), Heads(12, 2, 128), Heads(4, 1, 256), Heads(28, 4, 128))
WIDTHS, FEW_WIDTHS = (2, 3, 8, 16, 32), (8, 32)


def random_parents(chooser: np.random.Generator, nodes: int) -> Int32:
    """int32 [nodes]."""
    return np.array([chooser.integers(0, node + 1) for node in range(nodes)], np.int32)


def random_drafts(chooser: np.random.Generator, rows: int, width: int, kinds: int) -> Drafts:
    """Trees of 0 … width nodes; of `kinds` tokens, so that some hold."""
    nodes = chooser.integers(0, width + 1, rows).astype(np.int32)
    nodes[chooser.integers(rows)] = width
    tokens, parents = np.zeros((2, rows, width), np.int32)
    for row, count in enumerate(nodes.tolist()):
        tokens[row, :count], parents[row, :count] = chooser.integers(0, kinds, count), random_parents(chooser, count)
    return Drafts(tokens, parents, nodes, chains=False)


def words_of(chooser: np.random.Generator, queries: list[int], device: torch.device) -> torch.Tensor:
    """`Batch.ancestors` of random trees; rows of more than 32 queries are no trees."""
    each = [
        ancestors(random_parents(chooser, count - 1)) if count <= 32 else np.zeros(count, np.int32)
        for count in queries
    ]  # fmt: skip
    return torch.from_numpy(np.concatenate(each)).to(device)


def run(device: torch.device) -> Iterator[list[Row]]:
    """The results, part by part."""
    chooser = np.random.default_rng()
    yield list(_attention(device, chooser))
    yield [_inputs(device, chooser), *(_paths(device, chooser, kind) for kind in ("", "fp8", "int8"))]
    if device.type == "cuda":
        yield [_passes(chooser)]
        yield list(_engine())


def _attention(device: torch.device, chooser: np.random.Generator) -> Iterator[Row]:
    dtypes = [torch.bfloat16, torch.float16, torch.float32]
    heads: tuple[Heads, ...] = HEADS
    widths: tuple[int, ...] = WIDTHS
    contexts = [900, 3, 3000, 40]
    if INTERPRETED:
        dtypes, heads, widths, contexts = [torch.float32], (Heads(4, 2, 16),), (3, 8), [9, 0]
    for head in heads:
        for dtype in dtypes[: 3 if head is heads[0] else 1]:
            for kind in ("", "fp8", "int8") if head is heads[0] and dtype == dtypes[0] else ("",):
                worst, scale = 0.0, head.dim**-0.5
                first = head is heads[0] and dtype == dtypes[0] and not kind
                for width in widths if first or INTERPRETED else FEW_WIDTHS:  # each is a kernel to compile
                    queries = [width, max(1, width // 2), width, 1]
                    lengths = [context + count for context, count in zip(contexts, queries, strict=False)]
                    case = paged(queries[: len(lengths)], lengths, head, 16, dtype, device)
                    case.batch.ancestors = words_of(chooser, queries[: len(lengths)], device)
                    keys: Pool = case.k_cache
                    values: Pool = case.v_cache
                    ops, read = TritonOps(), case
                    if kind:
                        ops = QuantizedKvTritonOps()
                        k_pool, v_pool = rounded(case.k_cache, kind), rounded(case.v_cache, kind)
                        keys, values, read = k_pool, v_pool, Paged(case.q, meant(k_pool), meant(v_pool), case.batch)
                    out = ops.attention(case.q, keys, values, case.batch, scale, 0)
                    again = ops.attention(case.q, keys, values, case.batch, scale, 0)
                    wanted = attention_reference(read, range(len(lengths)), scale, 0)
                    error = float((out.double() - wanted).norm() / wanted.norm())
                    worst = max(worst, error if torch.equal(out, again) else math.nan)
                name = f"attention trees {head.query}/{head.kv}×{head.dim} {str(dtype).removeprefix('torch.')} {kind}"
                target = TOLERANCE[dtype] * (2 if kind else 1)
                yield Row(name.strip(), "relative error", worst, "", "lower", target=target)


def sent_of(plan: StepPlan, width: int, device: torch.device) -> torch.Tensor:
    """As `kernels.verify` takes it, with a line of padding."""
    drafts = plan.drafts
    assert drafts is not None
    n = len(plan.rows)
    sent = np.zeros((n + 1, 3 + 2 * width), np.int32)
    sent[n, 0] = -1
    sent[:n, 0], sent[:n, 1], sent[:n, 2] = plan.rows, plan.start, drafts.nodes
    sent[:n, 3 : 3 + drafts.width] = drafts.tokens
    sent[:n, 3 + width : 3 + width + drafts.width] = drafts.parents
    return torch.from_numpy(sent).to(device)


def _plan(chooser: np.random.Generator, rows: int, width: int, kinds: int) -> StepPlan:
    drafts = random_drafts(chooser, rows, width, kinds)
    order = chooser.permutation(rows + 2)[:rows].astype(np.int32)
    start = chooser.integers(0, 900, rows).astype(np.int32)
    return StepPlan(order, start, 1 + drafts.nodes, sample=np.ones(rows, np.bool_), drafts=drafts)


def _inputs(device: torch.device, chooser: np.random.Generator) -> Row:
    wrong, count, page = 0, 4 if INTERPRETED else 40, 16
    for width in (1, 3, 7, 15, 31):
        plan = _plan(chooser, count, width, 50_000)
        assert plan.drafts is not None
        tokens = torch.randint(0, 50_000, (count + 3, 1024), dtype=torch.int32, device=device)
        tables = torch.randint(1, 9999, (count + 3, 64), dtype=torch.int32, device=device)
        found = prepare_trees(tokens, tables, sent_of(plan, width, device), width=60, block_size=page)
        depths = verify.depths_of(plan.drafts)
        for i, row in enumerate(plan.rows.tolist()):
            real, start = slice(i * (width + 1), i * (width + 1) + int(plan.count[i])), int(plan.start[i])
            nodes = int(plan.drafts.nodes[i])
            depth, places = depths[i, : nodes + 1], torch.arange(start, start + nodes + 1, device=device)
            pairs = [
                (found.token_ids[real].tolist(), [int(tokens[row, start]), *plan.drafts.tokens[i, :nodes].tolist()]),
                (found.positions[real].tolist(), (start + depth).tolist()),
                (found.ends[real].tolist(), (start + depth + 1).tolist()),
                (found.words[real].tolist(), ancestors(plan.drafts.parents[i, :nodes]).tolist()),
                (found.slots[real].tolist(), (tables[row, places // page] * page + places % page).tolist()),
                (found.lines[real].tolist(), [row] * (nodes + 1)),
                (found.block_tables[i].tolist(), tables[row, :60].tolist()),
                (int(found.slots[real.stop : (i + 1) * (width + 1)].sum()), 0),
            ]
            wrong += sum(a != b for a, b in pairs)
    return Row("inputs of trees", "wrong tensors", wrong, f"of {5 * count * 8}", "lower", target=0)


def _paths(device: torch.device, chooser: np.random.Generator, kind: str) -> Row:
    """Two tokens in all: paths of every form. Tokens, row tables and pools, of which each line moves as on the host."""
    wrong, moved, rows, page = 0, 0, 6 if INTERPRETED else 40, 16
    for width in (1, 3, 7, 15, 31):
        plan = _plan(chooser, rows, width, 2)
        assert plan.drafts is not None
        ends = np.concatenate([[0], np.cumsum(plan.count)]).astype(np.int32)
        lines = verify.lines_of(plan, ends, verify.depths_of(plan.drafts))
        drawn = chooser.integers(0, 2, len(lines.rows)).astype(np.int32)
        held, paths = verify.accept(plan, lines, drawn)
        sent, table = sent_of(plan, width, device), torch.ones(rows + 1, width_bucket(width) + 1, dtype=torch.int32)
        table[lines.place, lines.node] = torch.from_numpy(drawn)
        tokens = torch.zeros(rows + 3, 1024, dtype=torch.int32, device=device)
        said = torch.full((rows + 1, width + 2), -9, dtype=torch.int32, device=device)
        nodes = accept(sent, table.to(device).flatten(), tokens, torch.zeros_like(tokens[:, 0]).contiguous(), said)
        wrong += said[:, 0].tolist() != [*held.counts.tolist(), 0]
        wrong += said[:rows, 1:].tolist() != held.tokens.tolist()
        for row, start, count, line in zip(plan.rows, plan.start, held.counts, held.tokens, strict=True):
            wrong += tokens[row, start + 1 : start + 1 + count].tolist() != line[:count].tolist()
        blocks = (rows + 3) * 64 + 1
        tables = (torch.randperm(blocks - 1, device=device) + 1).int().view(rows + 3, 64)
        shape, dtype = ((blocks, 2, page, 24), torch.int8 if kind else torch.bfloat16)
        planes = [torch.randint(-99, 99, shape, device=device).to(dtype) for _ in range(4)]
        if kind == "int8":
            planes += [torch.rand(shape[:3], device=device) for _ in range(4)]
        wanted = [plane.clone() for plane in planes]
        compact(Planes.of(planes), sent, said, nodes, tables)
        for row, source, target in verify.moves(plan, paths):
            moved += 1
            here, there = int(tables[row, source // page]), int(tables[row, target // page])
            for plane in wanted:
                plane[there, :, target % page] = plane[here, :, source % page]
        wrong += sum(not torch.equal(a, b) for a, b in zip(planes, wanted, strict=True))
    wrong += not moved  # else it has shown nothing
    return Row(f"paths that hold, KV in order {kind}".strip(), "wrong tensors", wrong, "", "lower", target=0)


def _passes(chooser: np.random.Generator) -> Row:
    """Graphs beside the host's way, the same trees on the same model in float32, and what the tokens said afterwards
    come to: passes one after the other on two runners."""
    ours, theirs = (graph_check.runner(graphs=True, kv_tokens=20_000)[1] for _ in range(2))
    rows, known = 12, chooser.integers(20, 300, 12).astype(np.int32)
    prompts = [chooser.integers(0, ours.vocab_size, count).tolist() for count in known]
    order, wrong, passes, moved = np.arange(rows, dtype=np.int32), 0, 0, 0
    for made in (ours, theirs):
        _fill(made, prompts, order, known)
    for width in (1, 3, 5, 7, 12, 15, 31, 31):
        drafts = random_drafts(chooser, rows, width, ours.vocab_size)
        plan = StepPlan(order, known.copy(), 1 + drafts.nodes, sample=order >= 0, drafts=drafts)
        _guess_right(theirs, plan)
        found, wanted = ours.launch(plan).wait().verified, theirs._verify(plan).wait().verified
        assert found is not None
        assert wanted is not None
        wrong += found.counts.tolist() != wanted.counts.tolist() or found.tokens.tolist() != wanted.tokens.tolist()
        passes += 1
        moved += int((found.counts > 1).sum())
        known += found.counts
        same = (int((ours.rows.tokens[row] != theirs.rows.tokens[row])[: known[row] + 1].sum()) for row in range(rows))
        wrong += any(same)
    wrong += moved < rows  # else it has shown nothing
    return Row("a graph's pass is the host's, float32", "wrong passes", wrong, f"of {passes}", "lower", target=0)


def _fill(made: ModelRunner, prompts: list[list[int]], order: Int32, known: Int32) -> None:
    for row, prompt in enumerate(prompts):
        temperature = 0.8 * (row % 3 == 1)
        made.add(row, prompt, SamplingParams(temperature=temperature, seed=row, top_k=9 * (row % 2)), len(prompt))
    blocks = [(row, 0, list(range(1 + 40 * row, 41 + 40 * row))) for row in order.tolist()]
    made.launch(StepPlan(order, order * 0, known.copy(), sample=order >= 0, new_blocks=blocks)).wait()


def _guess_right(made: ModelRunner, plan: StepPlan) -> None:
    """The path to each tree's last node becomes what is drawn along it, one token after the other."""
    drafts = plan.drafts
    assert drafts is not None
    tokens, lengths = made.rows.tokens.clone(), made.rows.lengths.clone()
    for place, row in enumerate(plan.rows.tolist()):
        node, path = int(drafts.nodes[place]), []
        while node:
            path.append(node)
            node = int(drafts.parents[place, node - 1])
        for depth, node in enumerate(reversed(path)):
            own, start, one = np.array([[row], [plan.start[place] + depth], [1]], np.int32)
            drafts.tokens[place, node - 1] = made.launch(StepPlan(own, start, one, sample=one > 0)).wait().tokens[0]
    made.rows.tokens.copy_(tokens)
    made.rows.lengths.copy_(lengths)


def _engine() -> Iterator[Row]:
    """With and without guesses: chains, and trees whose first way is the wrong one. All kinds of requests, with a small
    pool too, whose passes the host mostly verifies; and those that a graph takes."""
    everyone = list(zip(*graph_check.requests(60), strict=True))
    plain = [each for index, each in enumerate(everyone) if index % 12 not in (4, 5)]
    for name, asked, kv_tokens in (
        ("all requests", everyone, 40_000), ("a small pool", everyone, 2_400), ("in graphs", plain, 40_000),
    ):  # fmt: skip
        config, made = graph_check.runner(graphs=True, kv_tokens=kv_tokens)
        config, prompts = replace(config, speculation="off"), [prompt for prompt, _ in asked]
        params = [each for _, each in asked]
        wanted = [each.token_ids for each in Offline(config, made).generate(prompts, params)]
        answers = {tuple(prompt): tokens for prompt, tokens in zip(prompts, wanted, strict=True)}
        for kind, fork in (("chains", 0.0), ("trees", 0.4)):
            engine = Offline(config, made, replaying(Script(answers, 12, 0.9, fork)))
            assert engine.scheduler.speculator is not None
            engine.scheduler.speculator.costs = FreeGuesses()
            found = [each.token_ids for each in engine.generate(prompts, params)]
            counts, problems = engine.scheduler.speculator.counts, engine.scheduler.check()
            tried = f"{counts.verified} of {counts.steps} passes verify, {counts.accepted} of {counts.drafted} hold"
            print(f"{name}, {kind}: {tried}; {problems or 'pools clean'}", flush=True)
            wrong = sum(a != b for a, b in zip(found, wanted, strict=True)) + len(problems)
            wrong += 1000 * (not counts.accepted)  # else it has shown nothing
            yield Row(f"guesses in {kind}, {name}, float32", METRICS[3], wrong, f"of {len(asked)}", "lower", target=0)
