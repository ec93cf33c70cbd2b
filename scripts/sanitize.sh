#!/usr/bin/env bash
# Builds the tests that need no GPU with sanitizers and runs them; for a nightly run.
#   asan   AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan   ThreadSanitizer; the tests that do not link gRPC, whose library is not built with it
# Usage: scripts/sanitize.sh [asan|tsan] [--targets "NAME..."] [ctest arguments]
#   scripts/sanitize.sh asan
#   scripts/sanitize.sh tsan --targets common_io_test -R '^common_io_test'
set -euo pipefail
cd "$(dirname "$0")/.."

preset=asan
if [[ ${1:-} == asan || ${1:-} == tsan ]]; then
  preset=$1
  shift
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
if [[ ${#targets[@]} == 0 && $preset == tsan ]]; then
  mapfile -t targets <build/tsan/tsan_tests.txt
elif [[ ${#targets[@]} == 0 ]]; then
  targets=(all)
fi
ninja -C "build/$preset" ${HEARTH_JOBS:+-j"$HEARTH_JOBS"} "${targets[@]}"

# Without a selection of the caller's, ThreadSanitizer's tests are those that were built.
if [[ $preset == tsan && $# == 0 ]]; then
  set -- -R "^($(IFS='|'; echo "${targets[*]}"))\$"
fi
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
# Trainers leave on purpose while threads of theirs run.
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:report_thread_leaks=0:suppressions=$PWD/cmake/tsan.supp
exec ctest --preset "$preset" -LE gpu --no-tests=error "$@"
