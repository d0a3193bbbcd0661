# shellcheck shell=bash
# Sourced by tools/quickstart, tools/test and .ci/run: finds what is missing on this machine and
# installs it through apt, or says precisely what is missing and exits 3 before anything else is done.
#
#   splitkv_need build          what building and running takes
#   splitkv_need build test     ... and what the tests take
#   splitkv_need browser        a browser, for the tests that look at pages, which are skipped without
#   splitkv_need python         what making a Python package takes, whose tests are skipped without
#   splitkv_need mpi            MPI, for the example of several processes, whose tests are skipped without
#   splitkv_find_nvrtc          sets SPLITKV_LIBNVRTC, or says that there is no NVRTC and why

# One line a thing: group, Debian or Ubuntu package, how to see that it is there.
#   header <h>    the C++ compiler finds it (without a compiler all count as missing)
#   command <c>   it is on the PATH
#   file <f>      a CMake package file
#   module <m>    python3 imports it
#   pyheader <h>  a header of python3
splitkv_things() {
  cat <<'LIST'
build g++                  command c++
build cmake                command cmake
build ninja-build          command ninja
build llvm-19-dev          file /usr/lib/llvm-19/lib/cmake/llvm/LLVMConfig.cmake
build libzstd-dev          header zstd.h
build zlib1g-dev           header zlib.h
build libfmt-dev           header fmt/format.h
build libcli11-dev         header CLI/CLI.hpp
build nlohmann-json3-dev   header nlohmann/json.hpp
build libxxhash-dev        header xxhash.h
test  libgtest-dev         header gtest/gtest.h
test  pkg-config           command pkg-config
test  clang-format-14      command clang-format-14
browser chromium           command chromium
mpi   openmpi-bin          command mpirun
mpi   libopenmpi-dev       command mpicxx
python python3-venv        module ensurepip
python python3-dev         pyheader Python.h
LIST
}

splitkv_is_there() {  # kind name
  case "$1" in
    command) command -v "$2" >/dev/null 2>&1 ;;
    header) printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$2" | c++ -E -x c++ - >/dev/null 2>&1 ;;
    file) [ -e "$2" ] || [ -n "${LLVM_DIR:-}" ] ;;
    module) python3 -c "import $2" >/dev/null 2>&1 ;;
    pyheader) [ -e "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null)/$2" ] ;;
  esac
}

splitkv_missing() {  # groups...: names of the packages that are missing, one a line
  local group package kind name
  splitkv_things | while read -r group package kind name; do
    case " $* " in *" $group "*) ;; *) continue ;; esac
    splitkv_is_there "$kind" "$name" || echo "$package"
  done
}

splitkv_cmake_is_new_enough() {
  local version
  version=$(cmake --version | sed -n 's/^cmake version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
  [ "${version% *}" -gt 3 ] || { [ "${version% *}" -eq 3 ] && [ "${version#* }" -ge 25 ]; }
}

# How to run a command as root: "" when we are root, "sudo -n" when that works, status 1 otherwise.
splitkv_as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    echo ""
  elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    echo "sudo -n"
  else
    return 1
  fi
}

splitkv_refuse() {  # reason, packages...
  local reason=$1
  shift
  {
    echo "Missing on this machine: $*"
    echo "$reason Nothing was changed. On Debian 12 or Ubuntu 24.04 this installs them:"
    echo
    echo "    sudo apt-get update && sudo apt-get install -y --no-install-recommends $*"
    echo
    echo "Elsewhere, install the same things (CMake 3.25 or newer, LLVM 19, a C++20 compiler) and run"
    echo "this again; LLVM_DIR may name the folder of LLVMConfig.cmake."
  } >&2
  exit 3
}

splitkv_need() {  # groups...
  local missing root log
  missing=$(splitkv_missing "$@" | tr '\n' ' ')
  missing=${missing% }
  if [ -n "$missing" ]; then
    # shellcheck disable=SC2086  # a list of words
    command -v apt-get >/dev/null 2>&1 || splitkv_refuse "There is no apt here." $missing
    # shellcheck disable=SC2086
    root=$(splitkv_as_root) || splitkv_refuse "This user is not root and sudo asks for a password." $missing
    echo "Installing: $missing"
    log=$(mktemp)
    # shellcheck disable=SC2086
    if ! { $root apt-get update && $root env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
      tail -n 30 "$log" >&2
      rm -f "$log"
      echo "apt could not install: $missing" >&2
      exit 3
    fi
    rm -f "$log"
    missing=$(splitkv_missing "$@" | tr '\n' ' ')
    if [ -n "$missing" ]; then
      echo "apt installed its packages, but these are still not found: $missing" >&2
      exit 3
    fi
  fi
  if ! splitkv_cmake_is_new_enough; then
    echo "CMake 3.25 or newer is needed; this is $(cmake --version | head -n 1)." >&2
    exit 3
  fi
}

# The first libnvrtc.so.1x that the system, the CUDA toolkit or a wheel offers.
splitkv_installed_nvrtc() {  # further folders...
  local found
  found=$({ PATH=$PATH:/sbin ldconfig -p 2>/dev/null || true; } |
    awk '/libnvrtc\.so\.1[23] / && !found { found = $NF } END { print found }')
  if [ -z "$found" ]; then
    found=$({ find /usr/local/cuda*/lib* /usr/local/cuda*/targets "$@" -name 'libnvrtc.so.1[23]' \
      2>/dev/null || true; } | sort -V | tail -n 1)
  fi
  echo "$found"
}

# NVRTC compiles CUDA without a GPU. Where the machine has none, PyPI's wheel goes into a folder of
# the build tree; nothing is installed outside it.
splitkv_find_nvrtc() {  # folder for the wheel
  local folder=$1
  if [ -n "${SPLITKV_LIBNVRTC:-}" ]; then
    return 0
  fi
  SPLITKV_LIBNVRTC=$(splitkv_installed_nvrtc "$folder")
  if [ -z "$SPLITKV_LIBNVRTC" ] && splitkv_pip --version >/dev/null 2>&1; then
    echo "No libnvrtc on this machine: fetching the nvidia-cuda-nvrtc wheel into $folder"
    splitkv_pip install --quiet --disable-pip-version-check --root-user-action=ignore \
      --no-deps --target "$folder" 'nvidia-cuda-nvrtc>=13.0,<14' || true
    SPLITKV_LIBNVRTC=$(splitkv_installed_nvrtc "$folder")
  fi
  if [ -z "$SPLITKV_LIBNVRTC" ]; then
    unset SPLITKV_LIBNVRTC
    return 1
  fi
  export SPLITKV_LIBNVRTC
}

splitkv_pip() {
  if command -v python3 >/dev/null 2>&1; then
    PIP_NO_INPUT=1 python3 -m pip "$@"
  else
    return 1
  fi
}
