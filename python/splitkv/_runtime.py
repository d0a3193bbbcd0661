"""The runtime: compiled kernels in memory and on disk, and the CPU's threads."""

from typing import Any, Callable, NamedTuple, Optional

from splitkv import _core
from splitkv._kernel import Kernel
from splitkv._merge import Merger
from splitkv._problem import problem_text

_NO_JIT, _NO_DISK, _NO_TUNING = 1, 2, 4


class Statistics(NamedTuple):
    """Counts since the runtime was opened; times in milliseconds. A merge counts as a kernel."""

    memory_hits: int
    compiles: int
    compile_failures: int
    compile_ms_total: float
    disk_hits: int
    disk_ms_total: float
    pack_hits: int
    misses: int
    evictions: int


class Support(NamedTuple):
    """Whether a problem can be had on a target: true or false as a bool, and why not."""

    ok: bool
    reason: str

    def __bool__(self) -> bool:
        return self.ok


def supports(problem: Optional[str] = None, target: str = "cpu", **words: Any) -> Support:
    """Can this problem be prepared on this target? Takes microseconds and asks no device.

    problem, words: as for problem_text. target: "cpu", "cpu:x86-64-v3", "cuda:sm_90a", ...
    reason: "" or the rule that refuses, with field, value, limit and what would fit.

    Raises InvalidArgument where a text does not parse.
    """
    reason = _core.supports(problem_text(problem, **words), target)
    return Support(reason is None, reason or "")


class Runtime:
    """Compiles kernels and keeps them. Thread-safe; kernels outlive it.

    no_jit: never compile; prepare raises NotPrepared on a miss. no_disk: neither read nor keep compiled kernels on
    disk. no_tuning: leave the user's tuning records unread. log: called as log(level, line) from any thread, level 0
    (error) to 3 (debug); what it raises is reported as unraisable. threads: of the CPU target, 0: as many as the
    process may use. cache_dir, cache_limit_bytes: where compiled kernels are kept and how many bytes of them; None
    and 0: as SPLITKV_CACHE_DIR and SPLITKV_CACHE_LIMIT say. pack: a file of `splitkv pack`.

    Raises InvalidArgument for a pack that is missing or damaged and for a negative number.
    """

    def __init__(
        self,
        *,
        no_jit: bool = False,
        no_disk: bool = False,
        no_tuning: bool = False,
        log: Optional[Callable[[int, str], None]] = None,
        threads: int = 0,
        cache_dir: Optional[str] = None,
        cache_limit_bytes: int = 0,
        pack: Optional[str] = None,
    ) -> None:
        flags = no_jit * _NO_JIT + no_disk * _NO_DISK + no_tuning * _NO_TUNING
        self._handle = _core.open(flags, log, threads, cache_dir, cache_limit_bytes, pack)

    def prepare(
        self,
        device: str,
        problem: Optional[str] = None,
        *,
        batch: int = 0,
        kv_len: int = 0,
        kv_len_mean: int = 0,
        schedule: Optional[str] = None,
        **words: Any,
    ) -> Kernel:
        """Compiles (or finds) and loads the kernel of one problem on one device; afterwards nothing is lazy.

        device: "cpu", "cpu:x86-64-v3", "cuda:0". problem, words: as for problem_text. batch, kv_len (tokens of the
        longest row), kv_len_mean: hints that choose a schedule, never limits; 0: not known. schedule: words of a
        schedule that are to be so ("splits=7"), None: the library's choice.

        Other threads of Python go on meanwhile; threads that ask for the same kernel wait for one compile.

        Raises InvalidArgument (a text does not parse), Unsupported (a rule refuses), NotPrepared (no_jit),
        CompileFailed, LibraryMissing, DeviceError, OutOfMemory.
        """
        text = problem_text(problem, **words)
        return Kernel(self._handle.prepare(device, text, batch, kv_len, kv_len_mean, schedule))

    def prepare_merge(self, device: str = "cpu", form: str = "lse", base: str = "natural") -> Merger:
        """The merge of partials of a form ("lse": (S, o); "mlo": (m, l, o)) and base ("natural" or "base2").

        Raises as prepare does.
        """
        return Merger(self._handle.prepare_merge(device, form, base), form, device)

    def open_pack(self, path: str) -> None:
        """Takes kernels and tuning records of a pack from now on. Raises InvalidArgument, naming what is wrong."""
        self._handle.open_pack(path)

    def statistics(self) -> Statistics:
        """Kernels found in memory, on disk, in packs; misses, compiles and their time; evictions."""
        return Statistics(**self._handle.statistics())

    def close(self) -> None:
        """Ends the handle; kernels stay usable. Later calls raise InvalidArgument."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        return self._handle.closed

    def __enter__(self) -> "Runtime":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
