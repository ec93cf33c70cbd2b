#!/usr/bin/env bash
# Which CUDA backend scripts/quickstart.sh builds: prints cmake's flags, one a line, and on stderr a sentence that says why.
# The kernels for one GPU architecture take longer to compile than everything else, so the default builds only those that this
# machine can run.
#   HEARTH_CUDA=AUTO        (default) for the GPUs of this machine; not built without a GPU
#   HEARTH_CUDA=ON          also without a GPU: for 120a-real then
#   HEARTH_CUDA=OFF         none
#   HEARTH_CUDA_ARCHS=LIST  these architectures, as cmake takes them ("90a-real;120a-real"), instead of those of the GPUs,
#                          also without a GPU
# Environment: HEARTH_NVIDIA_DEVICE (default /dev/nvidia0), the file that shows a GPU when there is no nvidia-smi.
# Exit status: 0; 2 when HEARTH_CUDA is none of the three.
set -euo pipefail
wish=${HEARTH_CUDA:-AUTO}
chosen=${HEARTH_CUDA_ARCHS:-}
default_arch=120a-real

say() { printf 'CUDA backend: %s\n' "$1" >&2; }
flags() { printf '%s\n' "-DHEARTH_CUDA=$1" ${2:+"-DHEARTH_CUDA_ARCHS=$2"}; exit 0; }

case "$wish" in
  OFF) say "not built (HEARTH_CUDA=OFF)"; flags OFF ;;
  AUTO | ON) ;;
  *) echo "HEARTH_CUDA is '$wish'; it must be AUTO, ON or OFF" >&2; exit 2 ;;
esac

# Compute capabilities, "9.0" a line, each once; empty without nvidia-smi or a GPU that answers.
capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep -E '^[0-9]+\.[0-9]+$' | sort -u || true)
device=${HEARTH_NVIDIA_DEVICE:-/dev/nvidia0}
if [ -n "$chosen" ]; then
  say "$chosen, as HEARTH_CUDA_ARCHS says"
  flags ON "$chosen"
fi
if [ -z "$capabilities" ] && [ "$wish" = AUTO ] && [ ! -e "$device" ]; then
  say "not built, this machine has no NVIDIA GPU (HEARTH_CUDA=ON builds it all the same)"
  flags OFF
fi
if [ -z "$capabilities" ] && [ ! -e "$device" ]; then
  say "$default_arch, as there is no GPU that would decide (HEARTH_CUDA_ARCHS=90a-real: Hopper, 100a-real: B200)"
  flags "$wish" "$default_arch"
fi
if [ -z "$capabilities" ]; then
  # The driver compiles this when a program first runs, for every GPU from compute capability 8.0 on.
  say "80-virtual, as nvidia-smi does not say which GPU this is"
  flags "$wish" 80-virtual
fi
# From 9.0 on an architecture has instructions of its own, which "a" allows.
archs=""
for capability in $capabilities; do
  number=${capability//./}
  if [ "$number" -ge 90 ]; then number+=a; elif [ "$number" -lt 80 ]; then continue; fi
  archs+=${archs:+;}$number-real
done
if [ -z "$archs" ]; then
  say "not built, compute capability $(echo $capabilities) is below 8.0"
  flags OFF
fi
say "$archs, for the GPUs of this machine"
flags "$wish" "$archs"
