#!/usr/bin/env bash
# Style and static checks.
#   scripts/tidy.sh            tools/tidy.py, clang-format and clang-tidy over everything (takes long)
#   scripts/tidy.sh --changed  clang-format and clang-tidy only over files changed since the merge base, within
#                              HEARTH_TIDY_SECONDS (default 300) seconds; headers are seen through the files that include them
#   scripts/tidy.sh --fix      clang-format rewrites the files
# clang-tidy needs a configured build tree: build/dev, or HEARTH_BUILD_DIR.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${HEARTH_BUILD_DIR:-build/dev}
mode=${1:---all}

case "$mode" in
  --all | --changed | --fix) ;;
  *) echo "tidy: unknown argument '$mode' (none, --changed or --fix)" >&2; exit 2 ;;
esac

/usr/bin/python3 tools/tidy.py

base=""
if [ "$mode" = --changed ]; then
  for ref in "${HEARTH_BASE:-}" origin/main main; do
    [ -n "$ref" ] && base=$(git merge-base HEAD "$ref" 2>/dev/null) && break
  done
  # On the main branch itself the merge base is HEAD: then the last commit is what changed.
  [ "$base" != "$(git rev-parse HEAD 2>/dev/null)" ] || base=$(git rev-parse -q --verify HEAD^ || true)
fi
if [ -n "$base" ]; then
  mapfile -t files < <({ git diff --name-only --diff-filter=d "$base"; git ls-files -o --exclude-standard; } |
    grep -E '\.(cc|h|cu|cuh)$' | sort -u)
else
  mapfile -t files < <(git ls-files '*.cc' '*.h' '*.cu' '*.cuh')
fi
[ ${#files[@]} -gt 0 ] || { echo "tidy: no C++ files to look at"; exit 0; }

if [ "$mode" = --fix ]; then
  clang-format -i "${files[@]}"
  exit 0
fi
echo "clang-format: ${#files[@]} files"
clang-format --dry-run --Werror "${files[@]}"

if [ "$mode" = --changed ]; then limit=${HEARTH_TIDY_SECONDS:-300}; else limit=${HEARTH_TIDY_SECONDS:-86400}; fi
mapfile -t sources < <(printf '%s\n' "${files[@]}" | grep -E '\.cc$' || true)
if [ "$limit" = 0 ] || [ ${#sources[@]} -eq 0 ]; then
  echo "clang-tidy: nothing to do"
  exit 0
fi
[ -f "$build/compile_commands.json" ] || { echo "tidy: no $build/compile_commands.json; run cmake --preset dev" >&2; exit 1; }

# Files that no target of this build compiles have no flags to check them with.
mapfile -t sources < <(/usr/bin/python3 - "$build/compile_commands.json" "${sources[@]}" <<'PY'
import json, os, sys
known = {os.path.relpath(entry["file"]) for entry in json.load(open(sys.argv[1]))}
print("\n".join(path for path in sys.argv[2:] if path in known))
PY
)
echo "clang-tidy: up to $limit s for ${#sources[@]} files"
started=$SECONDS
printf '%s\0' "${sources[@]}" |
  timeout "$limit" xargs -0 -P "$(nproc)" -n 1 \
    clang-tidy --quiet -p "$build" 2>/dev/null && status=0 || status=$?
if [ "$status" = 124 ]; then
  echo "clang-tidy: time is up; what was looked at is clean (scripts/tidy.sh does all)"
elif [ "$status" != 0 ]; then
  exit "$status"
else
  echo "clang-tidy: clean in $((SECONDS - started)) s"
fi
