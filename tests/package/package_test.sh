#!/usr/bin/env bash
# Installs a build and uses it as programs outside do. One step a call, install before the others:
#
#   package_test.sh --build DIR --source DIR --cmake FILE --work DIR STEP [argument]
#
# Exit status 77: the step was skipped, and why was printed.
set -euo pipefail

while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=$2; shift 2 ;;
    --source) source=$2; shift 2 ;;
    --cmake) cmake=$2; shift 2 ;;
    --work) work=$2; shift 2 ;;
    *) break ;;
  esac
done
step=${1:?a step is needed}
consumer=$source/tests/package/consumer
prefix=$work/moved  # where the installed files lie in the end

fail() { echo "$step: $*" >&2; exit 1; }
skip() { echo "$step skipped: $*"; exit 77; }

cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

configure() {  # folder, options...
  local folder=$1
  shift
  rm -rf "$folder"
  "$cmake" -S "$consumer" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE="$(cached CMAKE_BUILD_TYPE)" \
    -DCMAKE_C_COMPILER="$(cached CMAKE_C_COMPILER)" -DCMAKE_CXX_COMPILER="$(cached CMAKE_CXX_COMPILER)" \
    -DCMAKE_C_COMPILER_LAUNCHER="$(cached CMAKE_C_COMPILER_LAUNCHER)" \
    -DCMAKE_CXX_COMPILER_LAUNCHER="$(cached CMAKE_CXX_COMPILER_LAUNCHER)" "$@" >"$folder.log" 2>&1 ||
    { cat "$folder.log"; fail "the consumer cannot be configured"; }
}

run_programs() {  # folder
  local program
  for program in in_c in_cpp in_c_static in_cpp_static; do
    "$1/$program" || fail "$program failed"
  done
}

# The tree is moved once it is installed: nothing in it may tell where it was.
install_it() {
  rm -rf "$work"
  mkdir -p "$work"
  "$cmake" --install "$build" --prefix "$work/first" >"$work/install.log"
  if grep -rlIF "$work/first" "$work/first"; then fail "these files hold the prefix"; fi
  mv "$work/first" "$prefix"
  for file in include/splitkv/splitkv.h include/splitkv/splitkv.hpp lib/libsplitkv.so lib/libsplitkv.a bin/splitkv \
    share/licenses/splitkv/THIRD_PARTY.md; do
    [ -e "$prefix/$file" ] || fail "$file is not installed"
  done
}

# Each header alone, in the language that it promises, without a warning.
headers() {
  local header strict=(-pedantic -Wall -Wextra -Werror -fsyntax-only -I "$prefix/include") unit
  for header in "$prefix"/include/splitkv/*; do
    unit="#include <splitkv/$(basename "$header")>"
    case "$header" in
      *.h) "$(cached CMAKE_C_COMPILER)" -std=c11 "${strict[@]}" -x c - <<<"$unit" || fail "$header in C" ;;
    esac
    "$(cached CMAKE_CXX_COMPILER)" -std=c++17 "${strict[@]}" -x c++ - <<<"$unit" || fail "$header in C++"
  done
}

# What a process that loads the library takes in.
libraries() {
  local library=$prefix/lib/libsplitkv.so stripped=$work/stripped.so allowed bytes other major
  major=$(sed -n 's/^#define SPLITKV_VERSION_MAJOR //p' "$prefix/include/splitkv/splitkv.h")
  readelf -d "$library" | grep -q "SONAME.*\[libsplitkv\.so\.$major\]" || fail "the soname is not libsplitkv.so.$major"

  allowed='libc\.so\.|libm\.so\.|libstdc\+\+\.so\.|libgcc_s\.so\.|libdl\.so\.|libpthread\.so\.|ld-linux'
  other=$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -vE "^($allowed)" || true)
  [ -z "$other" ] || fail "it needs $other"

  other=$(nm -D --defined-only "$library" | awk '$3 !~ /^splitkv_[a-z_]+$/ && $2 != "A" { print $3 }')
  [ -z "$other" ] || fail "it exports $other"
  nm -D --defined-only "$library" | awk '{ print $3 }' | sort >"$work/exported"
  # The headers and the library agree, both ways.
  cat "$prefix"/include/splitkv/*.h | tr '\n' ' ' | grep -oE 'SPLITKV_API [a-z_0-9 *]+ \*?splitkv_[a-z_]+\(|SPLITKV_API [a-z_ *]+ ?\*splitkv_[a-z_]+\(' |
    grep -oE 'splitkv_[a-z_]+\($' | tr -d '(' | sort -u >"$work/declared"
  diff "$work/declared" "$work/exported" || fail "declared and exported functions differ"

  # Of the archive the linker sees no other name either, unique ones (which are hidden) aside.
  other=$(nm -g --defined-only "$prefix/lib/libsplitkv.a" | awk 'NF == 3 && $2 != "u" && $3 !~ /^splitkv_/ { print $3 }')
  [ -z "$other" ] || fail "the archive defines $other"

  strip -o "$stripped" "$library"
  bytes=$(stat -c %s "$stripped")
  echo "libsplitkv: $bytes bytes stripped, $(wc -l <"$work/exported") functions"
  [ "$bytes" -le $((5 * 1024 * 1024)) ] || fail "$bytes bytes stripped are more than 5 MiB"
}

found_by_cmake() {
  configure "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix"
  "$cmake" --build "$work/cmake" >"$work/cmake.log" 2>&1 || { cat "$work/cmake.log"; fail "the consumer does not build"; }
  run_programs "$work/cmake"
  # What it writes for a report runs with the installed program.
  CONSUMER_REPRO=$work/repro "$work/cmake/in_c"
  SPLITKV=$prefix/bin/splitkv "$work/repro/run.sh" || fail "run.sh of the report: exit status $?"
}

found_by_pkg_config() {
  command -v pkg-config >/dev/null || skip "there is no pkg-config"
  export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
  local kind flags strict=(-pedantic -Wall -Wextra -Werror) cc cxx
  cc=$(cached CMAKE_C_COMPILER) cxx=$(cached CMAKE_CXX_COMPILER)
  mkdir -p "$work/pkg"
  [ "$(pkg-config --modversion splitkv)" = "$("$prefix/bin/splitkv" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)" ] ||
    fail "its version is $(pkg-config --modversion splitkv)"
  for kind in splitkv splitkv-static; do
    flags="$(pkg-config --cflags --libs $kind) -lm -Wl,-rpath,$(pkg-config --variable=libdir splitkv)"
    # shellcheck disable=SC2086  # a list of words
    "$cc" -std=c11 "${strict[@]}" "$consumer/main.c" "$consumer/attention.c" $flags -o "$work/pkg/in_c"
    # shellcheck disable=SC2086
    "$cxx" -std=c++17 "${strict[@]}" "$consumer/main.cpp" $flags -o "$work/pkg/in_cpp"
    "$work/pkg/in_c" || fail "$kind: in_c failed"
    "$work/pkg/in_cpp" || fail "$kind: in_cpp failed"
  done
}

# The whole of it takes a compile of the library, which ccache makes short; without ccache the targets are made and the
# consumer's sources compile.
part_of_a_build() {
  local folder=$work/subdirectory goals=(all)
  configure "$folder-fetched" -DSPLITKV_FROM=FetchContent -DSPLITKV_SOURCE="$source" \
    -DSPLITKV_CPU=OFF -DSPLITKV_STATIC=ON -DFETCHCONTENT_FULLY_DISCONNECTED=ON
  configure "$folder" -DSPLITKV_FROM=add_subdirectory -DSPLITKV_SOURCE="$source" \
    -DSPLITKV_CPU="$(cached SPLITKV_CPU)" -DSPLITKV_CUDA="$(cached SPLITKV_CUDA)"
  if [ -z "$(cached CMAKE_CXX_COMPILER_LAUNCHER)" ]; then
    goals=(in_c.dir/main.c.o in_c.dir/attention.c.o in_cpp.dir/main.cpp.o)
    goals=("${goals[@]/#/CMakeFiles/}")
  fi
  "$cmake" --build "$folder" --target "${goals[@]}" >"$folder.log" 2>&1 || { tail -n 40 "$folder.log"; fail "the consumer does not build"; }
  if [ "${goals[0]}" != all ]; then
    echo "without ccache the library was not compiled again, and so not linked"
    return
  fi
  if [ "$(cached SPLITKV_CPU)" = ON ]; then
    run_programs "$folder"
    return
  fi
  # A build without the CPU target says so.
  "$folder/in_c" >"$work/said" && fail "a build without the CPU target ran on it"
  grep -q 'SPLITKV_CPU=ON would have it' "$work/said" || fail "in_c says: $(cat "$work/said")"
}

case "$step" in
  install) install_it ;;
  headers) headers ;;
  libraries) libraries ;;
  find_package) found_by_cmake ;;
  pkg_config) found_by_pkg_config ;;
  add_subdirectory) part_of_a_build ;;
  beside_llvm) "$work/cmake/beside_llvm" "$2" ;;
  beside_python)
    # By the Python that has torch: one that is named, that of the Python tests, else the system's.
    python=${SPLITKV_TORCH_PYTHON:-$build/tests/python/torch_venv/bin/python}
    [ -x "$python" ] || python=python3
    "$python" "$consumer/beside_python.py" "$work/cmake/libattention.so"
    ;;
  *) fail "unknown step" ;;
esac
