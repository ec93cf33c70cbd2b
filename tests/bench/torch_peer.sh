#!/usr/bin/env bash
# Runs the PyTorch peer on the reference shapes and writes its JSON lines, each with the model's name, for bench_table.py --peer.
#   tests/bench/torch_peer.sh PEER.py OUT.jsonl [MODEL...]      MODEL: hearth-112m qwen2.5-0.5b qwen2.5-1.5b (default: all three)
# PEER.py is a trainer of the same model in plain PyTorch (torch.compile, fused AdamW) with the options used below; it prints one JSON
# object with tok_s and peer ("torch-bf16" or "torch-fp8") as its last line. It is no part of this repository.
# The models are Llama- and Qwen2-shaped, without QK-norm, as configs/models has them. Environment:
#   PRECISIONS="bf16 fp8"  STEPS=20  LIMIT=200 (seconds a run)  PYTHON=python3  QK_NORM=0
set -uo pipefail
[ $# -ge 2 ] || { echo "usage: torch_peer.sh PEER.py OUT.jsonl [MODEL...]" >&2; exit 2; }
peer=$1 out=$2
shift 2
[ -f "$peer" ] || { echo "torch_peer: no file $peer" >&2; exit 2; }
models=("$@")
[ ${#models[@]} -gt 0 ] || models=(hearth-112m qwen2.5-0.5b qwen2.5-1.5b)

shape() {
  case "$1" in
    hearth-112m) echo "--layers 12 --dim 768 --heads 12 --kv 3 --hidden 2048 --vocab 49152 --seq 2048 --batch 18 --accum 1" ;;
    qwen2.5-0.5b) echo "--layers 24 --dim 896 --heads 14 --kv 2 --hidden 4864 --vocab 151936 --seq 1024 --batch 32 --accum 4" ;;
    qwen2.5-1.5b) echo "--layers 28 --dim 1536 --heads 12 --kv 2 --hidden 8960 --vocab 151936 --seq 1024 --batch 16 --accum 4" ;;
    *) return 1 ;;
  esac
}

failed=0
mkdir -p "$(dirname "$out")"
: >"$out"
for model in "${models[@]}"; do
  arguments=$(shape "$model") || { echo "torch_peer: no shape for model $model" >&2; failed=1; continue; }
  for precision in ${PRECISIONS:-bf16 fp8}; do
    # shellcheck disable=SC2086  # the arguments are words
    line=$(timeout -k 5 "${LIMIT:-200}" "${PYTHON:-python3}" "$peer" $arguments --steps "${STEPS:-20}" --warmup 5 \
      --qk-norm "${QK_NORM:-0}" --precision "$precision" 2>>"$out.log" | tail -n 1)
    if [[ $line == \{* ]]; then
      echo "{\"model\": \"$model\", ${line#\{}" | tee -a "$out"
    else
      echo "torch_peer: $model $precision gave no result; see $out.log" >&2
      failed=1
    fi
  done
done
exit $failed
