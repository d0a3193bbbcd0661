"""What a GPU's library and a framework on it are told: against the recording stand-in for libcuda, which computes
nothing. SPLITKV_LIBCUDA names it; NVRTC compiles for real."""

import os

import numpy as np
import pytest
import splitkv
from dl_tensor import Producer
from splitkv import InvalidArgument

pytestmark = pytest.mark.skipif("fake" not in os.environ.get("SPLITKV_LIBCUDA", ""), reason="no stand-in for libcuda")


@pytest.fixture(scope="module")
def kernel(runtime):
    try:
        return runtime.prepare("cuda:0", q="fp16", heads=(8, 2), dim=64, lse="natural", schedule="reduce=kernel")
    except splitkv.LibraryMissing as missing:
        if "nvrtc" not in str(missing):
            raise
        pytest.skip(str(missing))


def on_device(shape, dtype=np.float16, device=(2, 0), **options):
    # 64-byte aligned, as every device allocation is.
    room = np.zeros(int(np.prod(shape)) * np.dtype(dtype).itemsize + 64, np.uint8)
    begin = -room.ctypes.data % 64
    array = room[begin : begin + room.size - 64].view(dtype).reshape(shape)
    return Producer(array, device=device, **options)


@pytest.fixture
def step():
    q, cache = on_device((3, 8, 64)), [on_device((3, 2, 90, 64)) for _ in range(2)]
    return {"q": q, "k": cache[0], "v": cache[1], "kv_len": 90}


def allocator(shape, dtype, device):
    assert device == "cuda:0"
    return on_device(shape, {"fp16": np.float16, "fp32": np.float32, "uint8": np.uint8}[dtype])


class Stream:
    cuda_stream = 48


class OtherStream:
    def __cuda_stream__(self):
        return (0, 64)


@pytest.mark.parametrize("stream, told", [(None, 1), (32, 32), (Stream(), 48), (OtherStream(), 64)])
def test_tensors_are_told_the_stream_of_the_run(kernel, step, stream, told):
    work = kernel.workspace(3, allocator=allocator)
    result = kernel.run(**step, work=work, allocator=allocator, stream=stream)
    assert result.out.shape == (3, 8, 64) and result.lse.shape == (3, 8)
    for tensor in (step["q"], step["k"], step["v"], result.out, result.lse):
        assert tensor.asked == [{"stream": told, "max_version": (1, 1)}]


def test_info(kernel):
    info = kernel.info
    assert info.device == "cuda:0" and info.target == "cuda:sm_90a" and info.split_name.startswith("splitkv_split_")
    assert "extern \"C\"" in info.source and info.kernels_per_run == 2


def test_nothing_is_allocated_unasked(kernel, step):
    with pytest.raises(InvalidArgument, match="work is None; a workspace"):
        kernel.run(**step, allocator=allocator)
    work = kernel.workspace(3, allocator=allocator)
    with pytest.raises(InvalidArgument, match="out is None, and only numpy arrays are made unasked"):
        kernel.run(**step, work=work)
    with pytest.raises(InvalidArgument, match="scratch has 0 bytes"):
        kernel.workspace(3)
    with pytest.raises(InvalidArgument, match="scratch has 16 bytes and state .* would fit a batch of 3"):
        kernel.workspace(3, scratch=on_device((16,), np.uint8))


def test_tensors_elsewhere(kernel, step):
    work = kernel.workspace(3, allocator=allocator)
    options = {**step, "work": work, "allocator": allocator}
    with pytest.raises(InvalidArgument, match="q lies on cpu, but the kernel was prepared on cuda:0"):
        kernel.run(**{**options, "q": step["q"].array})
    with pytest.raises(InvalidArgument, match="k lies on cuda:1, but the kernel was prepared on cuda:0"):
        kernel.run(**{**options, "k": on_device((3, 2, 90, 64), device=(2, 1))})
    with pytest.raises(InvalidArgument, match="kv_len lies on cpu"):
        kernel.run(**{**options, "kv_len": np.ones(3, np.int32)})
    with pytest.raises(InvalidArgument, match="scratch lies on cpu"):
        sizes = kernel.sizes(3)
        kernel.workspace(3, scratch=np.zeros(sizes.scratch_bytes, np.uint8))


def test_merge_and_append_on_a_device(runtime, kernel, step):
    merger = runtime.prepare_merge("cuda:0")
    o, s = on_device((2, 3, 8, 64), np.float32), on_device((2, 3, 8), np.float32)
    merged = merger.merge(o, s, allocator=allocator, stream=32)
    assert merged.o.shape == (3, 8, 64) and o.asked == [{"stream": 32, "max_version": (1, 1)}]
    with pytest.raises(InvalidArgument, match="o lies on cpu, but the call is prepared for cuda:0"):
        merger.merge(o.array, s, allocator=allocator)
    new = on_device((2, 2, 64))
    layer = kernel.bind(step["k"], step["v"])
    kernel.appender().append(layer, new, new, slots=on_device((2,), np.int64), stream=32)
    assert new.asked == [{"stream": 32, "max_version": (1, 1)}] * 2
