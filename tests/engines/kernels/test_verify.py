"""Trees on a GPU, in the interpreter: attention by ancestor words against float64, and what stands around it against
the host's way (`engines.native.speculation.verify`)."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.config import EngineConfig
from engines.native.graph_buckets import width_bucket
from engines.native.kernels.ancestors import ones
from engines.native.kernels.attention import paged_attention
from engines.native.kernels.attention_plan import Device, Workspace, plan
from engines.native.kernels.verify import Planes, accept, compact, prepare_trees
from engines.native.quantized_kv import Fp8Pool, Int8Pool, planes
from engines.native.request import SamplingParams
from engines.native.sample.triton_sampler import TritonSampler
from engines.native.speculation import verify
from engines.native.speculation.tree import ancestors
from engines.native.step import Drafts, StepPlan
from engines.native.verify_graph import VerifyGraphs, warm_up_plans
from evaluation.benchmarks.random_model import TINY, random_runner
from tests.engines.kernels import reference
from tests.engines.kernels.test_quantized_kv import meant, pool_of

pytestmark = [pytest.mark.kernels, pytest.mark.speculation]


def tree(generator: np.random.Generator, nodes: int) -> np.ndarray:
    """Parents, int32 [nodes]."""
    return np.array([generator.integers(0, node + 1) for node in range(nodes)], np.int32)


def drafts_of(generator: np.random.Generator, rows: int, width: int, tokens: int = 3) -> Drafts:
    """Random trees; so few different tokens that many guesses hold."""
    nodes = generator.integers(0, width + 1, rows).astype(np.int32)
    nodes[generator.integers(rows)] = width
    guesses, parents = np.zeros((2, rows, width), np.int32)
    for row, count in enumerate(nodes):
        guesses[row, :count], parents[row, :count] = generator.integers(0, tokens, count), tree(generator, count)
    return Drafts(guesses, parents, nodes, chains=False)


def plan_of(generator: np.random.Generator, drafts: Drafts, starts: np.ndarray) -> StepPlan:
    rows = generator.permutation(len(starts) + 2)[: len(starts)].astype(np.int32)
    return StepPlan(rows, starts.astype(np.int32), 1 + drafts.nodes, sample=np.ones(len(rows), bool), drafts=drafts)


def sent_of(made: StepPlan, width: int, padding: int = 1) -> torch.Tensor:
    drafts = made.drafts
    sent = np.zeros((len(made.rows) + padding, 3 + 2 * width), np.int32)
    sent[-padding:, 0] = -1
    columns = sent[: len(made.rows)]
    columns[:, 0], columns[:, 1], columns[:, 2] = made.rows, made.start, drafts.nodes
    columns[:, 3 : 3 + drafts.width], columns[:, 3 + width : 3 + width + drafts.width] = drafts.tokens, drafts.parents
    return torch.from_numpy(sent)


def attend(case, words, *, window=0, softcap=0.0, split=0, kind=""):
    """(output, float64 reference)."""
    scale = case.q.shape[2] ** -0.5
    launch = plan(
        tokens=case.q.shape[0], rows=case.seq_lens.numel(), group=case.q.shape[1] // case.k_cache.shape[1],
        kv_heads=case.k_cache.shape[1], head_dim=case.q.shape[2], max_query=case.max_query, max_seq=case.max_seq,
        window=window, dtype=case.q.dtype, device=Device.of(case.q.device), pairs=bool(kind), tree=True,
    )  # fmt: skip
    if split:
        launch = replace(launch, split_tokens=split, splits=-(-case.max_seq // split))
    out, keys, values, read = torch.full_like(case.q, torch.nan), case.k_cache, case.v_cache, case
    if kind:
        keys, values = pool_of(keys, kind), pool_of(values, kind)
        read = replace(case, k_cache=meant(keys), v_cache=meant(values))
    paged_attention(
        case.q, keys, values, out, case.cu_query, case.seq_lens, case.block_tables, scale=scale, window=window,
        launch=launch, workspace=Workspace(case.q.device), softcap=softcap, ancestors=words,
    )  # fmt: skip
    return out, reference.attention(read, scale, window, softcap, words)


@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_attention_sees_ancestors_only(data):
    """Beside plain rows; long ones in splits; windows and caps; pools in 8 bits."""
    generator = np.random.default_rng(data.draw(st.integers(0, 999)))
    nodes = data.draw(st.lists(st.sampled_from([0, 1, 2, 7, 12, 31]), min_size=1, max_size=2))
    words = [torch.from_numpy(ancestors(tree(generator, count))) for count in nodes]
    if data.draw(st.booleans()):
        words.append(torch.zeros(data.draw(st.sampled_from([1, 9])), dtype=torch.int32))
    queries = [len(each) for each in words]
    lengths = [count + data.draw(st.sampled_from([0, 3, 20])) for count in queries]
    group, kv_heads = data.draw(st.sampled_from([(1, 2), (3, 1), (2, 1)]))
    page = data.draw(st.sampled_from([1, 4]))
    case = reference.paged_case(queries, lengths, heads=group * kv_heads, kv_heads=kv_heads, head_dim=16, page=page)
    out, wanted = attend(
        case, torch.cat(words), window=data.draw(st.sampled_from([0, 0, 3, 34])),
        softcap=data.draw(st.sampled_from([0.0, 0.8])), split=data.draw(st.sampled_from([0, 32])),
        kind=data.draw(st.sampled_from(["", "", "fp8", "int8"])),
    )  # fmt: skip
    assert reference.relative_error(out, wanted) < 1e-5


def test_padding_behind_a_tree_reads_nothing_of_its_own():
    """Its places in the cache are nobody's and hold NaN; its own output is of no use, but finite."""
    case = reference.paged_case([8], [13], heads=2, kv_heads=1, head_dim=16, page=1)
    for cache in (case.k_cache, case.v_cache):
        cache[case.block_tables[0, 9:13].long()] = torch.nan
    words = torch.ones(8, dtype=torch.int32)
    words[:4] = torch.from_numpy(ancestors(np.array([0, 1, 1], np.int32)))
    out, _ = attend(case, words)
    short = replace(case, q=case.q[:4], cu_query=torch.tensor([0, 4]), seq_lens=torch.tensor([9]))
    wanted = reference.attention(short, 16**-0.5, 0, 0.0, words[:4])
    assert reference.relative_error(out[:4], wanted) < 1e-5
    assert torch.isfinite(out).all()


def test_inputs_of_a_pass_are_those_of_the_host():
    generator = np.random.default_rng(5)
    for width in (1, 12, 31):
        made = plan_of(generator, drafts_of(generator, 3, width, 90), generator.integers(0, 30, 3))
        tokens, tables = torch.randint(0, 90, (8, 96), dtype=torch.int32), torch.randint(1, 99, (8, 24)).int()
        wide = width_bucket(width)
        sent = sent_of(made, wide)
        found = prepare_trees(tokens, tables, sent, width=17, block_size=4)
        depths = verify.depths_of(made.drafts)
        for i, row in enumerate(made.rows):
            real = slice(i * (wide + 1), i * (wide + 1) + int(made.count[i]))
            start, nodes = int(made.start[i]), int(made.drafts.nodes[i])
            ids = [int(tokens[row, start]), *made.drafts.tokens[i, :nodes].tolist()]
            assert found.token_ids[real].tolist() == ids
            assert found.positions[real].tolist() == (start + depths[i, : nodes + 1]).tolist()
            assert found.ends[real].tolist() == (start + depths[i, : nodes + 1] + 1).tolist()
            assert found.words[real].tolist() == ancestors(made.drafts.parents[i, :nodes]).tolist()
            places = range(start, start + nodes + 1)
            assert found.slots[real].tolist() == [int(tables[row, p // 4]) * 4 + p % 4 for p in places]
            assert set(found.lines[real].tolist()) == {int(row)}
            assert found.seq_lens[i] == start + wide + 1
            assert found.block_tables[i].tolist() == tables[row, :17].tolist()
            pads = slice(real.stop, (i + 1) * (wide + 1))
            assert not found.slots[pads].any()
            assert (found.words[pads] == 1).all()
            assert (found.lines[pads] == 7).all()
        assert found.seq_lens[3] == 0
        assert not found.slots[-wide - 1 :].any()
        assert (found.lines[-wide - 1 :] == 7).all()


@pytest.mark.parametrize("kind", ["", "fp8", "int8"])
def test_what_holds_and_where_it_goes(kind):
    """Random trees: the tokens said, the row tables, and all pools are as the host leaves them."""
    generator = np.random.default_rng(7)
    moved = 0
    for width in (1, 6, 31):
        made = plan_of(generator, drafts_of(generator, 4, width, 2), generator.integers(0, 9, 4))
        ends = np.concatenate([[0], np.cumsum(made.count)]).astype(np.int32)
        lines = verify.lines_of(made, ends, verify.depths_of(made.drafts))
        drawn = generator.integers(0, 2, len(lines.rows)).astype(np.int32)
        held, paths = verify.accept(made, lines, drawn)
        wide = width_bucket(width)
        sent, table = sent_of(made, wide), torch.full((5, wide + 1), 1, dtype=torch.int32)
        table[lines.place, lines.node] = torch.from_numpy(drawn)
        tokens, lengths = torch.zeros(6, 64, dtype=torch.int32), torch.zeros(6, dtype=torch.int32)
        said = torch.full((5, wide + 2), -9, dtype=torch.int32)
        nodes = accept(sent, table.flatten(), tokens, lengths, said)
        assert said[:, 0].tolist() == [*held.counts.tolist(), 0]
        assert said[:4, 1 : width + 2].tolist() == held.tokens.tolist()
        for row, start, count, line in zip(made.rows, made.start, held.counts, held.tokens, strict=True):
            assert tokens[row, start + 1 : start + 1 + count].tolist() == line[:count].tolist()
            assert lengths[row] == start + 1 + count
        assert int((tokens != 0).sum()) <= held.counts.sum()
        tables = (torch.randperm(6 * 12) + 1).int().view(6, 12)
        layers = [(pool(kind), pool(kind)) for _ in range(2)]
        wanted = [[plane.clone() for plane in planes(*layer)] for layer in layers]
        compact(Planes.of([plane for layer in layers for plane in planes(*layer)]), sent, said, nodes, tables)
        for row, source, target in verify.moves(made, paths):
            moved += 1
            here, there = (int(tables[row, at // 4]) for at in (source, target))
            for plane in (plane for layer in wanted for plane in layer):
                plane[there, :, target % 4] = plane[here, :, source % 4]
        for layer, expected in zip(layers, wanted, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(planes(*layer), expected, strict=True))
    assert moved > 3


def pool(kind: str):
    values = torch.randint(-99, 99, (6 * 12 + 1, 3, 4, 10), dtype=torch.int8)
    if kind == "fp8":
        return Fp8Pool(values, torch.ones(3), torch.float32)
    return Int8Pool(values, torch.rand(6 * 12 + 1, 3, 4), torch.float32) if kind else values.float()


def test_bits_are_counted():
    import triton
    import triton.language as tl

    @triton.jit
    def count(words, out):
        i = tl.arange(0, 4)
        tl.store(out + i, ones(tl.load(words + i)))

    words, out = torch.tensor([0, -1, 0x40000001, -(2**31)], dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    count[(1,)](words, out)
    assert out.tolist() == [0, 32, 2, 1]


def runner(ops: str = "triton"):
    config = EngineConfig(
        format="safetensors", paths={}, device="cpu", dtype="float32", max_model_len=40, max_num_seqs=3,
        kv_cache_bytes=1 << 18, block_size=8, threads=1, ops=ops,
    )  # fmt: skip
    return random_runner(replace(TINY, layers=1, windows=(0,)), config, seed=5)


def test_a_whole_pass_is_the_hosts():
    """Beside plain torch: trees whose paths hold in part, rows alone and padded, greedy and drawn. What is said and
    where it goes, and the KV cache."""
    ours, theirs = runner(), runner("torch")
    assert isinstance(ours.sampler, TritonSampler)
    graphs = VerifyGraphs(ours.model, ours.rows, ours.sampler, lambda compute, what: None)
    generator = np.random.default_rng(3)
    prompts = [generator.integers(0, TINY.vocab, count).tolist() for count in (3, 2, 4)]
    for made in (ours, theirs):
        for row, prompt in enumerate(prompts):
            params = SamplingParams(temperature=0.0 if row else 0.7, seed=row, top_k=5 * (row == 2))
            made.add(row, prompt, params, len(prompt))
        start, count = np.zeros(3, np.int32), np.array([len(prompt) for prompt in prompts], np.int32)
        blocks = [(row, 0, list(range(1 + 5 * row, 6 + 5 * row))) for row in range(3)]
        rows = np.arange(3, dtype=np.int32)
        made.launch(StepPlan(rows, start, count, sample=start == 0, new_blocks=blocks)).wait()
    known = np.array([len(prompt) for prompt in prompts], np.int32)
    accepted = 0
    for rows in ([0, 1, 2], [1]):
        order = np.array(rows, np.int32)
        drafts = drafts_of(generator, len(rows), 3, TINY.vocab)
        made = StepPlan(order, known[order], 1 + drafts.nodes, sample=np.ones(len(rows), bool), drafts=drafts)
        _guess_right(theirs, made)
        assert graphs.takes(made)
        wanted = theirs._verify(replace(made)).wait().verified
        found = graphs.launch(made).wait().verified
        assert found.counts.tolist() == wanted.counts.tolist()
        assert found.tokens.tolist() == wanted.tokens.tolist()
        known[order] += found.counts
        accepted += int((found.counts - 1).sum())
        for row, length in enumerate(known):
            assert ours.rows.tokens[row, : length + 1].tolist() == theirs.rows.tokens[row, : length + 1].tolist()
            assert ours.rows.lengths[row] == theirs.rows.lengths[row] == length + 1
            at = torch.arange(int(length))
            blocks = ours.rows.block_tables[row, at // 8].long()
            for mine, other in zip(ours.model.kv, theirs.model.kv, strict=True):
                for a, b in zip(mine, other, strict=True):
                    torch.testing.assert_close(a[blocks, :, at % 8], b[blocks, :, at % 8], rtol=1e-4, atol=1e-4)
    assert accepted >= 3


def _guess_right(made, plan: StepPlan) -> None:
    """The last node of each tree's longest path, and those before it, become what is drawn there: as the chain alone
    would show, one token after the other, on a copy of the state."""
    drafts = plan.drafts
    for place, row in enumerate(plan.rows.tolist()):
        node, path = int(drafts.nodes[place]), []
        while node:
            path.append(node)
            node = int(drafts.parents[place, node - 1])
        tokens, lengths = made.rows.tokens.clone(), made.rows.lengths.clone()
        start = int(plan.start[place])
        for node in reversed(path):
            one = np.array([[row], [start], [1]], np.int32)
            drawn = made.launch(StepPlan(*one, sample=np.array([True]))).wait().tokens[0]
            drafts.tokens[place, node - 1] = drawn
            start += 1
        made.rows.tokens.copy_(tokens), made.rows.lengths.copy_(lengths)


def test_what_is_left_to_the_host():
    made = runner()
    graphs = VerifyGraphs(made.model, made.rows, made.sampler, lambda compute, what: None)
    (seven,) = (each for each in warm_up_plans(40) if each.drafts.width == 7)
    made.add(0, [0, 0], SamplingParams(temperature=0), 2)
    assert graphs.takes(seven)
    made.add(0, [0, 0], SamplingParams(temperature=0, presence_penalty=0.5), 2)
    assert not graphs.takes(seven)
    made.add(0, [0, 0], SamplingParams(temperature=0, logprobs=1), 2)
    assert not graphs.takes(seven)
    made.add(0, [0, 0], SamplingParams(temperature=0), 2)
    both = np.zeros(2, np.int32)
    assert not graphs.takes(replace(seven, rows=both, start=both + 1, count=both + 1, sample=both == 0))
    assert [width_bucket(nodes) for nodes in (1, 2, 3, 4, 7, 8, 31)] == [1, 3, 3, 7, 7, 15, 31]


def test_a_form_is_captured_behind_its_first_pass():
    """And replayed from then on."""
    captured, made = [], runner()
    made.add(0, [0, 0], SamplingParams(temperature=0), 2)

    class Graph:
        replays = 0

        def replay(self):
            self.replays += 1

    def capture(compute, what):
        captured.append(what)
        return Graph()

    graphs = VerifyGraphs(made.model, made.rows, made.sampler, capture)
    one = next(iter(warm_up_plans(40)))
    graphs.launch(one)
    (step,) = graphs._graphs.values()
    assert captured == ["1 rows with 1 guesses and 40 keys"]
    assert step.graph.replays == 0
    for replays in (1, 2):
        graphs.launch(one)
        assert step.graph.replays == replays
    assert len(captured) == 1


def test_warm_up_compiles_every_width():
    """In row 0, whose table is empty: all that is written lands in the null block."""
    made = runner()
    made.add(0, [0, 0], SamplingParams(temperature=0), 2)
    graphs = VerifyGraphs(made.model, made.rows, made.sampler, lambda compute, what: None)
    before = made.model.kv[0][0][1:].clone()
    assert [each.drafts.width for each in warm_up_plans(40)] == [1, 3, 7, 15, 31]
    for each in warm_up_plans(4):
        graphs.launch(each).wait()
    assert sorted(width for _, width, _, _ in graphs._graphs) == [1]
    assert torch.equal(before, made.model.kv[0][0][1:])
