"""Whatever is refused says field, value and what would fit, as an exception of its kind."""

import numpy as np
import pytest
import splitkv
from dl_tensor import Producer
from splitkv import InvalidArgument


def refused(kernel, tensors, match, error=InvalidArgument, **options):
    with pytest.raises(error, match=match) as caught:
        kernel.run(*tensors, **options)
    assert isinstance(caught.value, error)


def test_problems_that_cannot_be_had(runtime):
    with pytest.raises(splitkv.Unsupported, match="dim=101.*dim=102 would fit") as caught:
        runtime.prepare("cpu", q="fp32", heads=4, dim=101)
    assert caught.value.status == "unsupported" and isinstance(caught.value, ValueError)
    with pytest.raises(InvalidArgument, match="colour"):
        runtime.prepare("cpu", q="fp32", heads=4, dim=64, colour="red")
    with pytest.raises(InvalidArgument, match="gpu:0"):
        runtime.prepare("gpu:0", q="fp32", heads=4, dim=64)
    with pytest.raises(InvalidArgument, match="has spaces; one word would fit"):
        runtime.prepare("cpu", q="fp32", heads="4 dim=64")
    with pytest.raises(splitkv.SplitKVError, match="tile"):
        runtime.prepare("cpu", q="fp32", heads=4, dim=64, schedule="tile=-3")


def test_support_is_a_bool_with_a_reason():
    assert splitkv.supports("attention q=bf16 heads=32/8 dim=128", "cuda:sm_90a")
    no = splitkv.supports("attention q=bf16 heads=32/8 dim=101", "cuda:sm_90a")
    assert not no and "dim=102 would fit" in no.reason
    with pytest.raises(InvalidArgument):
        splitkv.supports("attention q=bf16 heads=")


def test_dtypes(plain, step):
    q, k, v = step
    refused(plain, (q.astype(np.float64), k, v), "q holds fp64; fp32 would fit", out=np.empty_like(q))
    refused(plain, (q, k.astype(np.float16), v), "k holds fp16; fp32 would fit")
    refused(plain, (q, k, v), "out holds fp16; fp32 would fit", out=np.empty(q.shape, np.float16))
    refused(plain, (q, k, v), "lse holds fp64; fp32 would fit", lse=np.empty((3, 8)))
    refused(plain, (q, k, v), "kv_len holds int16; int32 or int64 would fit", kv_len=np.ones(3, np.int16))


def test_shapes(plain, step):
    q, k, v = step
    refused(plain, (q[:, :7], k, v), r"q has the shape \[3, 7, 64\]; \[batch, q_heads=8, dim=64\] would fit")
    refused(plain, (q, k[:, :1], v), r"k has the shape \[3, 1, 90, 64\]; .*kv_heads=2.* would fit")
    refused(plain, (q, k[0], v), "k has the shape")
    refused(plain, (q, k, v), r"out has the shape \[2, 8, 64\]", out=np.empty((2, 8, 64), np.float32))
    refused(plain, (q, k, v), r"kv_len has the shape \[2\]", kv_len=np.ones(2, np.int32))
    refused(plain, (q, k[:2], v[:2]), "q has a batch of 3, but k holds 2 rows")


def test_strides_and_alignment(plain, step):
    q, k, v = step
    wide = np.zeros((3, 2, 90, 128), np.float32)
    refused(plain, (q, wide[..., ::2], v), "k has a stride of 2 in its last dimension.*contiguous copy.* would fit")
    refused(plain, (q, k, v), "out has a stride of 2", out=np.empty((3, 8, 128), np.float32)[..., ::2])
    refused(plain, (q, wide[..., 1:65], v), "k.*align")
    refused(plain, (q[::-1], k, v), "q has a stride of -")


def test_devices_and_exports(plain, step):
    q, k, v = step
    lse = np.empty((3, 8), np.float32)
    out = np.empty_like(q)
    refused(plain, (Producer(q, device=(2, 1)), k, v), "q lies on cuda:1, but the kernel was prepared on cpu", out=out, lse=lse)
    refused(plain, (q, Producer(k, device=(7, 0)), v), "k lies on device type 7")
    refused(plain, (Producer(q, version=(2, 0)), k, v), "q: managed is of DLPack 2.0; 1.x would fit", out=out, lse=lse)
    refused(plain, (q, k, v), "out: managed has flags=0x1: it is read only", out=Producer(out, read_only=True))
    frozen = out.copy()
    frozen.setflags(write=False)
    refused(plain, (q, k, v), "out.*read.?only", out=frozen)
    refused(plain, (q.astype(">f4"), k, v), "q cannot be seen by DLPack", out=out)
    refused(plain, ([1.0], k, v), "q is of type list; an array with __dlpack__", TypeError)
    refused(plain, (q, k, "v"), "v is of type str; an array with __dlpack__", TypeError)


def test_any_producer_of_either_version_is_taken(plain, step):
    want = plain.run(*step)
    q, k, v = step
    lse = np.empty((3, 8), np.float32)
    out = np.empty_like(q)
    new, old = Producer(q), Producer(k, legacy=True)
    result = plain.run(new, old, v, out=Producer(out), lse=lse)
    assert isinstance(result.out, Producer)
    np.testing.assert_array_equal(out, want.out)
    np.testing.assert_array_equal(lse, want.lse)
    assert new.asked == [{"max_version": (1, 1)}]  # the host has no streams
    assert old.asked == [{"max_version": (1, 1)}, {}]


def test_frozen_tensors_may_be_read(plain, step):
    for tensor in step:
        tensor.setflags(write=False)
    plain.run(*step)


def test_what_is_missing_or_too_much(runtime, plain, step):
    q, k, v = step
    lse = np.empty((3, 8), np.float32)
    refused(plain, (q, None, v), "k is None")
    refused(plain, (q, k, None), "v is NULL")
    refused(plain, (Producer(q), k, v), r"out is None, .*out= a tensor of \[3, 8, 64\] fp32 on cpu")
    refused(plain, (q, k, v), "sink is given, but the problem has no sink=on", sink=np.zeros(8, np.float32))
    refused(plain, (q, k, v), "q_offset is given, but", q_offset=np.zeros(4, np.int32))
    refused(plain, (q, k, v), r"params has \['gain'\]; \[\] would fit", params={"gain": lse})
    refused(plain, (q, k), "binding is given, and k", binding=plain.bind(k, v))
    no_lse = runtime.prepare("cpu", q="fp32", heads=(8, 2), dim=64)
    refused(no_lse, (q, k, v), "lse is given, but the problem has lse=none", lse=lse)
    paged = runtime.prepare("cpu", q="fp32", heads=(8, 2), dim=64, kv_layout="paged:16:hnd")
    pages = np.zeros((4, 2, 16, 64), np.float32)
    refused(paged, (q, pages, pages), "page_table is NULL", kv_len=3)
    refused(paged, (q, pages, pages), "kv_len is None; an int, or a tensor", page_table=np.zeros((3, 1), np.int32))


def test_lengths_beyond_the_cache(runtime, plain, step):
    q, k, v = step
    refused(plain, (q, k, v), "kv_len=91, but the cache holds 90 keys", kv_len=91)
    refused(plain, (q, k, v), r"kv_len\[1\]=200, but the cache holds 90", kv_len=np.array([1, 200, 3]))
    refused(plain, (q, k, v), "kv_len=4294967296 does not fit in 32 bits", kv_len=2**32)
    refused(plain, (q, k, v), "pos0=1.5; a whole number of 64 bits would fit", pos0=1.5)
    refused(plain, (q, k, v), "kv_len is of type float; an array with __dlpack__", TypeError, kv_len=1.5)


def test_a_binding_of_another_problem(runtime, plain, step):
    other = runtime.prepare("cpu", q="fp32", heads=(8, 2), dim=64, lse="base2")
    refused(other, step[:1], "binding", binding=plain.bind(*step[1:]))


def test_streams(plain, step):
    refused(plain, step, "stream is of type str; an int", TypeError, stream="0")
    class Stream:  # noqa: E301
        cuda_stream = 12

    refused(plain, step, "stream", stream=Stream())


def test_checked_kernels_tell_bad_page_ids(runtime, rng):
    kernel = runtime.prepare("cpu", q="fp32", heads=(4, 2), dim=32, kv_layout="paged:16:nhd", checked=True)
    pages = rng.standard_normal((3, 16, 2, 32)).astype(np.float32)
    q = rng.standard_normal((2, 4, 32)).astype(np.float32)
    table = np.array([[0, 1], [2, 9]], np.int32)
    kernel.run(q, pages, pages, kv_len=32, page_table=table)
    fault = kernel.poll_fault()
    assert fault[:4] == (1, 1, 1, 9) and "9" in fault.message
    assert kernel.poll_fault() is None


def test_a_closed_runtime():
    with splitkv.Runtime() as runtime:
        assert not runtime.closed
    assert runtime.closed
    with pytest.raises(InvalidArgument, match="the runtime is closed"):
        runtime.prepare("cpu", q="fp32", heads=4, dim=64)


def test_options_of_a_runtime(tmp_path):
    with pytest.raises(splitkv.NotPrepared):
        splitkv.Runtime(no_jit=True).prepare("cpu", q="fp32", heads=4, dim=64)
    with pytest.raises(InvalidArgument, match="nowhere"):
        splitkv.Runtime(pack=str(tmp_path / "nowhere"))
    with pytest.raises(InvalidArgument, match="threads"):
        splitkv.Runtime(threads=-1)
