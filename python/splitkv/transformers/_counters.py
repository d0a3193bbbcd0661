"""How many attention calls went where, and why."""

import threading
from typing import Dict, NamedTuple


class Counters(NamedTuple):
    """Attention calls of layers since the last reset.

    splitkv, sdpa, eager: calls by what computed them. reasons: the same calls, "path: reason" -> calls.
    """

    splitkv: int
    sdpa: int
    eager: int
    reasons: Dict[str, int]


_lock = threading.Lock()
_calls: Dict[str, int] = {}


def add(path: str, reason: str) -> None:
    """Counts one call."""
    key = f"{path}: {reason}"
    with _lock:
        _calls[key] = _calls.get(key, 0) + 1


def counters() -> Counters:
    """Attention calls since the last reset, of all models and threads of the process.

    A call of SplitKV counts when it runs, also out of a graph of torch.compile; replays of a CUDA graph run no code of
    the host and do not count. Other calls count when Python makes them, so not out of a compiled graph.
    """
    with _lock:
        reasons = dict(_calls)
    totals = {path: 0 for path in ("splitkv", "sdpa", "eager")}
    for key, calls in reasons.items():
        totals[key.split(":")[0]] += calls
    return Counters(**totals, reasons=reasons)


def reset_counters() -> None:
    """Sets all counters of the process to 0."""
    with _lock:
        _calls.clear()
