"""Streams, and tensors that a call puts out."""

import sys
from typing import Any, Callable, NamedTuple, Optional, Sequence, Tuple

from splitkv._errors import InvalidArgument

#: allocator(shape, dtype, device): a new tensor with __dlpack__. dtype: "fp32", "fp16", "bf16" or "uint8";
#: device: "cpu", "cuda:0".
Allocator = Callable[[Tuple[int, ...], str, str], Any]


def is_number(value: Any) -> bool:
    """Whether it is a whole number, of Python or of numpy, and no tensor."""
    return hasattr(value, "__index__") and not hasattr(value, "__dlpack__")


class Fault(NamedTuple):
    """What a kernel with checked=on, a merge or an append found in its data, the first one only.

    code: 1 a page id out of range, 2 a length above the capacity, 3 more queries than query_len, 4 a statistic
    that no partial has, 5 a slot out of range. row, slot: where. value: the bad id, length, count or slot; of code 4
    the bits of the fp32 statistic. message: all of it as a sentence.
    """

    code: int
    row: int
    slot: int
    value: int
    message: str


def fault_of(found: Optional[tuple]) -> Optional[Fault]:
    return None if found is None else Fault(*found)


def stream_handle(stream: Any) -> int:
    """A CUstream: of an int, of an object with __cuda_stream__, cuda_stream (torch) or ptr (cupy); None: 0, the
    default stream."""
    if stream is None:
        return 0
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    raise TypeError(
        f"stream is of type {type(stream).__name__}; an int (CUstream), or an object with __cuda_stream__, "
        "cuda_stream or ptr would fit"
    )


_NUMPY_TYPES = {"fp32": "float32", "fp16": "float16", "uint8": "uint8"}


def _numpy_empty(numpy: Any, shape: Sequence[int], dtype: str) -> Any:
    if dtype in _NUMPY_TYPES:
        return numpy.empty(shape, _NUMPY_TYPES[dtype])
    try:
        import ml_dtypes
    except ImportError:
        raise InvalidArgument(
            f"numpy has no {dtype}; with the package ml_dtypes it has, and out= of your own would fit as well"
        ) from None
    return numpy.empty(shape, ml_dtypes.bfloat16)


def allocate(
    field: str, like: Any, shape: Tuple[int, ...], dtype: str, device: str, allocator: Optional[Allocator]
) -> Any:
    """A tensor that a call writes: of the allocator, else of numpy where `like` is numpy's."""
    if allocator is not None:
        return allocator(shape, dtype, device)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(like, numpy.ndarray):
        return _numpy_empty(numpy, shape, dtype)
    raise InvalidArgument(
        f"{field} is None, and only numpy arrays are made unasked; {field}= a tensor of {list(shape)} {dtype} on "
        f"{device}, or allocator=, would fit"
    )


def shape_of(tensor: Any, field: str) -> Tuple[int, ...]:
    if not hasattr(tensor, "__dlpack__"):
        raise TypeError(
            f"{field} is of type {type(tensor).__name__}; an array with __dlpack__ (numpy, torch, jax, cupy) would fit"
        )
    shape = getattr(tensor, "shape", None)
    if shape is None:
        raise InvalidArgument(f"{field} has no shape that tells what to allocate; out= and lse= of your own would fit")
    return tuple(int(size) for size in shape)
