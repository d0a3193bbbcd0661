#!/usr/bin/env bash
# Runs context_parallel on several processes and holds it to what is expected:
#
#   run_test.sh agree  --mpirun FILE --processes N PROGRAM OPTION...   every join is that of one process
#   run_test.sh notice --mpirun FILE --processes N PROGRAM OPTION...   with a planted fault no join passes
#   run_test.sh bytes  --mpirun FILE --processes 4 PROGRAM OPTION...   what is sent of 8 partials of dim 128
#   run_test.sh refuse --mpirun FILE --processes N PROGRAM             bad options are named
#   run_test.sh skip REASON
#
# Exit status 77: the test was skipped, and why was printed.
set -euo pipefail

expectation=${1:?an expectation is needed}
shift
fail() { printf '%s\n' "$output"; echo "$expectation: $*" >&2; exit 1; }

if [ "$expectation" = skip ]; then
  echo "skipped: $*"
  exit 77
fi
mpirun=${2:?} processes=${4:?}
shift 4

# Open MPI refuses root, and more processes than cores, unless it is told; others need not be told.
start=("$mpirun" -n "$processes")
if "$mpirun" --version 2>&1 | grep -qE 'Open MPI|OpenRTE|PRRTE'; then
  start+=(--oversubscribe --bind-to none)
  [ "$(id -u)" -ne 0 ] || start+=(--allow-run-as-root)
  # All processes are on this machine: no network is looked for, nor memory of other processes read.
  # Who waits gives its core to the others.
  export OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1
fi

run() {  # program, options...: sets output and status
  status=0
  output=$("${start[@]}" "$@" 2>&1) || status=$?
}

# Lines of variants that ended so.
count() { grep -cE "^(lse|mlo) .* $1  sent:" <<<"$output" || true; }

line_is() {  # beginning of a variant's line, bytes of a partial, bytes sent by each process
  grep -qE "^$1 +contiguous own +[0-9.]+ +[0-9.]+ +$2 .* ok  sent: $3$" <<<"$output" ||
    fail "no line '$1 ... $2 ... sent: $3'"
}

case "$expectation" in
  agree)
    run "$@"
    [ "$status" -eq 0 ] || fail "exit status $status"
    joins=$(count ok)
    if [ "$joins" -lt 8 ] || [ "$(count WRONG)" -ne 0 ]; then fail "$joins joins passed"; fi
    printf '%s\n' "$output"
    grep -q "^$joins joins across $processes processes agree with one process, 0 do not$" <<<"$output" ||
      fail "the count of joins is not $joins"
    ;;
  notice)
    run "$@"
    [ "$status" -eq 1 ] || fail "exit status $status instead of 1"
    if [ "$(count ok)" -ne 0 ] || [ "$(count WRONG)" -lt 8 ]; then fail "$(count ok) joins passed with a fault"; fi
    printf '%s\n' "$output"
    echo "$(count WRONG) joins with a planted fault were noticed"
    ;;
  bytes)  # 8 partials a process: dim + 1 numbers of 4 bytes as lse, dim + 2 as mlo, as docs/mathematics.md has it
    run "$@"
    [ "$status" -eq 0 ] || fail "exit status $status"
    line_is 'lse +gather' 516 '4128 4128 4128 4128'
    line_is 'mlo +gather' 520 '4160 4160 4160 4160'
    line_is 'lse +ring' 516 '8256 8256 4128 4128'  # on to the last, and once more round
    line_is 'mlo +ring' 520 '8320 8320 4160 4160'
    printf '%s\n' "$output"
    ;;
  refuse)
    for words in "--heads 8/3:--heads 8/3 is not understood" "--merge sum:--merge sum is not understood" \
      "--target gpu:--target gpu is not understood" "--lengths 5,x:--lengths x is not understood" \
      "--tokens:--tokens needs a value" "--window 3:--window is no option"; do
      # shellcheck disable=SC2086  # a list of words
      run "$1" ${words%%:*}
      [ "$status" -eq 2 ] || fail "${words%%:*}: exit status $status instead of 2"
      grep -qF -- "${words#*:}" <<<"$output" || fail "${words%%:*} is not named"
    done
    ;;
  *) fail "unknown expectation" ;;
esac
