import os
import sys

import numpy as np
import pytest

import splitkv

# Nothing that was kept may hide what the tests are to show.
os.environ["SPLITKV_NO_DISK"] = "1"
os.environ["SPLITKV_TUNING_FILE"] = "off"
sys.path.insert(0, os.path.dirname(__file__))


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


def pytest_terminal_summary(terminalreporter):
    passed = len(terminalreporter.stats.get("passed", []))
    terminalreporter.write_line(f"{passed} Python tests passed")
