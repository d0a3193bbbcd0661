"""Calls of the package with tensors of torch: streams, work buffers, types that DLPack does not carry, gradients."""

import contextlib
import ctypes
from typing import Any, ContextManager, Dict, Optional, Sequence, Tuple

import torch
from torch import Tensor

from splitkv._errors import InvalidArgument
from splitkv._kernel import Binding
from splitkv.torch import _table

#: Types of 8 bits are handed over as bytes; the problem says what they are.
_BYTES = (torch.float8_e4m3fn, torch.float8_e5m2)
_CUDA = 2  # DLPack's number of the kind of device


def refuse_gradients(tensors: Dict[str, Optional[Tensor]]) -> None:
    """Raises InvalidArgument where autograd would have to go through the call. For callers of operators: inside of one
    grad mode is off."""
    if not torch.is_grad_enabled():
        return
    for name, tensor in tensors.items():
        if tensor is not None and tensor.requires_grad:
            raise InvalidArgument(
                f"{name} requires grad, and SplitKV computes no gradients; torch.no_grad(), torch.inference_mode() or "
                f"{name}.detach() would fit"
            )


class OnStream:
    """A GPU's tensor as DLPack takes it, for a run on the stream that torch works on: there is nothing to wait for,
    and torch, which does not know the stream again by its number, is not asked to."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    @property
    def shape(self) -> torch.Size:
        return self._tensor.shape

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__(**{**options, "stream": -1})

    def __dlpack_device__(self) -> Tuple[int, int]:
        return _CUDA, self._tensor.device.index


def plain(tensor: Tensor) -> Any:
    """The tensor as DLPack takes it."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.dtype in _BYTES:
        tensor = tensor.view(torch.uint8)
    return OnStream(tensor) if tensor.is_cuda else tensor


def given(tensors: Dict[str, Optional[Tensor]]) -> Dict[str, Any]:
    """Those that are there, as DLPack takes them."""
    return {name: plain(tensor) for name, tensor in tensors.items() if tensor is not None}


def on(device: torch.device) -> ContextManager[Any]:
    """Makes a GPU the current one, as export by DLPack wants it; nothing to do on the CPU."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def stream_of(device: torch.device) -> int:
    """torch's current stream of a device, as a number; 0 on the CPU."""
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


_driver: Any = None


def _capture_id(stream: int) -> Optional[int]:
    """The driver's number of the capture that a stream is in, which no other capture of the process has; None where
    the driver does not tell."""
    global _driver
    if _driver is None:
        try:
            _driver = ctypes.CDLL("libcuda.so.1").cuStreamGetCaptureInfo_v2
        except (OSError, AttributeError):
            _driver = False
    if not _driver:
        return None
    status, number = ctypes.c_int(0), ctypes.c_uint64(0)
    none = ctypes.c_void_p(None)
    failed = _driver(ctypes.c_void_p(stream), ctypes.byref(status), ctypes.byref(number), none, none, none)
    return None if failed or number.value == 0 else number.value


def order_of(device: torch.device) -> Optional[Tuple[int, int]]:
    """(stream, capture or 0): calls for which it is the same run one after the other, in one graph or in none. None: in
    a graph that cannot be told from others."""
    if device.type != "cuda":
        return (0, 0)
    with on(device):
        stream = stream_of(device)
        if not _table.capturing():
            return (stream, 0)
        capture = _capture_id(stream)
        return None if capture is None else (stream, capture)


def allocator(shape: Sequence[int], dtype: str, device: str) -> Any:
    """Memory of torch's allocator; while a CUDA graph is captured, of the graph's pool."""
    return plain(torch.empty(tuple(shape), dtype=_table.DTYPES[dtype], device=device))


def bind(key: str, device: str, layer: Dict[str, Any], stream: int) -> Binding:
    """Kernel.bind of a key's kernel, for appends: what only runs read may be missing."""
    return _table.kernel_of(key, device).bind(**layer, stream=stream)


def run(key: str, q: Tensor, layer: Dict[str, Any], step: Dict[str, Any], outputs: Dict[str, Any]) -> None:
    """Kernel.run of a key's kernel into outputs, on torch's current stream. layer, step, outputs: of given().

    Buffers of a GPU are made for this run; the stream's order lets their memory go to others at once.
    """
    with on(q.device):
        kernel = _table.kernel_of(key, _table.device_text(q.device))
        stream = stream_of(q.device)
        work = None
        if kernel._needs_work:
            batch = q.shape[0]
            if kernel._shapes.ragged:
                batch = step["q_offset"].shape[0] - 1 if "q_offset" in step else 1
            work = kernel.workspace(max(batch, 1), allocator=allocator, stream=stream)
        kernel.run(plain(q), **layer, **step, **outputs, work=work, stream=stream)
