#!/usr/bin/env bash
# Packs the programs with every shared library that is neither glibc nor CUDA, for machines that have nothing installed.
#   scripts/bundle.sh [--output FILE] [BUILD_DIR...]     default: bundle.tar.xz from build/release
# With several build folders, each program comes from the first folder that has it. The archive holds bundle/{bin,libexec,lib,tests,configs,scripts,deploy}.
# The programs look for libraries in ../lib (cmake/Bundle.cmake), whatever LD_LIBRARY_PATH says.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
output=$root/bundle.tar.xz
builds=()
limit_mib=25

while [ $# -gt 0 ]; do
  case "$1" in
    --output) output=${2:?bundle: --output needs a path}; shift 2 ;;
    -*) echo "bundle: unknown argument '$1' (--output FILE, build folders)" >&2; exit 2 ;;
    *) builds+=("$(cd "$1" && pwd)"); shift ;;
  esac
done
[ ${#builds[@]} -gt 0 ] || builds=("$root/build/release")

die() { echo "bundle: $1" >&2; exit 1; }
find_program() {  # find_program PATH-IN-BUILD-FOLDER
  local build
  for build in "${builds[@]}"; do
    [ ! -x "$build/$1" ] || { readlink -f "$build/$1"; return; }
  done
  return 1
}

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
top=$stage/bundle
mkdir -p "$top"/{bin,libexec,lib,tests,scripts}

for program in hearth-coordinator hearth-worker hearth-trainer jobctl; do
  path=$(find_program "bin/$program") || die "no bin/$program in ${builds[*]}; build it first"
  cp "$path" "$top/bin/$program"
done
# The kernels' harness is built with the tests only.
if path=$(find_program bin/ops); then cp "$path" "$top/bin/ops"; else echo "bundle: no bin/ops: built without tests" >&2; fi
path=$(find_program libexec/hearth-tokenizer) || die "no libexec/hearth-tokenizer in ${builds[*]}"
cp "$path" "$top/libexec/hearth-tokenizer"

# Unit tests that need a GPU. A folder in which they are not built yet gives none.
for build in "${builds[@]}"; do
  [ -f "$build/CTestTestfile.cmake" ] || continue
  ctest --test-dir "$build" -L '^gpu$' --show-only=json-v1 2>/dev/null |
    sed -n "s|^ *\"\($build/tests/[^\"]*\)\".*|\1|p" | sort -u | while read -r test; do
      if [ -x "$test" ]; then cp "$test" "$top/tests/"; fi
    done
done

programs=()
for path in "$top"/bin/* "$top"/libexec/* "$top"/tests/*; do
  [ -f "$path" ] || continue
  programs+=("$path")
  readelf -d "$path" | grep -q "(RPATH).*\$ORIGIN/../lib" ||
    die "${path#"$top"/} was linked without RPATH \$ORIGIN/../lib: rebuild it"
done

# glibc's parts must be the machine's own; CUDA's come with its driver and toolkit.
glibc='^(linux-vdso|ld-linux.*|libc|libm|libmvec|libpthread|libdl|librt|libresolv|libutil|libanl|libnsl|libnss_.*)\.so'
cuda='^lib(cuda|cudart|cublas|cublasLt|cudnn.*|nccl|nvidia.*|nvrtc|nvJitLink)\.so'
ldd "${programs[@]}" | awk '/not found/ {print "missing " $1} $2 == "=>" && $3 ~ /^\// {print $1 " " $3}' | sort -u >"$stage/needed"
while read -r name path; do
  [ "$name" != missing ] || die "a library is not on this machine: $path"
  if [[ $name =~ $glibc ]]; then continue; fi
  if [[ $name =~ $cuda ]]; then die "a program links $name; CUDA's libraries are to be loaded at run time"; fi
  cp -L "$path" "$top/lib/$name"
done <"$stage/needed"

chmod -R u+w "$top"
strip --strip-all "${programs[@]}"
strip --strip-unneeded "$top"/lib/*
cp -r "$root/configs" "$top/configs"
cp "$root/scripts/gpu-check.sh" "$root/scripts/start-node.sh" "$top/scripts/"
cp -r "$root/deploy" "$top/deploy"
for folder in tests/bench tests/numerics; do
  mkdir -p "$top/$folder"
  find "$root/$folder" -maxdepth 1 \( -name '*.py' -o -name '*.sh' -o -name '*.rows' \) -exec cp {} "$top/$folder/" \;
done
{ git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown; } >"$top/COMMIT"

mkdir -p "$(dirname "$output")"
# One order and no times or names, so that the same build gives the same bytes.
tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - bundle | xz -T0 -9 >"$output"
bytes=$(stat -c %s "$output")
printf 'bundle: %s: %d programs, %d libraries, %d.%d MiB packed, %s unpacked\n' "$output" "${#programs[@]}" \
  "$(find "$top/lib" -type f | wc -l)" $((bytes / 1048576)) $((bytes * 10 / 1048576 % 10)) "$(du -sh "$top" | cut -f1)"
[ "$bytes" -le $((limit_mib * 1048576)) ] || die "more than $limit_mib MiB: trim HEARTH_CUDA_ARCHS, or see what grew in lib/"
