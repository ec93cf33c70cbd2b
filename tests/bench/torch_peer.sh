#!/usr/bin/env bash
# Runs the PyTorch peer on the reference shapes and writes its JSON lines, each with the model's name, for bench_table.py --peer.
#   tests/bench/torch_peer.sh PEER.py OUT.jsonl [MODEL...]      MODEL: hearth-112m qwen2.5-0.5b qwen2.5-1.5b (default: all three)
# PEER.py is a trainer of the same model in plain PyTorch (torch.compile, fused AdamW) with the options used below; it prints one JSON
# object with tok_s and peer ("torch-bf16" or "torch-fp8") as its last line. It is no part of this repository.
# The models are Llama- and Qwen2-shaped, without QK-norm, as configs/models has them.
# It is timed as `hearth-trainer bench` times itself (worker/trainer/cli/bench/bench_length.cc): warm-up of 2 s at least, then 3 s at least,
# and 60 steps or 5 s. The counts below do on an H200; where the speed says that they were too few, the model runs again with more. Each
# line has the counts of its run, warmup_steps and steps. Environment:
#   PRECISIONS="bf16 fp8"  LIMIT=200 (seconds a run)  PYTHON=python3  QK_NORM=0
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

# Steps of warm-up and of timing that the first run of a model gets.
counts() {
  case "$1" in
    hearth-112m) echo "60 60" ;;
    *) echo "6 20" ;;
  esac
}

# enough LINE WARMUP STEPS ARGUMENTS: prints nothing if the run was long enough, else the counts of one that is. The first two steps of the
# warm-up compile.
enough() {
  awk -v line="$1" -v warmup="$2" -v steps="$3" -v arguments="$4" '
    function ceil(x) { return x == int(x) ? x : int(x) + 1 }
    BEGIN {
      if (!match(line, /"tok_s": *[0-9.eE+]+/)) exit
      split(substr(line, RSTART, RLENGTH), rate, ":")
      n = split(arguments, word, " ")
      for (i = 1; i < n; ++i) value[word[i]] = word[i + 1]
      if (rate[2] + 0 <= 0) exit
      seconds = value["--seq"] * value["--batch"] * value["--accum"] / rate[2]
      if ((warmup - 2) * seconds >= 2 && steps * seconds >= 3 && (steps >= 60 || steps * seconds >= 5)) exit
      more = ceil(4 / seconds)
      print ceil(3 / seconds) + 2, (more > 60 ? more : 60)
    }'
}

# run ARGUMENTS PRECISION WARMUP STEPS: the JSON line of one run.
run() {
  # shellcheck disable=SC2086  # the arguments are words
  timeout -k 5 "${LIMIT:-200}" "${PYTHON:-python3}" "$peer" $1 --steps "$4" --warmup "$3" --qk-norm "${QK_NORM:-0}" --precision "$2" \
    2>>"$out.log" | tail -n 1
}

failed=0
mkdir -p "$(dirname "$out")"
: >"$out"
for model in "${models[@]}"; do
  arguments=$(shape "$model") || { echo "torch_peer: no shape for model $model" >&2; failed=1; continue; }
  for precision in ${PRECISIONS:-bf16 fp8}; do
    read -r warmup steps <<<"$(counts "$model")"
    line=$(run "$arguments" "$precision" "$warmup" "$steps")
    longer=$(enough "$line" "$warmup" "$steps" "$arguments")
    if [ -n "$longer" ]; then
      read -r warmup steps <<<"$longer"
      line=$(run "$arguments" "$precision" "$warmup" "$steps")
    fi
    if [[ $line == \{* ]]; then
      echo "{\"model\": \"$model\", \"warmup_steps\": $warmup, \"steps\": $steps, ${line#\{}" | tee -a "$out"
    else
      echo "torch_peer: $model $precision gave no result; see $out.log" >&2
      failed=1
    fi
  done
done
exit $failed
