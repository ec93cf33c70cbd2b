#!/usr/bin/env bash
# Builds the fuzz targets with clang (libFuzzer, AddressSanitizer, UndefinedBehaviorSanitizer) and runs each.
# Fails at the first crash, leak, hang or broken promise; its input is then in build/fuzz/found/TARGET: mend the defect and
# keep the input in tests/fuzz/corpus/TARGET, which every build replays.
# Usage: tests/fuzz/run.sh [--seconds N] [--jobs N] [--no-build] [TARGET...]
#   --seconds N   for each target (default 60)
#   --jobs N      targets at a time, each on one core (default 1); with as many as there are targets all of them take N seconds together
#   --no-build    run build/fuzz/bin/hearth-fuzz as it is
# HEARTH_JOBS=N: parallel compilers (default: all cores).
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds=60
jobs=1
build=1
targets=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift 2 ;;
    --no-build) build=0; shift ;;
    -*) sed -n '2,9s/^# \?//p' "$0" >&2; exit 2 ;;
    *) targets+=("$1"); shift ;;
  esac
done
[[ $seconds =~ ^[1-9][0-9]*$ && $jobs =~ ^[1-9][0-9]*$ ]] || { echo "run.sh: --seconds and --jobs take numbers from 1" >&2; exit 2; }

if [[ $build == 1 ]]; then
  clang=${HEARTH_CLANG:-clang++-14}
  if ! command -v "$clang" >/dev/null; then
    echo "run.sh: no $clang; install clang-14 or set HEARTH_CLANG" >&2
    exit 2
  fi
  # Debian has the sanitizers and libFuzzer in a package of their own, and without them the build fails in Abseil's headers.
  if ! "$clang" -fsyntax-only -x c++ - <<<'#include <sanitizer/asan_interface.h>' 2>/dev/null; then
    echo "run.sh: $clang has no sanitizers; install libclang-rt-14-dev" >&2
    exit 2
  fi
  cmake --preset asan -B build/fuzz -DHEARTH_FUZZ=ON -DHEARTH_CUDA=OFF -DHEARTH_PCH=OFF -DHEARTH_WERROR=OFF \
    -DCMAKE_CXX_COMPILER="$clang" -DCMAKE_C_COMPILER="${clang/clang++/clang}" >/dev/null
  ninja -C build/fuzz ${HEARTH_JOBS:+-j"$HEARTH_JOBS"} hearth-fuzz
fi

fuzz=build/fuzz/bin/hearth-fuzz
if [[ ${#targets[@]} == 0 ]]; then
  # libFuzzer has lines of its own before the list and behind it.
  mapfile -t targets < <($fuzz 2>&1 | sed -n '/^HEARTH_FUZZ_TARGET is one of:$/,$p' | grep -E '^[a-z][a-z0-9_]*$')
  [[ ${#targets[@]} -gt 0 ]] || { echo "run.sh: $fuzz names no targets" >&2; exit 2; }
fi
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1

# Runs a target; its log is build/fuzz/TARGET.log.
run_target() {
  local target=$1
  mkdir -p "build/fuzz/grown/$target" "build/fuzz/found/$target"
  # -timeout: one input may take 10 s under the sanitizers; -rss_limit_mb: and 2 GiB.
  HEARTH_FUZZ_TARGET=$target exec $fuzz -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=8192 \
    -print_final_stats=1 -artifact_prefix="build/fuzz/found/$target/" \
    "build/fuzz/grown/$target" "tests/fuzz/corpus/$target" >"build/fuzz/$target.log" 2>&1
}

declare -A running=()  # by process id
stop_all() { if [[ ${#running[@]} -gt 0 ]]; then kill "${!running[@]}" 2>/dev/null || true; fi; }
trap stop_all EXIT

# Waits for one that runs to end.
await_one() {
  local pid status=0 target
  wait -n -p pid "${!running[@]}" || status=$?
  target=${running[$pid]}
  unset "running[$pid]"
  if [[ $status != 0 ]]; then
    tail -n 60 "build/fuzz/$target.log" >&2
    echo "run.sh: $target failed; input in build/fuzz/found/$target, log in build/fuzz/$target.log" >&2
    exit 1
  fi
  echo "== $target, $seconds s"
  grep -E 'DONE|number_of_executed_units|peak_rss_mb' "build/fuzz/$target.log"
}

for target in "${targets[@]}"; do
  run_target "$target" &
  running[$!]=$target
  if [[ ${#running[@]} -ge $jobs ]]; then await_one; fi
done
while [[ ${#running[@]} -gt 0 ]]; do await_one; done
echo "run.sh: ${#targets[@]} targets, $seconds s each, nothing found"
