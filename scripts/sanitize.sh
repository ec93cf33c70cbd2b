#!/usr/bin/env bash
# Builds the tests that need no GPU with sanitizers and runs them; for a nightly run.
#   asan   AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan   ThreadSanitizer; the tests that do not link gRPC, whose library is not built with it
# Usage: scripts/sanitize.sh [asan|tsan] [--shard I/N] [--targets "NAME..."] [ctest arguments]
#   scripts/sanitize.sh asan
#   scripts/sanitize.sh asan --shard 2/4             every fourth test, from the second on: four machines do all of them
#   scripts/sanitize.sh tsan -R '^common_io_test'
#   scripts/sanitize.sh asan --targets tests/common_io_test -R '^common_io_test'     builds that alone, none of the programs
# Without --targets it builds the chosen tests and, with AddressSanitizer, the programs that tests start.
# HEARTH_JOBS=N: parallel compilers and tests (default: all cores).
set -euo pipefail
cd "$(dirname "$0")/.."

preset=asan
if [[ ${1:-} == asan || ${1:-} == tsan ]]; then
  preset=$1
  shift
fi
chosen=(-LE gpu)
if [[ ${1:-} == --shard ]]; then
  [[ ${2:-} =~ ^([1-9][0-9]*)/([1-9][0-9]*)$ && ${BASH_REMATCH[1]} -le ${BASH_REMATCH[2]} ]] ||
    { echo "sanitize: --shard takes I/N with I from 1 to N, not '${2:-}'" >&2; exit 2; }
  chosen+=(-I "${BASH_REMATCH[1]},,${BASH_REMATCH[2]}")
  shift 2
fi

targets=()
if [[ ${1:-} == --targets ]]; then
  read -ra targets <<<"${2:?--targets needs names}"
  shift 2
fi

mkdir -p build
cmake --preset "$preset" -DHEARTH_CUDA=OFF >"build/$preset.configure.log" 2>&1 || {
  cat "build/$preset.configure.log" >&2
  exit 1
}
# Without a selection of the caller's, ThreadSanitizer's tests are those that it can judge.
if [[ $preset == tsan && $# == 0 ]]; then
  chosen+=(-R "^($(paste -sd'|' build/tsan/tsan_tests.txt))\$")
fi
chosen+=("$@")

build=build/$preset
tests() { ctest --preset "$preset" "$@" -N | sed -nE 's/^ *Test +#[0-9]+: //p' | sort; }
programs() { ninja -C "$build" -t targets all | sed -nE 's/^(.*): CXX_EXECUTABLE_LINKER__.*/\1/p' | { grep -v '^link_tests/' || true; }; }
if [[ ${#targets[@]} == 0 ]]; then
  mapfile -t targets < <(comm -12 <(programs | sed -n 's|^tests/||p' | sort) <(tests "${chosen[@]}") | sed 's|^|tests/|')
  if [[ $preset == asan ]]; then
    mapfile -t -O "${#targets[@]}" targets < <(programs | { grep -v '^tests/' || true; })
    mapfile -t -O "${#targets[@]}" targets < <(comm -23 <(programs | sed -n 's|^tests/||p' | sort) <(tests) | sed 's|^|tests/|')
    targets+=(python_stubs)
  fi
fi
jobs=${HEARTH_JOBS:-$(nproc)}
ninja -C "$build" -j "$jobs" "${targets[@]}"

export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
# Trainers leave on purpose while threads of theirs run.
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:report_thread_leaks=0:suppressions=$PWD/cmake/tsan.supp
exec ctest --preset "$preset" --no-tests=error -j "$jobs" "${chosen[@]}"
