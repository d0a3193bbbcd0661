"""SplitKV: flash-decoding attention, compiled for one problem, on NVIDIA GPUs and on the CPU.

    import numpy as np, splitkv

    runtime = splitkv.Runtime()
    kernel = runtime.prepare("cpu", q="fp32", heads=(32, 8), dim=128, lse="natural")
    out, lse, _ = kernel.run(q, k, v)      # anything with __dlpack__; nothing is copied

Everything is a call of the C API (splitkv.h); errors are exceptions that carry its message.
"""

from splitkv import _core
from splitkv._append import Appender
from splitkv._errors import (
    CompileFailed,
    DeviceError,
    InternalError,
    InvalidArgument,
    LibraryMissing,
    NotPrepared,
    OutOfMemory,
    SplitKVError,
    Unsupported,
)
from splitkv._kernel import Binding, BufferSizes, Kernel, KernelInfo, Output, Workspace
from splitkv._merge import Merged, Merger
from splitkv._problem import problem_text
from splitkv._runtime import Runtime, Statistics, Support, supports
from splitkv._tensors import Fault

__version__ = _core.version()

__all__ = [
    "Appender",
    "Binding",
    "BufferSizes",
    "CompileFailed",
    "DeviceError",
    "Fault",
    "InternalError",
    "InvalidArgument",
    "Kernel",
    "KernelInfo",
    "LibraryMissing",
    "Merged",
    "Merger",
    "NotPrepared",
    "OutOfMemory",
    "Output",
    "Runtime",
    "SplitKVError",
    "Statistics",
    "Support",
    "Unsupported",
    "Workspace",
    "problem_text",
    "supports",
]
