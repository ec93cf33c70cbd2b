#!/usr/bin/env bash
# Builds the tests that need no GPU with sanitizers and runs them; for a nightly run.
#   asan   AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan   ThreadSanitizer; the tests that do not link gRPC, whose library is not built with it
# Usage: scripts/sanitize.sh [asan|tsan] [OPTION...] [ctest arguments]
#   --shard I/N           every N-th test, from the I-th on: N machines do all of them
#   --targets "NAME..."   builds these alone, and none of the programs (default: the chosen tests and, with asan, what they start)
#   --build-only          runs nothing
#   --no-build            runs what was built before
#   --dir DIR             the build folder (default build/asan or build/tsan); tests find the sources and programs at the paths at which
#                         they were configured, so one that comes from another machine has to lie, with the sources, where it lay there
#   scripts/sanitize.sh asan
#   scripts/sanitize.sh asan --shard 2/4
#   scripts/sanitize.sh tsan -R '^common_io_test'
#   scripts/sanitize.sh asan --targets tests/common_io_test -R '^common_io_test'
#   scripts/sanitize.sh asan --no-build -R '^(snapshots_test|fault_rogue_peer_test)$'
# HEARTH_JOBS=N: parallel compilers and tests (default: all cores).
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { echo "sanitize: $1" >&2; exit 2; }

preset=asan
if [[ ${1:-} == asan || ${1:-} == tsan ]]; then
  preset=$1
  shift
fi
chosen=(-LE gpu)
targets=()
build=1
run=1
dir=build/$preset
while :; do
  case ${1:-} in
    --shard)
      [[ ${2:-} =~ ^([1-9][0-9]*)/([1-9][0-9]*)$ && ${BASH_REMATCH[1]} -le ${BASH_REMATCH[2]} ]] ||
        usage "--shard takes I/N with I from 1 to N, not '${2:-}'"
      chosen+=(-I "${BASH_REMATCH[1]},,${BASH_REMATCH[2]}")
      shift 2 ;;
    --targets) read -ra targets <<<"${2:?--targets needs names}"; shift 2 ;;
    --dir) dir=${2:?--dir needs a folder}; shift 2 ;;
    --build-only) run=0; shift ;;
    --no-build) build=0; shift ;;
    *) break ;;
  esac
done
[[ $build == 1 || $run == 1 ]] || usage "--build-only and --no-build leave nothing to do"
[[ $build == 1 || -e $dir/CTestTestfile.cmake ]] || usage "nothing was built in $dir"

if [[ $build == 1 ]]; then
  mkdir -p build
  cmake --preset "$preset" -B "$dir" -DHEARTH_CUDA=OFF >"build/$preset.configure.log" 2>&1 || {
    cat "build/$preset.configure.log" >&2
    exit 1
  }
fi
# Without a selection of the caller's, ThreadSanitizer's tests are those that it can judge.
if [[ $preset == tsan && $# == 0 ]]; then
  chosen+=(-R "^($(paste -sd'|' "$dir/tsan_tests.txt"))\$")
fi
chosen+=("$@")

tests() { ctest --test-dir "$dir" "$@" -N | sed -nE 's/^ *Test +#[0-9]+: //p' | sort; }
# With the module that plays NVML: a test of the node's script needs it, and no program depends on it.
programs() {
  ninja -C "$dir" -t targets all | sed -nE 's/^(.*): CXX_(EXECUTABLE|MODULE_LIBRARY)_LINKER__.*/\1/p' | { grep -v '^link_tests/' || true; }
}
jobs=${HEARTH_JOBS:-$(nproc)}
if [[ $build == 1 ]]; then
  if [[ ${#targets[@]} == 0 ]]; then
    mapfile -t targets < <(comm -12 <(programs | sed -n 's|^tests/||p' | sort) <(tests "${chosen[@]}") | sed 's|^|tests/|')
    if [[ $preset == asan ]]; then
      mapfile -t -O "${#targets[@]}" targets < <(programs | { grep -v '^tests/' || true; })
      mapfile -t -O "${#targets[@]}" targets < <(comm -23 <(programs | sed -n 's|^tests/||p' | sort) <(tests) | sed 's|^|tests/|')
      targets+=(python_stubs)
    fi
  fi
  ninja -C "$dir" -j "$jobs" "${targets[@]}"
fi
[[ $run == 1 ]] || exit 0

export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
# Trainers leave on purpose while threads of theirs run.
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:report_thread_leaks=0:suppressions=$PWD/cmake/tsan.supp
exec ctest --test-dir "$dir" --output-on-failure --no-tests=error -j "$jobs" "${chosen[@]}"
