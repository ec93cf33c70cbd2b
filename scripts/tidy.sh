#!/usr/bin/env bash
# Style and static checks.
#   scripts/tidy.sh            the same as --all
#   scripts/tidy.sh --all      tools/tidy.py, clang-format and clang-tidy over the whole tree; clang-tidy takes about
#                              an hour on two cores, and a run that was stopped goes on where it was: it leaves out files that
#                              were clean and are unchanged (tools/clang_tidy.py --no-cache looks at them again)
#   scripts/tidy.sh --changed  tools/tidy.py over the whole tree; clang-format and clang-tidy over the files changed since the
#                              merge base, within HEARTH_TIDY_SECONDS (default 300) seconds
#   scripts/tidy.sh FILE...    the same, over these C++ files
#   scripts/tidy.sh --fix      clang-format rewrites the whole tree's files
# clang-tidy checks .cc files, and headers through the files that include them; clang 14 cannot read the .cu files. It needs a
# configured build tree whose generated files are built (cmake --build --preset dev): build/dev, or HEARTH_BUILD_DIR.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${HEARTH_BUILD_DIR:-build/dev}
mode=${1:---all}

case "$mode" in
  --all | --changed | --fix) ;;
  -*) echo "tidy: unknown argument '$mode' (--all, --changed, --fix or files)" >&2; exit 2 ;;
  *) mode=files ;;
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
if [ "$mode" = files ]; then
  files=("$@")
elif [ -n "$base" ]; then
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

echo "clang-tidy: up to $limit s for ${#sources[@]} files"
/usr/bin/python3 -B tools/clang_tidy.py -p "$build" --seconds "$limit" "${sources[@]}" && status=0 || status=$?
if [ "$status" = 3 ]; then
  echo "clang-tidy: time is up; no findings in the files it reached (scripts/tidy.sh --all looks at all of them)"
elif [ "$status" != 0 ]; then
  exit "$status"
fi
