"""Runs agree with attention in fp64: dtypes, layouts, lengths, masks; and put out what they say."""

import ml_dtypes
import numpy as np
import pytest
from reference import attention

TYPES = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
CLOSE = {"fp32": 2e-5, "fp16": 4e-3, "bf16": 3e-2}


def by_heads(x):  # [batch, kv_heads, tokens, dim] as the reference has it
    return np.swapaxes(x, 1, 2)


@pytest.mark.parametrize("dtype", TYPES)
def test_agrees_with_fp64(runtime, step, dtype):
    kernel = runtime.prepare("cpu", q=dtype, heads=(8, 2), dim=64, lse="natural")
    q, k, v = (x.astype(TYPES[dtype]) for x in step)
    lengths = np.array([90, 1, 0], np.int32)
    result = kernel.run(q, k, v, kv_len=lengths)
    out, lse = attention(q[:, None], by_heads(k), by_heads(v), lengths)
    assert result.out.dtype == TYPES[dtype] and result.lse.dtype == np.float32 and result.partial_l is None
    np.testing.assert_allclose(result.out.astype(np.float64), out[:, 0], rtol=CLOSE[dtype], atol=CLOSE[dtype])
    np.testing.assert_allclose(result.lse, lse[:, 0], rtol=1e-5, atol=1e-4)


def test_fp8_keys_come_as_ml_dtypes_or_as_bytes(runtime, step):
    kernel = runtime.prepare("cpu", q="fp32", kv="e4m3", heads=(8, 2), dim=64, kv_scale="head")
    q, k, v = step[0], *(x.astype(ml_dtypes.float8_e4m3fn) for x in step[1:])
    scale = np.array([0.5, 2], np.float32)
    scaled = [by_heads(x).astype(np.float64) * scale[None, None, :, None] for x in (k, v)]
    want, _ = attention(q[:, None], *scaled, [90] * 3)
    for given in ((k, v), (k.view(np.uint8), v.view(np.uint8))):
        result = kernel.run(q, *given, k_scale=scale, v_scale=scale)
        assert result.lse is None
        np.testing.assert_allclose(result.out, want[:, 0], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("order", ["nhd", "hnd"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_pages_in_any_order(runtime, rng, order, index):
    kernel = runtime.prepare("cpu", q="fp32", heads=(4, 2), dim=32, kv_layout=("paged", 16, order), lse="natural")
    pages = rng.standard_normal((2, 12, 16, 2, 32)).astype(np.float32)
    table = rng.permutation(12).reshape(2, 6).astype(np.int32)
    lengths = np.array([81, 40], index)
    q = rng.standard_normal((2, 4, 32)).astype(np.float32)
    rows = [x[table].reshape(2, 96, 2, 32) for x in pages]
    out, lse = attention(q[:, None], *rows, lengths)
    # hnd as a view of nhd memory: strides are taken as they are.
    k, v = pages if order == "nhd" else np.swapaxes(pages, 2, 3)
    result = kernel.run(q, k, v, kv_len=lengths, page_table=table)
    np.testing.assert_allclose(result.out, out[:, 0], rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(result.lse, lse[:, 0], rtol=1e-5, atol=1e-5)
    flat = kernel.run(q, k, v, kv_len=lengths, page_table=table.ravel(), page_offset=np.array([0, 6], np.int64))
    np.testing.assert_array_equal(flat.out, result.out)


def test_ragged_queries(runtime, rng):
    kernel = runtime.prepare("cpu", q="fp32", heads=4, dim=32, query_len=3, ragged=True, lse="natural")
    k, v = rng.standard_normal((2, 3, 4, 50, 32)).astype(np.float32)
    q = rng.standard_normal((5, 4, 32)).astype(np.float32)
    lengths = np.array([50, 20, 9], np.int32)
    result = kernel.run(q, k, v, kv_len=lengths, q_offset=np.array([0, 1, 1, 4], np.int32))
    for row, tokens in ((0, slice(0, 1)), (2, slice(1, 4))):
        own = slice(row, row + 1)
        out, lse = attention(q[None, tokens], by_heads(k[own]), by_heads(v[own]), lengths[own])
        np.testing.assert_allclose(result.out[tokens], out[0], rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(result.lse[tokens], lse[0], rtol=1e-5, atol=1e-5)
    assert np.all(result.out[4] == 0) and np.all(result.lse[4] == -np.inf)  # of no row


def test_several_queries_another_dim_for_v_and_no_mask(runtime, rng):
    kernel = runtime.prepare("cpu", q="fp32", heads=(4, 1), dim=(48, 32), query_len=2, mask="none", out="fp16")
    q = rng.standard_normal((2, 2, 4, 48)).astype(np.float32)
    k = rng.standard_normal((2, 1, 33, 48)).astype(np.float32)
    v = rng.standard_normal((2, 1, 33, 32)).astype(np.float32)
    result = kernel.run(q, k, v)
    out, _ = attention(q, by_heads(k), by_heads(v), [33, 33], causal=False)
    assert result.out.shape == (2, 2, 4, 32) and result.out.dtype == np.float16
    np.testing.assert_allclose(result.out, out, rtol=2e-3, atol=2e-3)


def test_writes_into_tensors_of_the_caller_with_strides_of_theirs(plain, step):
    q, k, v = step
    room, lse = np.full((3, 16, 64), 7, np.float32), np.empty((3, 8), np.float32)
    result = plain.run(q, k, v, out=room[:, ::2], lse=lse)
    assert result.out.base is room and result.lse is lse
    out, natural = attention(q[:, None], by_heads(k), by_heads(v), [90] * 3)
    np.testing.assert_allclose(room[:, ::2], out[:, 0], rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(lse, natural[:, 0], rtol=1e-5, atol=1e-5)
    assert np.all(room[:, 1::2] == 7)


def test_a_length_for_all_rows(plain, step):
    q, k, v = step
    out, _ = attention(q[:, None], by_heads(k), by_heads(v), [17] * 3)
    for length in (17, np.int64(17)):
        np.testing.assert_allclose(plain.run(q, k, v, kv_len=length).out, out[:, 0], rtol=2e-5, atol=2e-5)


def test_a_binding_serves_many_steps_and_keeps_its_tensors(plain, step):
    q, k, v = step
    layer = plain.bind(k.copy(), v.copy())  # nobody else has these
    assert (layer.blocks, layer.capacity) == (3, 90)
    np.testing.assert_array_equal(plain.run(q, binding=layer).out, plain.run(q, k, v).out)


def test_a_workspace_and_an_allocator_of_the_caller(plain, step):
    asked = []

    def allocator(shape, dtype, device):
        asked.append((shape, dtype, device))
        return np.empty(shape, {"fp32": np.float32, "uint8": np.uint8}[dtype])

    sizes = plain.sizes(4)
    work = plain.workspace(4, allocator=allocator)
    assert work.max_batch == 4
    assert asked == [((n,), "uint8", "cpu") for n in sizes[:2] if n > 0]
    asked.clear()
    result = plain.run(*step, work=work, allocator=allocator)
    assert asked == [((3, 8, 64), "fp32", "cpu"), ((3, 8), "fp32", "cpu")]
    np.testing.assert_array_equal(result.out, plain.run(*step, work=plain.workspace(3)).out)


def test_a_parameter_of_a_score_function(runtime, step):
    kernel = runtime.prepare("cpu", q="fp32", heads=(8, 2), dim=64, params={"gain": "scalar"}, score="score * gain")
    q, k, v = step
    result = kernel.run(q, k, v, params={"gain": np.array([0.25], np.float32)})
    out, _ = attention(q[:, None], by_heads(k), by_heads(v), [90] * 3, scale=0.25 / 8)
    np.testing.assert_allclose(result.out, out[:, 0], rtol=2e-5, atol=2e-5)


def test_a_sink_and_slopes(runtime, step):
    kernel = runtime.prepare("cpu", q="fp32", heads=(8, 2), dim=64, sink=True, lse="natural")
    q, k, v = step
    sink = np.linspace(-1, 6, 8).astype(np.float32)
    result = kernel.run(q, k, v, sink=sink)
    out, lse = attention(q[:, None], by_heads(k), by_heads(v), [90] * 3)
    joined = np.logaddexp(lse[:, 0], sink)
    np.testing.assert_allclose(result.lse, joined, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(result.out, out[:, 0] * np.exp(lse[:, 0] - joined)[..., None], rtol=5e-5, atol=5e-5)
