"""SplitKV as operators of torch: results, graphs of torch.compile, what is written, gradients, keys, threads."""

import ctypes
import gc
import pathlib
import re
import shutil
import threading

import pytest
import splitkv
import splitkv.torch
import torch
import torch._dynamo.testing
from reference import attention
from splitkv.torch import _call, _table

CLOSE = {"fp32": 2e-5, "fp16": 4e-3, "bf16": 3e-2}
TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
ops = torch.ops.splitkv
# Inductor compiles C++; the graph before it is the same.
BACKEND = "inductor" if shutil.which("g++") else "aot_eager"


def new(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def step():
    """q, k, v of 3 rows of 90 tokens, and their lengths."""
    lengths = torch.tensor([90, 1, 0], dtype=torch.int32)
    return new(3, 8, 64), new(3, 2, 90, 64, seed=2), new(3, 2, 90, 64, seed=3), lengths


@pytest.fixture(scope="module")
def attend():
    return splitkv.torch.prepare("cpu", q="fp32", heads=(8, 2), dim=64, lse="natural")


def wanted(q, k, v, lengths, **options):
    numbers = [x.float().numpy() for x in (q[:, None], k.transpose(1, 2), v.transpose(1, 2))]
    out, lse = attention(*numbers, lengths, **options)
    return torch.tensor(out[:, 0]).float(), torch.tensor(lse[:, 0]).float()


def close(found, want, dtype="fp32"):
    torch.testing.assert_close(found.float(), want, rtol=CLOSE[dtype], atol=CLOSE[dtype])


def compiles():
    statistics = splitkv.torch.runtime().statistics()
    return statistics.compiles + statistics.disk_hits


@pytest.mark.parametrize("dtype", TYPES)
def test_agrees_with_fp64(step, dtype):
    attend = splitkv.torch.prepare(torch.device("cpu"), q=dtype, heads=(8, 2), dim=64, lse="natural")
    q, k, v = (x.to(TYPES[dtype]) for x in step[:3])
    out, lse, partial_l = attend(q, k, v, kv_len=step[3])
    want, want_lse = wanted(q, k, v, step[3])
    assert out.dtype == TYPES[dtype] and lse.dtype == torch.float32 and partial_l is None
    close(out, want, dtype)
    close(lse, want_lse)


def test_lengths_and_batches_share_a_kernel(attend, step):
    q, k, v, _ = step
    before = compiles()
    close(attend(q, k, v).out, wanted(q, k, v, [90] * 3)[0])
    close(attend(q, k, v, kv_len=7).out, wanted(q, k, v, [7] * 3)[0])
    long = torch.tensor([3, 4, 5])
    close(attend(q, k, v, kv_len=long).out, wanted(q, k, v, long)[0])
    close(attend(q[1:2], k[1:2], v[1:2], kv_len=33).out, wanted(q[1:2], k[1:2], v[1:2], [33])[0])
    assert splitkv.torch.prepare("cpu", attend.problem).key == attend.key
    assert splitkv.torch.prepare("cpu", attend.problem).kernel is attend.kernel
    assert compiles() == before


def test_into_tensors_that_are_given(attend, step):
    q, k, v, lengths = step
    room, lse = torch.full((3, 16, 64), 7.0), torch.empty(3, 8)
    result = attend.out(q, k, v, kv_len=lengths, out=room[:, ::2], lse=lse)
    want, want_lse = wanted(q, k, v, lengths)
    close(room[:, ::2], want)
    close(lse, want_lse)
    assert result.lse is lse and torch.all(room[:, 1::2] == 7)
    silent = splitkv.torch.prepare("cpu", q="fp32", heads=(8, 2), dim=64)
    out = torch.empty(3, 8, 64)
    assert silent.out(q, k, v, out=out).lse is None and silent(q, k, v).lse is None
    close(out, wanted(q, k, v, [90] * 3)[0])
    with pytest.raises(splitkv.InvalidArgument, match="lse is None; a tensor fp32 like q without"):
        attend.out(q, k, v, out=out)
    with pytest.raises(splitkv.InvalidArgument, match="lse is given; None would fit"):
        silent.out(q, k, v, out=out, lse=lse)
    with pytest.raises(splitkv.InvalidArgument, match=r"out .*\[3, 8, 32\]"):
        silent.out(q, k, v, out=out[..., :32])


def test_pages_scales_and_types_of_8_bits():
    words = {"kv_layout": ("paged", 16, "nhd"), "kv": "e4m3", "kv_scale": "head"}
    attend = splitkv.torch.prepare("cpu", q="fp32", heads=(4, 2), dim=32, **words)
    pages = [new(12, 16, 2, 32, seed=seed).to(torch.float8_e4m3fn) for seed in (1, 2)]
    table = torch.randperm(12, generator=torch.Generator().manual_seed(1)).view(2, 6).int()
    scale, q, lengths = torch.tensor([0.5, 2.0]), new(2, 4, 32), torch.tensor([81, 40])
    found = attend(q, *pages, kv_len=lengths, page_table=table, k_scale=scale, v_scale=scale)
    k, v = (page.float()[table.long()].reshape(2, 96, 2, 32) * scale[:, None] for page in pages)
    close(found.out, wanted(q, k.transpose(1, 2), v.transpose(1, 2), lengths)[0])


def test_ragged_queries_parameters_and_a_sink(step):
    attend = splitkv.torch.prepare("cpu", q="fp32", heads=4, dim=32, query_len=3, ragged=True)
    k, v, q = new(2, 4, 50, 32), new(2, 4, 50, 32, seed=2), new(4, 4, 32, seed=3)
    lengths, offsets = torch.tensor([50, 20], dtype=torch.int32), torch.tensor([0, 1, 4], dtype=torch.int32)
    found = attend(q, k, v, kv_len=lengths, q_offset=offsets).out
    close(found[:1], wanted(q[:1], k[:1], v[:1], [50])[0])
    close(found[3:], wanted(q[3:], k[1:], v[1:], [20])[0])
    q, k, v, _ = step
    scored = splitkv.torch.prepare(
        "cpu", q="fp32", heads=(8, 2), dim=64, params={"gain": "scalar"}, score="score * gain", sink=True
    )
    found = scored(q, k, v, params={"gain": torch.tensor([0.25])}, sink=torch.full((8,), -torch.inf)).out
    close(found, wanted(q, k, v, [90] * 3, scale=0.25 / 8)[0])
    with pytest.raises(splitkv.InvalidArgument, match=r"params has \[\]; \['gain'\] would fit"):
        scored(q, k, v, sink=torch.zeros(8))
    with pytest.raises(splitkv.InvalidArgument, match="params has 0 tensors; 1, for .*gain"):
        ops.decode(q, k, v, scored.key, [], sink=torch.zeros(8))


# Graphs.


@pytest.mark.parametrize("name", ["decode", "decode_out", "append", "merge", "merge_out"])
def test_operators_are_what_torch_wants(attend, step, name):
    q, k, v, lengths = step
    partials = new(3, 5, 2, 16), new(3, 5, 2, seed=2), new(3, 5, 2, seed=3).abs()
    slots = torch.tensor([4, 100], dtype=torch.int64)
    arguments = {
        "decode": ((q, k, v, attend.key, []), {"kv_len": lengths}),
        "decode_out": ((q, k, v, attend.key, new(3, 8, 64), new(3, 8), None, []), {"kv_len_all": 5}),
        "append": ((k, v, new(2, 2, 64), new(2, 2, 64), attend.key, "slots"), {"slots": slots}),
        "merge": ((*partials, "mlo", "natural"), {}),
        "merge_out": ((*partials[:2], None, "lse", "base2", new(5, 2, 16), new(5, 2), None), {}),
    }[name]
    torch.library.opcheck(getattr(ops, name).default, *arguments)


def test_one_graph_for_all_lengths_and_few_for_batches(attend, step):
    q, k, v, _ = step
    torch._dynamo.reset()
    graphs = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")

    @torch.compile(fullgraph=True, backend=graphs)
    def layer(q, k, v, lengths):
        out, lse, _ = attend(q * 2, k, v, kv_len=lengths)
        return out + 1, lse

    before = compiles()
    for lengths in ([90, 1, 0], [5, 6, 7], [33, 34, 35]):
        out, lse = layer(q, k, v, torch.tensor(lengths, dtype=torch.int32))
        want, want_lse = wanted(q * 2, k, v, lengths)
        close(out, want + 1)
        close(lse, want_lse)
    assert graphs.frame_count == 1
    for rows in (2, 3, 2):
        out, _ = layer(q[:rows], k[:rows], v[:rows], torch.full((rows,), 50))
        close(out, wanted(q[:rows] * 2, k[:rows], v[:rows], [50] * rows)[0] + 1)
    assert compiles() == before and graphs.frame_count <= 3


def test_the_order_of_appends_and_reads_is_kept(attend):
    """A graph that takes an append for a call without effect would read the cache of before."""
    torch._dynamo.reset()
    cache = [torch.zeros(2, 2, 8, 64) for _ in range(2)]

    @torch.compile(fullgraph=True, backend=BACKEND)
    def steps(q, k, v, news, slots):
        outs = []
        for i in range(3):
            attend.append(k, v, news[i], news[i] * 2, slots=slots + i)
            outs.append(attend(q, k, v, kv_len=i + 1).out)
        return torch.stack(outs)

    q, news = new(2, 8, 64), new(3, 2, 2, 64, seed=2)
    outs = steps(q, *cache, news, torch.tensor([0, 8]))
    k = news.permute(1, 2, 0, 3)  # [row, head, token, dim]
    torch.testing.assert_close(cache[0][:, :, :3], k)
    torch.testing.assert_close(cache[1][:, :, :3], k * 2)
    for i in range(3):
        close(outs[i], wanted(q, k, k * 2, [i + 1] * 2)[0])


def test_outputs_that_a_graph_writes(attend, step):
    q, k, v, lengths = step
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def into(q, k, v, out, lse):
        attend.out(q, k, v, kv_len=lengths, out=out, lse=lse)
        return out * 2

    out, lse = torch.full((3, 8, 64), 7.0), torch.empty(3, 8)
    twice = into(q, k, v, out, lse)
    want, want_lse = wanted(q, k, v, lengths)
    close(out, want)
    close(twice, want * 2)
    close(lse, want_lse)


# Partials and new keys.


@pytest.mark.parametrize("form", ["lse", "mlo"])
def test_partials_join(step, form):
    q, k, v, _ = step
    part = splitkv.torch.prepare("cpu", q="fp32", out="partial", heads=(8, 2), dim=64, merge=form, mask="none")
    parts = [part(q, k[:, :, own], v[:, :, own]) for own in (slice(0, 30), slice(30, 90))]
    assert (parts[0].partial_l is not None) == (form == "mlo")
    o, s, l = (torch.stack(x) if x[0] is not None else None for x in zip(*parts))  # noqa: E741
    merged = splitkv.torch.merge(o, s, l, form=form)
    want, want_lse = wanted(q, k, v, [90] * 3)
    close(merged.o, want)
    close(merged.s if form == "lse" else merged.s + merged.l.log(), want_lse)
    assert (merged.l is None) == (form == "lse")
    first = None if l is None else l[0]
    again = splitkv.torch.merge_out(o, s, l, form=form, out=o[0], out_s=s[0], out_l=first)
    assert torch.equal(o[0], merged.o) and torch.equal(s[0], merged.s) and again.o.data_ptr() == o.data_ptr()
    with pytest.raises(splitkv.InvalidArgument, match="form"):
        splitkv.torch.merge(o, s, form="sum")


def test_appended_by_rows(attend):
    k, v = torch.zeros(2, 2, 6, 64), torch.zeros(2, 2, 6, 64)
    fresh, lengths = new(3, 2, 64), torch.tensor([2, 5], dtype=torch.int32)
    offsets = torch.tensor([0, 2, 3], dtype=torch.int32)
    attend.append(k, v, fresh, fresh * 2, places="rows", kv_len=lengths, q_offset=offsets)
    torch.testing.assert_close(k[0, :, :2], fresh[:2].transpose(0, 1))
    torch.testing.assert_close(v[1, :, 4], fresh[2] * 2)
    assert k.count_nonzero() == fresh.numel()
    with pytest.raises(splitkv.InvalidArgument, match="k_new holds fp16"):
        attend.append(k, v, fresh.half(), fresh.half(), slots=torch.zeros(3, dtype=torch.int64))


# Gradients, keys, threads, errors.


def test_gradients_are_refused(attend, step):
    q, k, v, lengths = step
    learned = q.clone().requires_grad_()
    match = "q requires grad, and SplitKV computes no gradients.*detach"
    out, lse = torch.empty(3, 8, 64), torch.empty(3, 8)
    for call in (
        lambda: attend(learned, k, v),
        lambda: attend.out(learned, k, v, out=out, lse=lse),
    ):
        with pytest.raises(splitkv.InvalidArgument, match=match):
            call()
    with pytest.raises(splitkv.InvalidArgument, match="an argument requires grad, and SplitKV computes no gradients"):
        ops.decode(learned, k, v, attend.key, [])
    with pytest.raises(splitkv.InvalidArgument, match="k_new requires grad"):
        new_k = new(2, 2, 64).requires_grad_()
        attend.append(k, v, new_k, new_k, slots=torch.zeros(2, dtype=torch.int64))
    with pytest.raises(splitkv.InvalidArgument, match="o requires grad"):
        splitkv.torch.merge(new(2, 3, 8).requires_grad_(), new(2, 3))
    with pytest.raises(splitkv.InvalidArgument, match="bias requires grad"):
        attend(q, k, v, bias=new(1, 1, 1, 90).requires_grad_())
    torch._dynamo.reset()
    compiled = torch.compile(lambda q: ops.decode(q, k, v, attend.key, [])[0], fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="SplitKV computes no gradients"):
        compiled(learned)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            close(attend(learned, k, v, kv_len=lengths).out, wanted(q, k, v, lengths)[0])


def test_a_kernel_outlives_its_handle(step):
    q, k, v, _ = step
    handle = splitkv.torch.prepare("cpu", q="fp32", heads=(8, 2), dim=64, softcap=9.5)
    key, want = handle.key, handle(q, k, v).out
    del handle
    gc.collect()
    before = compiles()
    assert torch.equal(ops.decode(q, k, v, key, [])[0], want) and compiles() == before


def test_a_key_says_all(monkeypatch, step):
    """Also in a process that has prepared nothing, as one that reads a graph from disk."""
    q, k, v, _ = step
    chosen = splitkv.torch.prepare("cpu", q="fp32", heads=(8, 2), dim=64, schedule="tile=16")
    assert chosen.key == f"{chosen.problem} | {chosen.kernel.info.schedule}" and "tile=16" in chosen.key
    plain = splitkv.torch.prepare("cpu", q="fp32", heads=(8, 2), dim=64)
    hinted = splitkv.torch.prepare("cpu", q="fp32", heads=(8, 2), dim=64, batch=4, kv_len=1000)
    assert plain.key == plain.problem and hinted.key.startswith(plain.problem + " | schedule ")
    found = {handle.key: handle(q, k, v).out for handle in (chosen, plain)}
    monkeypatch.setattr(_table, "_kernels", {})
    monkeypatch.setattr(_table, "_puts", {})
    for key, out in found.items():
        assert torch.equal(ops.decode(q, k, v, key, [])[0], out)
        assert _table.kernel_of(key, "cpu").info.schedule == (chosen if "|" in key else plain).kernel.info.schedule


def test_threads(attend, step):
    q, k, v, lengths = step
    want, differing, barrier = attend(q, k, v, kv_len=lengths), [], threading.Barrier(6)
    fresh = "attention q=fp32 kv=fp32 heads=8/2 dim=64 softcap=3.5"  # prepared by all of them at once

    def work():
        barrier.wait()
        capped = ops.decode(q, k, v, fresh, [])[0]
        for _ in range(20):
            found = attend(q, k, v, kv_len=lengths)
            same = torch.equal(found.out, want.out) and torch.equal(found.lse, want.lse)
            if not (same and torch.equal(ops.decode(q, k, v, fresh, [])[0], capped)):
                differing.append(found)

    before = splitkv.torch.runtime().statistics().compiles
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not differing and splitkv.torch.runtime().statistics().compiles == before + 1


def test_nothing_is_compiled_in_a_capture(monkeypatch, attend):
    monkeypatch.setattr(_table, "capturing", lambda: True)
    match = "is not prepared on cuda:0, and the stream is capturing a CUDA graph.*splitkv.torch.prepare"
    for look_up in (
        lambda: _table.kernel_of(attend.key, "cuda:0"),
        lambda: _table.appender_of(attend.key, "cuda:0", None, "slots"),
        lambda: _table.merger_of("cuda:0", "lse", "natural"),
    ):
        with pytest.raises(splitkv.NotPrepared, match=match):
            look_up()
    _table.kernel_of(attend.key, "cpu")


def test_tensors_of_a_gpu_are_asked_for_without_events():
    class Recorded:
        shape, device = torch.Size([3]), torch.device("cuda:1")

        def __dlpack__(self, **options):
            return options

    tensor = _call.OnStream(Recorded())
    assert tensor.__dlpack_device__() == (2, 1) and tensor.shape == (3,)
    assert tensor.__dlpack__(stream=48, max_version=(1, 1)) == {"stream": -1, "max_version": (1, 1)}


def test_captures_are_told_apart_by_the_drivers_number(monkeypatch):
    pointer, call = ctypes.c_void_p, ctypes.CFUNCTYPE
    answer = {}

    def driver(stream, status, number, graph, nodes, count):
        assert (stream, graph, nodes, count) == (5, None, None, None)
        status[0], number[0] = 1, answer["number"]
        return answer["failed"]

    kind = call(
        ctypes.c_int, pointer, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_uint64), pointer, pointer, pointer
    )
    monkeypatch.setattr(_call, "_driver", kind(driver))
    for number, failed, told in ((2**40 + 31, 0, 2**40 + 31), (0, 0, None), (31, 1, None)):
        answer.update(number=number, failed=failed)
        assert _call._capture_id(5) == told
    monkeypatch.setattr(_call, "_driver", False)  # no driver, or an old one
    assert _call._capture_id(5) is None and _call.order_of(torch.device("cpu")) == (0, 0)


def test_the_runtime_may_be_another(monkeypatch):
    monkeypatch.setattr(_table, "_runtime", splitkv.torch.runtime())
    splitkv.torch.use_runtime(splitkv.Runtime(no_jit=True, no_disk=True))
    with pytest.raises(splitkv.NotPrepared):
        splitkv.torch.prepare("cpu", q="fp32", heads=(8, 2), dim=64, softcap=77)
    with pytest.raises(TypeError, match="a splitkv.Runtime would fit"):
        splitkv.torch.use_runtime(None)


def test_what_is_refused(attend, step):
    q, k, v, lengths = step
    with pytest.raises(splitkv.InvalidArgument, match="key='nothing' is no canonical problem"):
        ops.decode(q, k, v, "nothing", [])
    with pytest.raises(splitkv.InvalidArgument, match="q lies on meta, but the kernel was prepared on cpu"):
        attend(q.to("meta"), k, v)
    with pytest.raises(splitkv.InvalidArgument, match="device is meta; cpu or cuda:N would fit"):
        splitkv.torch.prepare("meta", q="fp32", heads=2, dim=16)
    with pytest.raises((TypeError, RuntimeError), match="windows"):
        attend(q, k, v, windows=3)
    with pytest.raises(splitkv.InvalidArgument, match="kv_len and kv_len_all are given"):
        ops.decode(q, k, v, attend.key, [], kv_len=lengths, kv_len_all=3)
    with pytest.raises(splitkv.InvalidArgument, match=r"kv_len\[0\]=91"):
        attend(q, k, v, kv_len=torch.tensor([91, 0, 0]))
    with pytest.raises(splitkv.InvalidArgument, match="q holds fp16; fp32"):
        attend(q.half(), k, v)
    with pytest.raises(splitkv.Unsupported, match="dim=101"):
        splitkv.torch.prepare("cpu", q="fp32", heads=4, dim=101)


@pytest.mark.parametrize("name", splitkv.torch.__all__)
def test_everything_public_is_documented(name):
    thing = getattr(splitkv.torch, name)
    assert thing.__doc__ and len(thing.__doc__) > 30


def test_the_example_of_the_documents():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "pytorch.md").read_text()
    names = {}
    exec(re.search(r"```python\n(.*?)```", page, re.S).group(1), names)
    torch.testing.assert_close(names["out"], torch.ones(2, 32, 128))
    torch.testing.assert_close(names["twice"], torch.full((2, 32, 128), 2.0))
    want = torch.tensor([1000.0, 17.0]).log()[:, None] + 128**0.5
    torch.testing.assert_close(names["lse"], want.expand(2, 32))
