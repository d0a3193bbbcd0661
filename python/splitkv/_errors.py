"""Statuses of the C API as exceptions. str() is the library's message: field, value, what would fit."""


class SplitKVError(Exception):
    """Whatever the library refuses or fails at.

    status: the name of the C API's status, "invalid_argument" for example.
    """

    status = "unknown"


class InvalidArgument(SplitKVError, ValueError):
    """A text does not parse, a tensor is missing or has the wrong dtype, shape, strides or device."""

    status = "invalid_argument"


class Unsupported(SplitKVError, ValueError):
    """A rule refuses the problem or the schedule on this target; the message says which, and what would fit."""

    status = "unsupported"


class NotPrepared(SplitKVError, RuntimeError):
    """The kernel would have to be compiled, and may not be (no_jit)."""

    status = "not_prepared"


class OutOfMemory(SplitKVError, MemoryError):
    """Memory of the host or the device is full."""

    status = "out_of_memory"


class CompileFailed(SplitKVError, RuntimeError):
    """The compiler's log, its options, and where the source was saved."""

    status = "compile_failed"


class LibraryMissing(SplitKVError, OSError):
    """libcuda, NVRTC or the CPU compiler was not found; the message has every name that was tried."""

    status = "library_missing"


class DeviceError(SplitKVError, RuntimeError):
    """A driver call failed, or a fault was found in device data."""

    status = "device_error"


class InternalError(SplitKVError, RuntimeError):
    """A fault of the library, or a status of a newer one."""

    status = "internal"


_BY_STATUS = {
    1: InvalidArgument,
    2: Unsupported,
    3: NotPrepared,
    4: OutOfMemory,
    5: CompileFailed,
    6: LibraryMissing,
    7: DeviceError,
    8: InternalError,
}


def make_error(status: int, name: str, message: str) -> SplitKVError:
    """The exception of a status; called by the extension module."""
    error = _BY_STATUS.get(status, InternalError)(message)
    error.status = name
    return error
