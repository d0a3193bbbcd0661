#!/usr/bin/env bash
# Runs the cases of known inputs and outputs through the CLI and prints a table: every partition,
# forced numbers of pieces, every reduce, both merge variants, fp32. Clusters and programmatic
# launches are left out, and it is said why, where the target has none.
#
#   tests/cli/handed_cases.sh [--binary build/release/bin/splitkv] [--target cpu|cuda|cuda:N]
#                             [--inputs DIR] [--layouts "bhtd bthd paged:16:nhd"]
#                             [--cases "gqa4 ..."] [--verbose]
#
# The cases are folders of .npy files: q, k, v, out, lse, and kv_lens where lengths differ. They are
# looked for in --inputs, else in SPLITKV_INPUTS, else in ../shared/inputs beside this tree. Status 0:
# all agree; 1: some do not; 77: the cases are not there.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
binary=$root/build/release/bin/splitkv
inputs=${SPLITKV_INPUTS:-$root/../shared/inputs}
target=cpu
layouts="bhtd bthd paged:16:nhd"
named=
verbose=no
while [ $# -gt 0 ]; do
  case "$1" in
    --binary) binary=${2:?--binary needs a file}; shift 2 ;;
    --target) target=${2:?--target needs a name}; shift 2 ;;
    --inputs) inputs=${2:?--inputs needs a folder}; shift 2 ;;
    --layouts) layouts=${2:?--layouts needs names}; shift 2 ;;
    --cases) named=${2:?--cases needs names}; shift 2 ;;
    --verbose) verbose=yes; shift ;;
    -h | --help) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "unknown argument: $1 (--help lists them)" >&2; exit 2 ;;
  esac
done
if [ ! -d "$inputs/gqa4" ]; then
  echo "skipped: no cases in $inputs (SPLITKV_INPUTS=DIR names another folder)"
  exit 77
fi

# Case, its words.
cases="gqa4            heads=8/2 dim=128
mqa7_odd        heads=7/1 dim=80
mha_tiny        heads=2 dim=64
ragged_poisoned heads=6/2 dim=64
window_softcap  heads=4/2 dim=128 window=100 softcap=30
large_logits    heads=4 dim=64
mla_like        heads=16/1 dim=576/512"
if [ -n "$named" ]; then
  cases=$(printf '%s\n' "$cases" | grep -E "^(${named// /|}) ") || {
    echo "no case is named: $named" >&2
    exit 2
  }
fi

# tile=8 makes enough tiles for 64 pieces that all have keys.
schedules=()
for reduce in kernel last_block; do
  for splits in 1 2 3 7 64; do
    for partition in fixed strided; do
      schedules+=(--schedule "partition=$partition splits=$splits tile=8 reduce=$reduce")
    done
  done
  for blocks in 1 5 37 264; do
    schedules+=(--schedule "partition=flat blocks=$blocks tile=8 reduce=$reduce")
  done
done

# The compute capability of the GPU as the binary sees it, 90 for sm_90a; nothing for the CPU.
capability() {
  local device=$target
  [ "$device" = cuda ] && device=cuda:0
  { "$binary" doctor || true; } | sed -n "s/^$device .*, sm_\([0-9]*\).*/\1/p" | head -n 1
}

case "$target" in
  cuda*) sm=$(capability) ;;
  *) sm=none ;;
esac
if [ "$sm" = none ]; then
  echo "clusters left out: $target has none"
elif [ -z "$sm" ]; then
  echo "splitkv doctor does not show $target" >&2
  exit 1
elif [ "$sm" -lt 90 ]; then
  echo "clusters and pdl=on left out: $target is sm_$sm, they are of sm_90 and newer"
else
  for partition in fixed strided; do
    for cut in "splits=2 cluster=2" "splits=8 cluster=8" "splits=12 cluster=4" \
      "splits=64 cluster=16"; do
      schedules+=(--schedule "partition=$partition $cut tile=8 reduce=cluster")
    done
    schedules+=(--schedule "partition=$partition splits=12 cluster=4 tile=8 reduce=cluster pdl=on")
    schedules+=(--schedule "partition=$partition splits=7 tile=8 reduce=kernel pdl=on")
  done
  schedules+=(--schedule "partition=flat blocks=37 tile=8 reduce=last_block pdl=on")
fi
wanted=$((${#schedules[@]} / 2 * 2))  # each with both merge variants

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
printf '%-16s %-14s %9s %9s %9s %12s %12s  %s\n' case kv_layout runs agree partials 'worst out' \
  'worst lse' status
while read -r name words; do
  folder=$inputs/$name
  lengths=()
  if [ -f "$folder/kv_lens.npy" ]; then lengths=(--kv-lens "$folder/kv_lens.npy"); fi
  for layout in $layouts; do
    rc=0
    "$binary" run "attention q=fp32 kv=fp32 $words lse=natural kv_layout=$layout" \
      --q "$folder/q.npy" --k "$folder/k.npy" --v "$folder/v.npy" "${lengths[@]}" \
      --expect-out "$folder/out.npy" --expect-lse "$folder/lse.npy" \
      --merge mlo,lse --target "$target" --repeat 1 "${schedules[@]}" >"$log" 2>&1 || rc=$?
    agree=$(grep -c '^check     ok' "$log" || true)
    # shellcheck disable=SC2016
    figures=$(awk '
      /^partials / && $2 != "none" { divided += 1 }
      /^check / {
        for (i = 1; i < NF; ++i) {
          if ($i == "L2" && $(i + 1) + 0 > out + 0) out = $(i + 1)
          if ($i == "error" && $(i + 1) + 0 > lse + 0) lse = $(i + 1)
        }
      }
      END { printf "%9d %12s %12s", divided, out == "" ? "0" : out, lse == "" ? "0" : lse }' "$log")
    verdict=ok
    if [ "$rc" -ne 0 ] || [ "$agree" -ne "$wanted" ]; then verdict="FAIL (exit $rc)"; status=1; fi
    printf '%-16s %-14s %9d %9d %s  %s\n' "$name" "$layout" "$wanted" "$agree" "$figures" "$verdict"
    if [ "$verbose" = yes ] || [ "$verdict" != ok ]; then
      grep -B8 -A2 -E '^check     FAIL|^splitkv:' "$log" | head -40 || tail -5 "$log"
    fi
  done
done <<<"$cases"
exit $status
