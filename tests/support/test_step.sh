# shellcheck shell=bash
# Sourced by scripts that are the steps of a label's tests, called as
#
#   SCRIPT --build DIR --source DIR --work DIR STEP
#
# Sets build, source, work and step. skip REASON ends a step with status 77, which CTest counts as skipped.
skip() { echo "skipped: $*"; exit 77; }
while [ $# -gt 1 ]; do
  case "$1" in
    --build) build=$2 ;;
    --source) source=$2 ;;
    --work) work=$2 ;;
    *) echo "unknown argument: $1" >&2; exit 2 ;;
  esac
  shift 2
done
# shellcheck disable=SC2034  # of the script
step=$1
