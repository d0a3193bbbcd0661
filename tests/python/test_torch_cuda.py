"""On a GPU: torch's streams, its allocator, CUDA graphs and torch.compile. Skipped where torch sees none."""

import models
import pytest
import splitkv
import splitkv.torch
import splitkv.transformers
import torch
from reference import attention
from splitkv.torch import _table

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


@pytest.fixture(scope="module")
def attend():
    return splitkv.torch.prepare("cuda", q="bf16", heads=(32, 8), dim=128, lse="natural", batch=4, kv_len=4096)


@pytest.fixture
def step():
    make = torch.Generator("cuda").manual_seed(1)
    sizes = ((4, 32, 128), (4, 8, 3000, 128), (4, 8, 3000, 128))
    q, k, v = (torch.randn(size, generator=make, device="cuda").bfloat16() for size in sizes)
    return q, k, v, torch.tensor([3000, 1, 0, 777], dtype=torch.int32, device="cuda")


def check(found, q, k, v, lengths):
    numbers = [x.float().cpu().numpy() for x in (q[:, None], k.transpose(1, 2), v.transpose(1, 2))]
    out, lse = attention(*numbers, lengths.cpu())
    torch.testing.assert_close(found[0].float().cpu(), torch.tensor(out[:, 0]).float(), rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(found[1].cpu(), torch.tensor(lse[:, 0]).float(), rtol=1e-3, atol=1e-3)


def test_streams(attend, step):
    q, k, v, lengths = step
    check(attend(q, k, v, kv_len=lengths), q, k, v, lengths)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # what is behind it must wait: the run is on this stream
        late = q * 1
        found = attend(late, k, v, kv_len=lengths)
        late.zero_()
    torch.cuda.current_stream().wait_stream(side)
    check(found, q, k, v, lengths)


def test_a_graph_serves_other_lengths(attend, step):
    q, k, v, lengths = step
    outs = []
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        attend(q, k, v, kv_len=lengths)
    torch.cuda.current_stream().wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            outs.append(attend(q, k, v, kv_len=lengths))
    for new in ([1, 2, 3, 4], [3000, 3000, 3000, 3000], [0, 0, 0, 0], [17, 2999, 128, 129]):
        lengths.copy_(torch.tensor(new, dtype=torch.int32))
        q.normal_()
        for out in outs:
            out.out.fill_(torch.nan)
        for _ in range(5):
            graph.replay()
        torch.cuda.synchronize()
        for out in outs:
            check(out, q, k, v, lengths)


def test_nothing_is_compiled_in_a_capture(attend, step):
    q, k, v, lengths = step
    graph = torch.cuda.CUDAGraph()
    fresh = attend.problem + " softcap=11.25"
    with pytest.raises(splitkv.NotPrepared, match="capturing a CUDA graph"):
        with torch.cuda.graph(graph):
            torch.ops.splitkv.decode(q, k, v, fresh, [], kv_len=lengths)
    torch.cuda.synchronize()
    check(attend(q, k, v, kv_len=lengths), q, k, v, lengths)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled(attend, step, mode):
    q, k, v, lengths = step
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, mode=mode)
    def steps(q, k, v, new, slots, lengths):
        attend.append(k, v, new, new, slots=slots)
        out, lse, _ = attend(q * 2, k, v, kv_len=lengths)
        return out, lse

    for i in range(6):
        new = torch.randn(1, 8, 128, device="cuda").bfloat16()
        slots = torch.tensor([3 * 3000 + 777 + i], device="cuda")
        lengths[3] = 778 + i
        torch.compiler.cudagraph_mark_step_begin()
        found = [x.clone() for x in steps(q, k, v, new, slots, lengths)]
        assert torch.equal(k[3, :, 777 + i], new[0])
        check(found, q * 2, k, v, lengths)


def test_merge_on_the_device():
    o, s = torch.randn(3, 5, 2, 64, device="cuda"), torch.randn(3, 5, 2, device="cuda")
    merged = splitkv.torch.merge(o, s)
    weights = torch.softmax(s, 0)[..., None]
    torch.testing.assert_close(merged.o, (o * weights).sum(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(merged.s, torch.logsumexp(s, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_another_device_than_the_current_one():
    attend = splitkv.torch.prepare("cuda:1", q="fp16", heads=(8, 2), dim=64, lse="natural")
    q, k = torch.randn(2, 8, 64, device="cuda:1").half(), torch.randn(2, 2, 300, 64, device="cuda:1").half()
    lengths = torch.tensor([300, 5], dtype=torch.int32, device="cuda:1")
    check(attend(q, k, k, kv_len=lengths), q, k, k, lengths)
    assert torch.cuda.current_device() == 0 and _table.device_text("cuda") == "cuda:0"


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", models.MODELS)
def test_models(name, cache):
    splitkv.transformers.register()
    model, other = models.make(name)
    model = model.cuda()
    splitkv.transformers.reset_counters()
    tokens, logits = models.generate(model, "splitkv", cache == "static")
    assert splitkv.transformers.counters().splitkv == models.LAYERS * (models.STEPS - 1)
    want_tokens, want = models.generate(model, other, cache == "static")
    assert torch.equal(tokens, want_tokens)
    torch.testing.assert_close(logits, want, rtol=1e-3, atol=1e-3)


def test_a_captured_step_of_a_model_follows_its_mask():
    splitkv.transformers.register()
    query = torch.randn(2, 4, 1, 64, device="cuda").half()
    key, value = (torch.randn(2, 2, 200, 64, device="cuda").half() for _ in range(2))
    mask = torch.ones(2, 1, 1, 200, dtype=torch.bool, device="cuda")
    module = torch.nn.Module()

    def call():
        return splitkv.transformers.attention_forward(module, query, key, value, mask)[0]

    call()  # prepares, and looks at the mask
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    for begin, end in ((0, 200), (50, 60), (199, 200)):
        mask.zero_()
        mask[..., begin:end] = True
        graph.replay()
        want = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
        torch.testing.assert_close(out, want.transpose(1, 2), rtol=5e-3, atol=5e-3)
