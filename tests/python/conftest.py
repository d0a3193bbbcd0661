import importlib.util
import os
import sys

import numpy as np
import pytest

import splitkv

# Nothing that was kept may hide what the tests are to show.
os.environ["SPLITKV_NO_DISK"] = "1"
os.environ["SPLITKV_TUNING_FILE"] = "off"
sys.path.insert(0, os.path.dirname(__file__))
# Those of torch have an interpreter of their own (python_test.sh).
collect_ignore = [
    name
    for name, needs in (
        ("test_torch.py", "torch"),
        ("test_torch_cuda.py", "torch"),
        ("test_attention.py", "transformers"),
        ("test_transformers.py", "transformers"),
    )
    if importlib.util.find_spec(needs) is None
]


@pytest.fixture(scope="session")
def runtime():
    return splitkv.Runtime()


@pytest.fixture(scope="session")
def plain(runtime):
    """q, k, v of fp32, contiguous; LSE put out."""
    return runtime.prepare("cpu", q="fp32", heads=(8, 2), dim=64, lse="natural")


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def step(rng):
    """q, k, v for `plain`: 3 rows of 90 tokens."""

    def make(shape):
        return rng.standard_normal(shape).astype(np.float32)

    return make((3, 8, 64)), make((3, 2, 90, 64)), make((3, 2, 90, 64))


@pytest.fixture
def registered():
    """The attention of transformers with its defaults and counters at 0."""
    import splitkv.transformers

    splitkv.transformers.register()
    splitkv.transformers.reset_counters()
    yield
    splitkv.transformers.register()


def pytest_terminal_summary(terminalreporter):
    passed = len(terminalreporter.stats.get("passed", []))
    kind = os.environ.get("SPLITKV_TEST_KIND", "Python")
    terminalreporter.write_line(f"{passed} {kind} tests passed")
