#!/usr/bin/env bash
# The steps of the tests of label python. Exit status 77: skipped, with the reason as the last line.
#
#   python_test.sh --build DIR --source DIR --work DIR STEP
#
#   install         an environment in DIR/venv; the wheel is built around the library of --build and installed there
#   wheel           carries the library, the types and nothing of the tree; works without --build's path
#   torch_install   an interpreter with torch and transformers: SPLITKV_TORCH_PYTHON, or an environment in
#                   DIR/torch_venv where SPLITKV_TORCH_TESTS=1 allows to fetch them (gigabytes); the wheel for it
#   torch, torch_cuda, attention, transformers
#                   test_STEP.py by that interpreter
#   run, errors...  test_STEP.py
set -euo pipefail

# shellcheck source=tests/support/test_step.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/test_step.sh"
venv=$work/venv
python=$venv/bin/python
pip=("$python" -m pip --disable-pip-version-check --no-input)

install() {
  rm -rf "$work/installed" "$work/wheel"
  if [ ! -x "$python" ] || ! "${pip[@]}" --version >/dev/null 2>&1; then
    python3 -m venv "$venv" >"$work/venv.log" 2>&1 || skip "no venv (Debian: python3-venv): $(tail -n 1 "$work/venv.log")"
  fi
  "$python" -c 'import os, sysconfig; raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
    skip "no Python.h (Debian: python3-dev)"
  # Those that are there already are not asked for again.
  "$python" -c 'import ml_dtypes, nanobind, numpy, pytest, scikit_build_core' 2>/dev/null ||
    "${pip[@]}" install --quiet ml_dtypes 'nanobind>=2.4' 'numpy>=2.1' pytest 'scikit-build-core>=0.10' \
      >"$work/pip.log" 2>&1 || skip "no packages from PyPI: $(tail -n 1 "$work/pip.log")"
  "${pip[@]}" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work/wheel" "$source" \
    -C build-dir="$work/extension" -C cmake.define.SPLITKV_LIBRARY="$build/lib/libsplitkv.so"
  "${pip[@]}" install --quiet --no-deps --force-reinstall "$work"/wheel/splitkv-*.whl
  touch "$work/installed"
}

# What the wheel holds, and that it is enough: the library that is loaded is the wheel's.
wheel() {
  "$python" - "$work"/wheel/splitkv-*.whl <<'PYTHON'
import sys
import zipfile

import splitkv

names = set(zipfile.ZipFile(sys.argv[1]).namelist())
for name in (
    "libsplitkv.so.0", "libsplitkv_cpu.so", "py.typed", "_core.pyi", "__init__.py", "torch/__init__.py",
    "transformers/__init__.py",
):
    assert f"splitkv/{name}" in names, f"{name} is missing of {sorted(names)}"
strangers = {name for name in names if not name.startswith(("splitkv/", f"splitkv-{splitkv.__version__}.dist-info/"))}
assert not strangers, strangers
splitkv.Runtime().prepare("cpu", q="fp32", heads=2, dim=16)
with open("/proc/self/maps") as maps:
    files = {line.split()[-1] for line in maps if "libsplitkv" in line}
assert files and all("/site-packages/splitkv/" in file for file in files), files
print(f"{len(names)} files in the wheel, {len(files)} libraries of its own")
PYTHON
}

# The wheel that is there, or one for another Python, in a folder of its own.
torch_site() {
  local python=$1 site=$work/torch_site
  local pip=("$python" -m pip --disable-pip-version-check --no-input)
  "${pip[@]}" --version >/dev/null 2>&1 || skip "SPLITKV_TORCH_PYTHON=$python has no pip"
  rm -rf "$site"
  if ! "${pip[@]}" install --quiet --no-deps --target "$site" "$work"/wheel/splitkv-*.whl >"$work/torch_pip.log" 2>&1; then
    "$python" -c 'import nanobind, scikit_build_core' 2>/dev/null ||
      skip "the wheel is for another Python than $python, which has no nanobind and scikit_build_core to make one"
    rm -rf "$work/torch_wheel"
    "${pip[@]}" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work/torch_wheel" "$source" \
      -C build-dir="$work/torch_extension" -C cmake.define.SPLITKV_LIBRARY="$build/lib/libsplitkv.so"
    "${pip[@]}" install --quiet --no-deps --target "$site" "$work"/torch_wheel/splitkv-*.whl
  fi
  echo "$python" >"$work/torch_python"
}

torch_install() {
  local python=${SPLITKV_TORCH_PYTHON:-} imports='import numpy, pytest, torch, transformers'
  rm -f "$work/torch_python"
  if [ -z "$python" ]; then
    [ "${SPLITKV_TORCH_TESTS:-}" = 1 ] ||
      skip "SPLITKV_TORCH_PYTHON names no interpreter with torch, and SPLITKV_TORCH_TESTS=1 allows to fetch none"
    python=$work/torch_venv/bin/python
    [ -x "$python" ] || python3 -m venv "$work/torch_venv" >"$work/venv.log" 2>&1 ||
      skip "no venv (Debian: python3-venv): $(tail -n 1 "$work/venv.log")"
    "$python" -c "$imports" 2>/dev/null ||
      "$python" -m pip --disable-pip-version-check --no-input install --quiet 'numpy>=2.1' pytest 'torch>=2.11' \
        'transformers>=5.17' >"$work/torch_pip.log" 2>&1 || skip "no torch from PyPI: $(tail -n 1 "$work/torch_pip.log")"
  fi
  "$python" -c "$imports" 2>"$work/torch_pip.log" || skip "$python: $(tail -n 1 "$work/torch_pip.log")"
  torch_site "$python"
}

# OMP_NUM_THREADS: what is tested is small, and other tests run at the same time.
torch_tests() {
  [ "$step" != torch_cuda ] ||
    "$(cat "$work/torch_python")" -c 'import torch; raise SystemExit(not torch.cuda.is_available())' ||
    skip "torch sees no GPU"
  PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 SPLITKV_TEST_KIND=PyTorch PYTHONPATH="$work/torch_site" \
    "$(cat "$work/torch_python")" -m pytest -q -p no:cacheprovider -p no:logging "$source/tests/python/test_$step.py"
}

cd "$work"
if [ "$step" = install ]; then
  install
  exit
fi
[ -e "$work/installed" ] || skip "python.install was skipped or failed"
if [ "$step" = wheel ]; then
  wheel
elif [ "$step" = torch_install ]; then
  torch_install
elif [[ $step =~ ^(torch|torch_cuda|attention|transformers)$ ]]; then
  [ -e "$work/torch_python" ] || skip "python.torch_install was skipped or failed"
  torch_tests
else
  PYTHONDONTWRITEBYTECODE=1 "$python" -m pytest -q -p no:cacheprovider "$source/tests/python/test_$step.py"
fi
