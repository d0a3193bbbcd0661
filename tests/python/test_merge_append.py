"""Partials join to the whole, in both forms; what is appended is what attention then reads."""

import ml_dtypes
import numpy as np
import pytest
import splitkv
from dl_tensor import Producer
from reference import attention


@pytest.mark.parametrize("form", ["lse", "mlo"])
def test_partials_of_shards_join_to_the_whole(runtime, step, form):
    kernel = runtime.prepare("cpu", q="fp32", out="partial", heads=(8, 2), dim=64, merge=form, mask="none")
    merger = runtime.prepare_merge("cpu", form)
    q, k, v = step
    shards = [slice(0, 30), slice(30, 30), slice(30, 90)]
    parts = []
    for shard in shards:
        empty = shard.start == shard.stop
        keys = slice(0, 1) if empty else shard
        parts.append(kernel.run(q, k[:, :, keys].copy(), v[:, :, keys].copy(), kv_len=0 if empty else None))
    assert (parts[0].partial_l is not None) == (form == "mlo")
    o, s = np.stack([p.out for p in parts]), np.stack([p.lse for p in parts])
    l = np.stack([p.partial_l for p in parts]) if form == "mlo" else None  # noqa: E741
    merged = merger.merge(o, s, l)
    out, lse = attention(q[:, None], np.swapaxes(k, 1, 2), np.swapaxes(v, 1, 2), [90] * 3)
    np.testing.assert_allclose(merged.o, out[:, 0], rtol=2e-5, atol=2e-5)
    if form == "lse":
        assert merged.l is None
        np.testing.assert_allclose(merged.s, lse[:, 0], rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_allclose(merged.s + np.log(merged.l), lse[:, 0], rtol=1e-5, atol=1e-5)
    # In place: the results are part 0.
    again = merger.merge(o, s, l, out=o[0], out_s=s[0], out_l=None if l is None else l[0])
    np.testing.assert_array_equal(again.o, merged.o)
    assert np.shares_memory(again.o, o)


def test_a_statistic_that_no_partial_has(runtime):
    merger = runtime.prepare_merge()
    o, s = np.ones((2, 3, 8), np.float32), np.zeros((2, 3), np.float32)
    s[1, 2] = np.nan
    with pytest.raises(splitkv.DeviceError, match="2"):
        merger.merge(o, s)
    merger.merge(o, np.zeros((2, 3), np.float32))


def test_what_a_merge_refuses(runtime):
    merger = runtime.prepare_merge()
    o, s = np.ones((2, 3, 8), np.float32), np.zeros((2, 3), np.float32)
    with pytest.raises(splitkv.InvalidArgument, match="l is given, but the form is lse"):
        merger.merge(o, s, s)
    with pytest.raises(splitkv.InvalidArgument, match=r"s has the shape \[2, 2\].*\[2, 3\] would fit"):
        merger.merge(o, s[:, :2])
    with pytest.raises(splitkv.InvalidArgument, match="o holds fp64; fp32 would fit"):
        merger.merge(o.astype(np.float64), s)
    with pytest.raises(splitkv.InvalidArgument, match="o has a stride of 2 in dimension 2"):
        merger.merge(np.ones((2, 3, 16), np.float32)[:, :, ::2], s)
    with pytest.raises(splitkv.InvalidArgument, match="out is of|out has the shape"):
        merger.merge(o, s, out=np.empty((3, 4), np.float32))
    with pytest.raises(splitkv.InvalidArgument, match="l is None, but the form is mlo"):
        runtime.prepare_merge("cpu", "mlo").merge(o, s)
    with pytest.raises(splitkv.InvalidArgument, match="form"):
        runtime.prepare_merge("cpu", "sum")


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "e4m3"])
def test_appended_by_slots_is_what_attention_reads(runtime, rng, dtype):
    paged = {"kv_layout": "paged:8:nhd", "lse": "natural"}
    scaled = {"kv_scale": "token"} if dtype == "e4m3" else {}
    kernel = runtime.prepare("cpu", q="fp32", kv=dtype, heads=(4, 2), dim=32, **paged, **scaled)
    kind = {"fp32": np.float32, "bf16": ml_dtypes.bfloat16, "e4m3": np.uint8}[dtype]
    k, v = (np.zeros((5, 8, 2, 32), kind) for _ in range(2))
    scales = {"k_scale": np.zeros((5, 8, 2), np.float32), "v_scale": np.zeros((5, 8, 2), np.float32)} if scaled else {}
    layer = kernel.bind(k, v, **scales)
    new_k, new_v = rng.standard_normal((2, 20, 2, 32)).astype(np.float32)
    table = np.array([[3, 0, 4]], np.int32)
    slots = np.array([table[0, i // 8] * 8 + i % 8 for i in range(20)], np.int64)
    appender = kernel.appender()
    appender.append(layer, new_k[:12], new_v[:12], slots=slots[:12])
    appender.append(layer, new_k[12:], new_v[12:], slots=slots[12:])
    q = rng.standard_normal((1, 4, 32)).astype(np.float32)
    result = kernel.run(q, binding=layer, kv_len=20, page_table=table)
    out, _ = attention(q[:, None], new_k[None], new_v[None], [20])
    close = {"fp32": 2e-5, "bf16": 2e-2, "e4m3": 1e-1}[dtype]
    np.testing.assert_allclose(result.out, out[:, 0], rtol=close, atol=close)
    assert not k[[1, 2]].view(np.uint8).any()  # no page but those of the slots


def test_appended_by_rows(runtime, plain, rng):
    k, v = (np.zeros((2, 2, 6, 64), np.float32) for _ in range(2))
    appender = plain.appender(places="rows")
    new_k, new_v = rng.standard_normal((2, 3, 2, 64)).astype(np.float32)
    lengths, offsets = np.array([2, 5], np.int32), np.array([0, 2, 3], np.int32)
    appender.append(plain.bind(k, v), new_k, new_v, kv_len=lengths, q_offset=offsets)
    np.testing.assert_array_equal(k[0, :, :2], np.swapaxes(new_k[:2], 0, 1))
    np.testing.assert_array_equal(v[1, :, 4], new_v[2])
    assert not k[0, :, 2:].any() and not k[1, :, :4].any() and not k[1, :, 5:].any()


def test_slots_of_a_cache_without_pages(plain, rng):
    k, v = (np.zeros((2, 2, 6, 64), np.float32) for _ in range(2))
    new = rng.standard_normal((2, 2, 64)).astype(np.float32)
    plain.appender().append(plain.bind(k, v), new, new, slots=np.array([6 + 3, -1], np.int64))
    np.testing.assert_array_equal(k[1, :, 3], new[0])
    assert np.count_nonzero(k) == new[0].size


def test_what_an_append_refuses(runtime, plain, rng):
    layer = plain.bind(*(np.zeros((2, 2, 6, 64), np.float32) for _ in range(2)))
    appender = plain.appender()
    new, slots = np.zeros((2, 2, 64), np.float32), np.zeros(2, np.int64)
    with pytest.raises(splitkv.InvalidArgument, match=r"k_new has the shape \[2, 2, 32\]; \[tokens, 2, 64\] would fit"):
        appender.append(layer, new[:, :, :32].copy(), new, slots=slots)
    with pytest.raises(splitkv.InvalidArgument, match="k_new holds fp16; fp32 would fit"):
        appender.append(layer, new.astype(np.float16), new, slots=slots)
    with pytest.raises(splitkv.InvalidArgument, match="slots holds int32; int64 would fit"):
        appender.append(layer, new, new, slots=slots.astype(np.int32))
    with pytest.raises(splitkv.InvalidArgument, match="v_new"):
        appender.append(layer, new, slots=slots)
    with pytest.raises(splitkv.InvalidArgument, match="slots"):
        appender.append(layer, new, new)
    with pytest.raises(splitkv.Unsupported, match="e4m3"):
        plain.appender(type="e4m3")


def test_new_elements_that_are_broadcast(plain, rng):
    k, v = (np.zeros((2, 2, 6, 64), np.float32) for _ in range(2))
    layer, appender = plain.bind(k, v), plain.appender()
    slots = np.array([0, 1, 6], np.int64)
    row = rng.standard_normal(64).astype(np.float32)
    same, dense = np.broadcast_to(row, (3, 2, 64)), np.zeros((3, 2, 64), np.float32)
    for name, tensors in (("k_new", (same, dense)), ("v_new", (dense, same))):
        match = rf"{name} of the shape \[3, 2, 64\] has strides of 0 .*; a contiguous copy would fit"
        with pytest.raises(splitkv.InvalidArgument, match=match):
            appender.append(layer, *tensors, slots=slots)
    with pytest.raises(splitkv.InvalidArgument, match=r"k_new of the shape \[1, 2, 64\] has strides of 0"):
        appender.append(layer, same[:1], dense[:1], slots=slots[:1])
    assert not k.any() and not v.any()
    appender.append(layer, same.copy(), same.copy(), slots=slots)
    np.testing.assert_array_equal(k[0, :, :2], np.broadcast_to(row, (2, 2, 64)))
    assert np.count_nonzero(k) == 6 * np.count_nonzero(row)


def test_one_stride_of_new_elements_may_be_0(plain, rng):
    k, v = (np.zeros((2, 2, 6, 64), np.float32) for _ in range(2))
    a_token = np.broadcast_to(rng.standard_normal((1, 2, 64)).astype(np.float32), (3, 2, 64))
    a_head = np.broadcast_to(rng.standard_normal((3, 1, 64)).astype(np.float32), (3, 2, 64))
    assert [a_token.strides[0], a_head.strides[1]] == [0, 0]
    plain.appender().append(plain.bind(k, v), a_token, a_head, slots=np.array([0, 1, 2], np.int64))
    np.testing.assert_array_equal(k[0, :, :3], np.swapaxes(a_token, 0, 1))
    np.testing.assert_array_equal(v[0, :, :3], np.swapaxes(a_head, 0, 1))


@pytest.mark.parametrize("scale", ["token", "head"])
@pytest.mark.parametrize("name", ["k", "v", "k_scale", "v_scale"])
def test_an_append_writes_no_memory_that_is_read_only(runtime, rng, name, scale):
    kernel = runtime.prepare("cpu", q="fp32", kv="int8", heads=(4, 2), dim=32, kv_layout="bthd", kv_scale=scale)
    sizes = (1, 4, 2) if scale == "token" else (2,)
    tensors = {field: np.zeros((1, 4, 2, 32), np.int8) for field in ("k", "v")}
    tensors |= {field: np.ones(sizes, np.float32) for field in ("k_scale", "v_scale")}
    q, new = rng.standard_normal((1, 4, 32)).astype(np.float32), rng.standard_normal((1, 2, 32)).astype(np.float32)
    before = tensors[name].copy()
    tensors[name].flags.writeable = False
    layer = kernel.bind(**tensors)
    assert not kernel.run(q, binding=layer).out.any()  # to be read, it serves
    slots = np.zeros(1, np.int64)
    if scale == "head" and name.endswith("_scale"):
        kernel.appender().append(layer, new, new, slots=slots)  # reads the scales of heads
        assert tensors["k"].any() and tensors["v"].any()
    else:
        with pytest.raises(splitkv.InvalidArgument, match=f"binding's {name} is read only.*written would fit"):
            kernel.appender().append(layer, new, new, slots=slots)
    np.testing.assert_array_equal(tensors[name], before)


@pytest.mark.parametrize("name", ["k", "v"])
def test_read_only_by_the_flag_of_dlpack(plain, rng, name):
    memory = {field: np.zeros((1, 2, 6, 64), np.float32) for field in ("k", "v")}
    new, slots = rng.standard_normal((1, 2, 64)).astype(np.float32), np.zeros(1, np.int64)
    locked = {field: Producer(array, read_only=field == name) for field, array in memory.items()}
    with pytest.raises(splitkv.InvalidArgument, match=f"binding's {name} is read only"):
        plain.appender().append(plain.bind(**locked), new, new, slots=slots)
    assert not memory["k"].any() and not memory["v"].any()
    free = {field: Producer(array) for field, array in memory.items()}
    plain.appender().append(plain.bind(**free), new, new, slots=slots)
    np.testing.assert_array_equal(memory[name][0, :, 0], new[0])
