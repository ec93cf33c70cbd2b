#!/usr/bin/env bash
# Random faults on a cluster of processes, or on several: see soak.py. --faults N (100), --seed S (1), --clusters N (1). Builds the programs
# first.
set -euo pipefail
cd "$(dirname "$0")/../.."
cmake --preset dev >/dev/null
cmake --build --preset dev --target hearth-coordinator hearth-worker hearth-trainer jobctl >/dev/null
HEARTH_BIN_DIR=$PWD/build/dev/bin exec /usr/bin/python3 tests/fault/soak.py "$@"
