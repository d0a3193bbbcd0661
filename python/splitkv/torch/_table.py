"""Kernels of this process by (key, device): what the custom operators look up.

A key is text: the canonical problem, and where a schedule was chosen by words or hints " | " and the canonical
schedule. It says all that is to be known, so a graph that torch keeps on disk finds its kernel in another process.
"""

import threading
from typing import Any, Dict, NamedTuple, Optional, Tuple

import torch

from splitkv._append import Appender
from splitkv._errors import InvalidArgument, NotPrepared
from splitkv._kernel import Kernel
from splitkv._merge import Merger
from splitkv._problem import Shapes, shapes_of
from splitkv._runtime import Runtime

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "uint8": torch.uint8}
_BETWEEN = " | "


class Put(NamedTuple):
    """What a key puts out, for operators that see no data."""

    shapes: Shapes
    out: torch.dtype


_lock = threading.Lock()
_runtime: Optional[Runtime] = None
_kernels: Dict[Tuple[str, str], Kernel] = {}
_appenders: Dict[Tuple[str, str, Optional[str], str], Appender] = {}
_mergers: Dict[Tuple[str, str, str], Merger] = {}
_puts: Dict[str, Put] = {}


def runtime() -> Runtime:
    """The runtime that compiles for torch in this process; opened at the first call."""
    global _runtime
    with _lock:
        if _runtime is None:
            _runtime = Runtime()
        return _runtime


def use_runtime(opened: Runtime) -> None:
    """Compiles with another runtime from now on, of another cache folder or with no_jit=True for example. Kernels that
    were prepared before stay."""
    global _runtime
    if not isinstance(opened, Runtime):
        raise TypeError(f"runtime is of type {type(opened).__name__}; a splitkv.Runtime would fit")
    with _lock:
        _runtime = opened


def device_text(device: Any) -> str:
    """ "cpu" or "cuda:N" of a torch.device or its text; "cuda" is the current one.

    Raises InvalidArgument for a device of another type.
    """
    device = torch.device(device)
    if device.type == "cpu":
        return "cpu"
    if device.type != "cuda":
        raise InvalidArgument(f"device is {device}; cpu or cuda:N would fit")
    return f"cuda:{torch.cuda.current_device() if device.index is None else device.index}"


def capturing() -> bool:
    """Whether the current stream records a CUDA graph."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def refuse_in_capture(what: str, device: str) -> None:
    """Raises NotPrepared where something would be compiled while a CUDA graph is captured."""
    if device != "cpu" and capturing():
        raise NotPrepared(
            f"{what} is not prepared on {device}, and the stream is capturing a CUDA graph, in which nothing can be "
            "compiled; splitkv.torch.prepare, or one call of the same kind before the capture, would fit"
        )


def put_of(key: str) -> Put:
    """Output sizes of a key, without preparing it. Raises InvalidArgument for a text that no handle gave."""
    put = _puts.get(key)
    if put is None:
        try:
            shapes = shapes_of(key.split(_BETWEEN)[0])
            put = Put(shapes, DTYPES[shapes.out])
        except (KeyError, ValueError):
            raise InvalidArgument(
                f"key={key!r} is no canonical problem; the key of a handle (splitkv.torch.prepare) would fit"
            ) from None
        _puts[key] = put
    return put


def kernel_of(key: str, device: str) -> Kernel:
    """The prepared kernel of a key. Prepares it where it is not there yet, but never while capturing."""
    kernel = _kernels.get((key, device))
    if kernel is None:
        put_of(key)
        refuse_in_capture(f"the kernel of {key!r}", device)
        problem, _, schedule = key.partition(_BETWEEN)
        kernel = _kernels.setdefault((key, device), runtime().prepare(device, problem, schedule=schedule or None))
    return kernel


def keep(kernel: Kernel, chosen: bool) -> Tuple[Kernel, str]:
    """Puts a kernel into the table. chosen: its schedule belongs to the key. The kernel that the table has, and its
    key."""
    key = kernel.problem
    if chosen:
        key += _BETWEEN + kernel.info.schedule
    return _kernels.setdefault((key, kernel.device), kernel), key


def appender_of(key: str, device: str, type: Optional[str], places: str) -> Appender:
    """The appender to the caches of a key."""
    appender = _appenders.get((key, device, type, places))
    if appender is None:
        refuse_in_capture(f"the appender of {key!r}", device)
        appender = _appenders.setdefault((key, device, type, places), kernel_of(key, device).appender(type, places))
    return appender


def merger_of(device: str, form: str, base: str) -> Merger:
    """The merger of a form and base."""
    merger = _mergers.get((device, form, base))
    if merger is None:
        refuse_in_capture(f"the merge of form={form} base={base}", device)
        merger = _mergers.setdefault((device, form, base), runtime().prepare_merge(device, form, base))
    return merger
