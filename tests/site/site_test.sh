#!/usr/bin/env bash
# The steps of the tests of label site. Exit status 77: skipped, with the reason as the last line.
#
#   site_test.sh --build DIR --source DIR --work DIR STEP
#
#   markdown        links, anchors and reach of the pages as they lie in the tree
#   messages        troubleshooting.md quotes messages that the library has, and covers its statuses and rules
#   site            tools/site, strictly, and every link of what it makes
#   planted         the checks of markdown, messages and site notice planted faults
#   cpp, c, cpp_guide, c_guide      programs of the pages, against the installed tree of tests/package
#   python          the script of quickstart.md, in the environment of tests/python
#   conventions     what rosetta.md says of other libraries, there as well
set -euo pipefail

# shellcheck source=tests/support/test_step.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/test_step.sh"
command -v python3 >/dev/null || skip "no python3"
here=$source/tests/site
export PYTHONDONTWRITEBYTECODE=1

document() {  # page, parts...
  local page=$1 part parts=()
  shift
  for part in "$@"; do parts+=(--part "$part"); done
  rm -rf "${work:?}/$step"
  python3 "$source/tools/lib/document_steps.py" "$source/docs/$page" --work "$work/$step" "${parts[@]}"
}

installed() {
  export SPLITKV_PREFIX=$build/tests/package/installed/moved
  [ -e "$SPLITKV_PREFIX/bin/splitkv" ] || skip "package.install was skipped or failed"
}

echo "site.$step:"  # what is counted in the report of the tests begins a line of its own
case "$step" in
  markdown) python3 "$here/markdown_links.py" "$source" ;;
  messages) python3 "$here/messages.py" "$source" ;;
  planted) python3 "$here/planted_faults.py" "$source" "$work/planted" ;;
  site) "$source/tools/site" --work "$work/site-work" --out "$work/site" ;;
  cpp) installed; document quickstart.md cpp ;;
  c)
    command -v pkg-config >/dev/null || skip "no pkg-config"
    installed
    document quickstart.md c
    ;;
  cpp_guide) installed; document cpp_guide.md guide ;;
  c_guide)
    command -v pkg-config >/dev/null || skip "no pkg-config"
    installed
    document c_guide.md guide
    ;;
  python)
    [ -e "$build/tests/python/installed" ] || skip "python.install was skipped or failed"
    mkdir -p "$work"
    ln -sfn "$build/tests/python" "$work/with_python"
    SPLITKV_PREFIX=$work/with_python document quickstart.md python
    ;;
  conventions)
    [ -e "$build/tests/python/installed" ] || skip "python.install was skipped or failed"
    "$build/tests/python/venv/bin/python" "$here/conventions.py"
    ;;
  *) echo "unknown step: $step" >&2; exit 2 ;;
esac
