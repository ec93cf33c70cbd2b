#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test that needs no GPU; then tidies what changed.
#   HEARTH_JOBS=N          parallel compilers and tests (default: all cores, fewer when memory is short)
#   HEARTH_BASE=REF        tidy files changed since this commit (default: merge base with origin/main or main)
#   HEARTH_TIDY_SECONDS=N  time that clang-tidy may take (default 300; 0 skips it)
set -euo pipefail
cd "$(dirname "$0")/.."

# Several checkouts share what ccache holds.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

step() { printf '\n== %s (after %d s)\n' "$1" "$SECONDS"; }

# A gRPC file takes up to 1.5 GiB to compile.
memory_gib=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
jobs=$(nproc)
[ "$jobs" -le $((memory_gib * 2 / 3)) ] || jobs=$((memory_gib * 2 / 3))
[ "$jobs" -ge 1 ] || jobs=1
jobs=${HEARTH_JOBS:-$jobs}

step "Packages"
scripts/deps.sh --tests

step "Configure and build (preset dev, $jobs jobs)"
# No test here needs a GPU; compiling for one architecture shows whether the CUDA backend compiles.
cmake --preset dev -DHEARTH_CUDA=AUTO -DHEARTH_CUDA_ARCHS="${HEARTH_CUDA_ARCHS:-120a-real}"
cmake --build --preset dev -j "$jobs"

step "Without CUDA: configure, build the kernels"
cmake --preset dev -B build/no-cuda -DHEARTH_CUDA=OFF >build/no-cuda.log || { cat build/no-cuda.log; exit 1; }
grep HEARTH_CUDA build/no-cuda.log
cmake --build build/no-cuda -j "$jobs" --target kernels

failed=()
step "Tidy the change"
scripts/tidy.sh --changed || failed+=("tidy")

step "Tests"
last=build/dev/Testing/Temporary/LastTestsFailed.log
rm -f "$last"
if ! ctest --preset dev -LE gpu -j "$jobs" --output-on-failure; then
  # Other work on the machine can make a test too slow. What failed runs once more, alone; a test that passes only then is named.
  step "Tests that failed, once more and alone"
  first=$([ ! -e "$last" ] || cut -d: -f2 "$last" | paste -sd' ')
  if [ -n "$first" ] && ctest --preset dev -LE gpu -j 1 --rerun-failed --output-on-failure; then
    echo "UNSTABLE: passed only alone: $first"
  else
    failed+=("tests")
  fi
fi

[ ${#failed[@]} -eq 0 ] || { echo "FAILED: ${failed[*]}"; exit 1; }
printf "\neverything passed, %d s\n" "$SECONDS"
