"""Every option of an attention call of transformers, against its definition in fp64; who computes it; what is refused."""

import math

import pytest
import splitkv
import splitkv.torch
import splitkv.transformers as attention
import torch
from splitkv.torch import _call
from splitkv.transformers import _attention, _fallback, _mask

pytestmark = pytest.mark.usefixtures("registered")


class Module(torch.nn.Module):
    is_causal = True
    num_key_value_groups = 2


def inputs(queries=1, keys=40, dtype=torch.float32):
    make = torch.Generator().manual_seed(1)
    sizes = ((3, 4, queries, 16), (3, 2, keys, 16), (3, 2, keys, 16))
    return [torch.randn(size, generator=make).to(dtype) for size in sizes]


def expected(query, key, value, seen, scale=0.25, softcap=None, sinks=None):
    """seen: bool, or additive with -inf, to be broadcast to [batch, heads, queries, keys]."""
    query, key, value = (x.double() for x in (query, key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)))
    scores = query @ key.transpose(2, 3) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    seen = torch.zeros(seen.shape).masked_fill(~seen, -math.inf) if seen.dtype == torch.bool else seen
    scores = scores + seen.double()
    if sinks is not None:
        scores = torch.cat([scores, sinks.double().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], dim=3)
    weights = torch.softmax(scores, dim=3).nan_to_num(0)[..., : value.shape[2]]
    return (weights @ value.nan_to_num(0)).transpose(1, 2).float()


def call(query, key, value, mask, **options):
    out, weights = attention.attention_forward(Module(), query, key, value, mask, scaling=0.25, **options)
    assert weights is None and out.is_contiguous()
    return out


def intervals(keys=40):
    mask = torch.zeros(3, 1, 1, keys, dtype=torch.bool)
    mask[0, ..., 5:17] = True
    mask[1, ..., :1] = True
    mask[2, ..., 39:] = True
    return mask


@pytest.mark.parametrize("options", [{}, {"softcap": 1.5}, {"s_aux": torch.linspace(-1, 3, 4)}])
def test_no_key_outside_of_the_mask_is_read(options):
    query, key, value = inputs()
    mask = intervals()
    hidden = ~mask[:, :, 0, :, None].expand(3, 2, 40, 16)
    poisoned = key.masked_fill(hidden, math.nan), value.masked_fill(hidden, math.nan)
    want = expected(query, key, value, mask, softcap=options.get("softcap"), sinks=options.get("s_aux"))
    torch.testing.assert_close(call(query, *poisoned, mask, **options), want, rtol=2e-5, atol=2e-5)
    # As a bias, which is how a GPU and a compiled graph take a mask.
    compiled = torch.compile(call, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(query, *poisoned, mask, **options), want, rtol=2e-5, atol=2e-5)
    assert attention.counters().reasons == {"splitkv: one query": 2}


@pytest.mark.parametrize("kind", ["holes", "heads", "one for all", "additive", "half", "cast", "nothing seen"])
def test_masks_of_any_form(kind):
    query, key, value = inputs()
    mask = torch.rand(3, 1, 1, 40, generator=torch.Generator().manual_seed(2)) < 0.5
    if kind == "heads":
        mask = torch.rand(3, 4, 1, 40, generator=torch.Generator().manual_seed(2)) < 0.5
    elif kind == "one for all":
        mask = mask[1:2]
    elif kind == "nothing seen":
        mask[1] = False
    seen = mask
    if kind in ("additive", "half"):
        dtype = torch.float32 if kind == "additive" else torch.bfloat16
        added = torch.randn(3, 1, 1, 40, generator=torch.Generator().manual_seed(4)).to(dtype)
        mask = torch.where(mask, added, torch.finfo(dtype).min)
        seen = torch.where(seen, added.float(), -math.inf)
    elif kind == "cast":
        mask = torch.where(mask, 0.0, torch.finfo(torch.bfloat16).min).float()
    want = expected(query, key, value, seen)
    torch.testing.assert_close(call(query, key, value, mask), want, rtol=2e-5, atol=2e-5)
    if kind == "nothing seen":
        assert torch.all(want[1] == 0)


@pytest.mark.parametrize("queries", [2, 5, 8])
def test_a_few_queries_each_with_keys_of_its_own(queries):
    query, key, value = inputs(queries)
    place = torch.arange(40 - queries, 40)[:, None]
    mask = (torch.arange(40) <= place) & (torch.arange(40) > place - 9)
    mask = mask.expand(3, 1, queries, 40).clone()
    mask[0, :, :, :34] = False
    out = call(query, key, value, mask, softcap=3.0)
    torch.testing.assert_close(out, expected(query, key, value, mask, softcap=3.0), rtol=2e-5, atol=2e-5)
    assert attention.counters().reasons == {"splitkv: few queries": 1}


@pytest.mark.parametrize("window", [None, 1, 7, 39, 40, 100])
def test_a_window_without_a_mask(window):
    query, key, value = inputs()
    seen = torch.arange(40) >= 40 - (window or 40)
    out = call(query, key, value, None, sliding_window=window)
    torch.testing.assert_close(out, expected(query, key, value, seen.view(1, 1, 1, 40)), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype, close", [(torch.float16, 4e-3), (torch.bfloat16, 3e-2)])
def test_types_of_16_bits(dtype, close):
    query, key, value = inputs(dtype=dtype)
    out = call(query, key, value, intervals(), s_aux=torch.ones(4, dtype=dtype))
    assert out.dtype == dtype
    want = expected(query, key, value, intervals(), sinks=torch.ones(4))
    torch.testing.assert_close(out.float(), want, rtol=close, atol=close)


def test_the_operator_is_what_torch_wants():
    query, key, value = inputs()
    lengths = torch.tensor([40, 3, 7], dtype=torch.int32)
    bias, sinks = torch.zeros(1, 1, 1, 40, dtype=torch.float16), torch.ones(4)
    torch.library.opcheck(
        torch.ops.splitkv.model_decode.default,
        (query.transpose(1, 2), key, value, torch.zeros_like(lengths), lengths, bias, sinks, 0.25, 3.0),
    )


def test_a_mask_is_looked_at_again_when_it_changes():
    query, key, value = inputs()
    mask = intervals()
    first = call(query, key, value, mask)
    assert torch.equal(first, call(query, key, value, mask))
    mask[0, ..., 5:10] = False
    out = call(query, key, value, mask)
    assert not torch.equal(first, out)
    torch.testing.assert_close(out, expected(query, key, value, mask), rtol=2e-5, atol=2e-5)
    with torch.inference_mode():
        again = mask.clone()
        assert torch.equal(out, call(query, key, value, again))
        again[0, ..., 5:10] = True
        assert torch.equal(first, call(query, key, value, again))


def test_layers_share_what_a_mask_says_but_graphs_do_not(monkeypatch):
    looks, order, mask = [], [0, 0], intervals()
    look = _mask._look
    monkeypatch.setattr(_mask, "_look", lambda *given: looks.append(1) or look(*given))
    monkeypatch.setattr(_call, "order_of", lambda device: order and tuple(order))
    for order, looked in (
        ([0, 0], 1),
        ([0, 0], 1),
        ([7, 0], 2),  # another stream
        ([7, 31], 3),  # a capture, whose replays read the mask
        ([7, 31], 3),
        ([7, 32], 4),  # another one
        ([7, 0], 5),
        (None, 6),  # captures that cannot be told apart
        (None, 7),
    ):
        _mask.see(mask, 3)
        assert len(looks) == looked


def test_one_kernel_for_all_lengths_and_batches():
    query, key, value = inputs()
    call(query, key, value, None)
    before = splitkv.torch.runtime().statistics()
    for rows, keys in ((1, 40), (2, 3), (3, 33)):
        call(query[:rows], key[:rows, :, :keys], value[:rows, :, :keys], None)
    after = splitkv.torch.runtime().statistics()
    assert after.compiles == before.compiles and after.memory_hits == before.memory_hits


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a", "cpu:x86-64-v3"])
@pytest.mark.parametrize("bias", [None, "fp16"])
@pytest.mark.parametrize(
    "words",
    [
        {"heads": (32, 8), "dim": 128},  # Llama 3.1 8B, Mistral 7B
        {"heads": (64, 8), "dim": 128},  # Qwen 3 32B
        {"heads": (16, 8), "dim": 256, "softcap": 50.0, "scale": 256**-0.5},  # Gemma 2 9B
        {"heads": (64, 8), "dim": 64, "sink": True},  # gpt-oss
    ],
)
def test_sizes_of_models_that_are_in_use(words, bias, target):
    assert splitkv.supports(None, target, q="bf16", mask="none", bias=bias, **words)


# What is not SplitKV's.


@pytest.mark.parametrize("options", [{}, {"softcap": 1.5}, {"s_aux": torch.linspace(-1, 3, 4)}])
@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("masked", [False, True])
def test_prompts_go_elsewhere(monkeypatch, options, window, masked):
    monkeypatch.setattr(_fallback, "_BLOCK_ELEMENTS", 3 * 4 * 30 * 4)  # four queries at a time
    query, key, value = inputs(30, 30)
    seen = _fallback.causal_mask(30, 30, window, torch.device("cpu"))
    out = call(query, key, value, seen if masked else None, sliding_window=window, **options)
    want = expected(query, key, value, seen, softcap=options.get("softcap"), sinks=options.get("s_aux"))
    torch.testing.assert_close(out, want, rtol=2e-5, atol=2e-5)
    assert attention.counters().reasons == {f"{'eager' if options else 'sdpa'}: long query": 1}


def test_rules_of_who_computes():
    query, key, value = inputs(4)
    call(query, key[:, :, :4], value[:, :, :4], None)
    assert attention.counters().reasons == {"sdpa: prompt without a mask": 1}
    attention.reset_counters()
    attention.register(max_query_len=3)
    seen = torch.ones(1, 1, 4, 40, dtype=torch.bool)
    call(query, key, value, seen)
    assert attention.counters().reasons == {"sdpa: long query": 1}
    attention.register(max_query_len=4)
    call(query, key, value, seen)
    assert attention.counters()[:3] == (1, 1, 0)


@pytest.mark.parametrize("options", [{}, {"softcap": 1.5}])
def test_gradients_go_elsewhere(options):
    query, key, value = inputs()
    query.requires_grad_()
    out = call(query, key, value, None, **options)
    out.sum().backward()
    assert query.grad.abs().max() > 0
    with torch.no_grad():
        torch.testing.assert_close(call(query, key, value, None, **options), out, rtol=2e-5, atol=2e-5)
    assert attention.counters().reasons == {f"{'eager' if options else 'sdpa'}: gradients": 1, "splitkv: one query": 1}


@pytest.mark.parametrize(
    "options, match",
    [
        ({"dropout": 0.1}, "dropout is 0.1.*model.eval"),
        ({"output_attentions": True}, "output_attentions is True.*eager"),
        ({"position_bias": torch.zeros(1)}, "position_bias is a Tensor, which the attention splitkv does not know"),
        ({"cu_seq_lens_q": torch.zeros(2)}, "cu_seq_lens_q is a Tensor"),
        ({"temperature": 0.5}, "temperature is 0.5"),
        ({"softcap": 0.0}, "softcap is 0.0; a number above 0"),
    ],
)
@pytest.mark.parametrize("queries", [1, 30])
def test_options_that_are_refused(options, match, queries):
    with pytest.raises(splitkv.InvalidArgument, match=match):
        call(*inputs(queries), None, **options)
    assert sum(attention.counters()[:3]) == 0


def test_options_without_effect_are_taken():
    query, key, value = inputs()
    want = call(query, key, value, None)
    options = {"position_ids": torch.zeros(1), "use_cache": True, "output_attentions": False, "position_bias": None}
    assert torch.equal(want, call(query, key, value, None, **options, cu_seq_lens_k=None))


def test_tensors_that_are_refused():
    query, key, value = inputs()
    for mask in (torch.ones(3, 40, dtype=torch.bool), intervals(41), intervals().long()):
        with pytest.raises(splitkv.InvalidArgument, match=r"attention_mask is .*\[3 or 1, 4 or 1, 1, 40\] would fit"):
            call(query, key, value, mask)
    with pytest.raises(splitkv.InvalidArgument, match="query holds torch.float64; float32"):
        call(query.double(), key, value, None)
    with pytest.raises(splitkv.Unsupported, match="dim=15"):
        call(query[..., :15].contiguous(), key[..., :15].contiguous(), value[..., :15].contiguous(), None)


def test_what_register_refuses():
    for words, match in (
        ({"max_query_len": 0}, "max_query_len is 0; 1 to 64"),
        ({"max_query_len": 65}, "max_query_len is 65"),
        ({"batch": -1}, "batch is -1"),
        ({"kv_len": -1}, "kv_len is -1"),
        ({"name": "sdpa"}, "name is 'sdpa'"),
    ):
        with pytest.raises(splitkv.InvalidArgument, match=match):
            attention.register(**words)
    assert _attention.settings == _attention.Settings()


def test_a_capture_compiles_nothing(monkeypatch):
    from splitkv.torch import _table

    monkeypatch.setattr(_table, "capturing", lambda: True)
    monkeypatch.setattr(_table, "device_text", lambda device: "cuda:0")
    query, key, value = inputs()
    with pytest.raises(splitkv.NotPrepared, match="softcap=7.25.*capturing a CUDA graph.*one call of the same kind"):
        call(query, key, value, None, softcap=7.25)
