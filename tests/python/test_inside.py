"""Texts, information, statistics, logs, and the threads of Python."""

import pathlib
import re
import sys
import threading
import time

import numpy as np
import pytest
import splitkv
from splitkv import problem_text


def test_texts_of_problems():
    assert problem_text(q="bf16", heads=(32, 8), dim=128) == "attention q=bf16 heads=32/8 dim=128"
    words = {"kv_layout": ("paged", 16, "nhd"), "ragged": True, "sink": False, "softcap": 2.5, "window": None}
    assert problem_text("q=fp16", **words) == "q=fp16 kv_layout=paged:16:nhd ragged=on sink=off softcap=2.5"
    assert problem_text("", params={"a": "head", "b": "row"}, score="score + a") == "params=a:head,b:row score=score+a"


def test_the_example_of_the_documents():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "python.md").read_text()
    names = {}
    exec(re.search(r"```python\n(.*?)```", page, re.S).group(1), names)
    assert np.all(names["out"] == 1) and np.allclose(names["lse"], 128**0.5 + np.log(5000))


def test_information(runtime, plain):
    info = plain.info
    assert info.problem == plain.problem == "attention q=fp32 kv=fp32 heads=8/2 dim=64 lse=natural"
    assert info.device == plain.device == "cpu" and info.target.startswith("cpu")
    assert info.schedule.startswith("schedule family=") and "define" in info.source
    assert info.origin in ("compiled", "memory") and len(info.key) >= 16
    forced = runtime.prepare("cpu", plain.problem, schedule="tile=32", batch=2, kv_len=100, kv_len_mean=50)
    assert "tile=32" in forced.info.schedule and forced.info.decided_by == "argument"
    assert splitkv.__version__ == "0.1.0" and repr(plain).startswith("<splitkv.Kernel on cpu: attention")
    sizes = plain.sizes(5)
    assert sizes.module_bytes > 0 and sizes.scratch_bytes <= plain.sizes(50).scratch_bytes


def test_a_report_is_written(plain, tmp_path):
    plain.dump_repro(str(tmp_path / "report"))
    assert "heads=8/2" in (tmp_path / "report" / "repro.txt").read_text()


def test_lines_of_the_log_and_what_they_raise(monkeypatch):
    lines, unraisable = [], []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    def log(level, line):
        lines.append((level, line))
        raise KeyError("of the log")

    splitkv.Runtime(log=log).prepare("cpu", q="fp32", heads=2, dim=8)
    assert lines and all(0 <= level <= 3 and isinstance(line, str) for level, line in lines)
    assert len(unraisable) == len(lines) and unraisable[0].exc_type is KeyError


def test_threads_that_want_one_kernel_compile_it_once():
    runtime, barrier, kernels = splitkv.Runtime(), threading.Barrier(8), []

    def prepare(dim):
        barrier.wait()
        kernels.append(runtime.prepare("cpu", q="fp32", heads=2, dim=dim))

    threads = [threading.Thread(target=prepare, args=(16 + 2 * (i % 2),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kernels) == 8 and runtime.statistics().compiles == 2
    assert {kernel.info.key for kernel in kernels} == {kernels[0].info.key} | {k.info.key for k in kernels}


def test_runs_of_one_kernel_in_many_threads(plain, step):
    want = plain.run(*step)
    layer, differing = plain.bind(*step[1:]), []

    def run():
        for _ in range(50):
            got = plain.run(step[0], binding=layer)
            if not (np.array_equal(got.out, want.out) and np.array_equal(got.lse, want.lse)):
                differing.append(got)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not differing


def steps_of_another_thread(call):
    """How often another thread of Python came to run while call() was under way, when the interpreter itself hands
    over only after minutes."""
    interval = sys.getswitchinterval()
    count, stop, begun = 0, False, threading.Event()

    def step():
        nonlocal count
        while not stop:
            count += 1
            begun.set()
            time.sleep(0)

    other = threading.Thread(target=step)
    other.start()
    begun.wait()
    sys.setswitchinterval(600)
    try:
        before = count
        call()
        return count - before
    finally:
        stop = True
        sys.setswitchinterval(interval)
        other.join()


def test_others_go_on_while_compiling():
    runtime = splitkv.Runtime()
    text = problem_text(q="bf16", kv="e4m3", heads=8, dim=96, kv_scale="tensor")
    assert steps_of_another_thread(lambda: runtime.prepare("cpu", text)) > 10
    assert runtime.statistics().compiles == 1


def test_others_go_on_while_running(plain):
    q = np.zeros((1, 8, 64), np.float32)
    k = np.zeros((1, 2, 200_000, 64), np.float32)
    layer = plain.bind(k, k)
    assert steps_of_another_thread(lambda: plain.run(q, binding=layer)) > 10


def test_nobody_goes_on_where_the_lock_is_held():
    """The measure itself: a call that keeps the lock lets nobody in. Around the call the lock may change hands, so the
    best of several counts."""
    assert min(steps_of_another_thread(lambda: sum(range(2_000_000))) for _ in range(5)) == 0


def test_one_workspace_serves_one_run_at_a_time(plain):
    q = np.zeros((1, 8, 64), np.float32)
    layer, work = plain.bind(*[np.zeros((1, 2, 200_000, 64), np.float32)] * 2), plain.workspace(1)
    refused, barrier = [], threading.Barrier(4)

    def run():
        barrier.wait()
        try:
            plain.run(q, binding=layer, work=work)
        except splitkv.InvalidArgument as error:
            refused.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused and all("work is in use by another run" in text for text in refused)
    plain.run(q, binding=layer, work=work)


def test_memory_goes_with_the_binding(plain, rng):
    sys_refs = sys.getrefcount
    k = np.zeros((1, 2, 8, 64), np.float32)
    before = sys_refs(k)
    layer = plain.bind(k, k)
    assert sys_refs(k) > before
    del layer
    assert sys_refs(k) == before


@pytest.mark.parametrize("name", splitkv.__all__)
def test_everything_public_is_documented(name):
    thing = getattr(splitkv, name)
    assert thing.__doc__ and len(thing.__doc__) > 30
    for attribute, value in vars(thing).items() if isinstance(thing, type) else ():
        if callable(value) and not attribute.startswith("_") and value.__module__ == thing.__module__:
            assert value.__doc__, f"{name}.{attribute}"
