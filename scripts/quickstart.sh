#!/usr/bin/env bash
# From a bare Debian 12 machine to a language model trained by two workers under a coordinator.
#   scripts/quickstart.sh            install what is missing, build, train, show the result (daemons stay up)
#   scripts/quickstart.sh --steps N  train N steps instead of 700 and do not check the loss: shows that the command works
#   scripts/quickstart.sh stop       stop the daemons of an earlier run
# Everything it writes is under build/ (HEARTH_QUICKSTART_DIR moves the run's files elsewhere). The CUDA backend is built for the GPUs of
# this machine, or on request: HEARTH_CUDA and HEARTH_CUDA_ARCHS, see scripts/cuda-flags.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
run=${HEARTH_QUICKSTART_DIR:-$root/build/quickstart}
bin=$root/build/release/bin
log=$root/build/configure.log

# Several checkouts share what ccache holds.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

say() { printf '\n\033[1m%s\033[0m\n' "$1"; }
die() { printf 'quickstart: %s\n' "$1" >&2; exit 1; }

stop_daemons() {
  local file pid
  for file in "$run"/*.pid; do
    [ -e "$file" ] || continue
    pid=$(cat "$file")
    # Only what this script started: the pid may have gone to another program since.
    if [ "$(readlink "/proc/$pid/exe" 2>/dev/null)" = "$bin/$(cat "${file%.pid}.program")" ]; then
      kill "$pid" 2>/dev/null || true
      for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    fi
    rm -f "$file"
  done
}

if [ "${1:-}" = stop ]; then
  stop_daemons
  echo "stopped"
  exit 0
fi
steps=""
if [ "${1:-}" = --steps ]; then
  steps=${2:-}
  [[ $steps =~ ^[1-9][0-9]*$ ]] && [ $# -eq 2 ] || die "--steps wants a number of steps"
elif [ $# -gt 0 ]; then
  die "unknown argument '$1' (none, --steps N, or stop)"
fi

say "1. Packages"
scripts/deps.sh

say "2. Build"
mkdir -p build
cuda=$(scripts/cuda-flags.sh) || die "no build"
mapfile -t cuda <<<"$cuda"
cmake --preset release -DHEARTH_TESTS=OFF -DHEARTH_BENCH=OFF "${cuda[@]}" >"$log" 2>&1 ||
  { cat "$log"; die "cmake failed"; }
cmake --build --preset release --target jobctl hearth-coordinator hearth-worker hearth-trainer hearth-tokenizer

say "3. Daemons"
stop_daemons
rm -rf "$run"
mkdir -p "$run"
export HEARTH_HOME=$run

# The usual ports when they are free, else any.
free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
listen=127.0.0.1:7070 http=127.0.0.1:7071
free 7070 && free 7071 || { listen=127.0.0.1:0 http=127.0.0.1:0; }

start() {  # start NAME PROGRAM ARGS...
  local name=$1 program=$2
  shift 2
  echo "$program" >"$run/$name.program"
  setsid "$bin/$program" "$@" >"$run/$name.log" 2>&1 </dev/null &
  echo $! >"$run/$name.pid"
}
field() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" "$run/coordinator/endpoints.json"; }
alive() { kill -0 "$(cat "$run/$1.pid")" 2>/dev/null || { cat "$run/$1.log" >&2; die "$1 ended"; }; }

start coordinator hearth-coordinator --data-dir "$run/coordinator" --listen "$listen" --http "$http"
for _ in $(seq 100); do
  [ -e "$run/coordinator/endpoints.json" ] && break
  alive coordinator
  sleep 0.1
done
[ -e "$run/coordinator/endpoints.json" ] || die "the coordinator does not answer; see $run/coordinator.log"
HEARTH_COORDINATOR=$(field listen)
http=$(field http)
export HEARTH_COORDINATOR
for k in 0 1; do
  start "worker$k" hearth-worker --coordinator "$HEARTH_COORDINATOR" --name "cpu$k" --threads 1 \
    --data-dir "$run/worker$k" --http 127.0.0.1:0
done
for _ in $(seq 100); do
  [ "$("$bin/jobctl" workers -o name | wc -l)" -ge 2 ] && break
  alive worker0; alive worker1
  sleep 0.1
done
"$bin/jobctl" workers

say "4. Dataset, from text this machine already has"
inputs=()
for path in /usr/share/common-licenses /usr/share/doc /usr/share/perl /usr/share/perl5; do
  [ -d "$path" ] && inputs+=("$path")
done
[ ${#inputs[@]} -gt 0 ] || die "no text found under /usr/share"
"$bin/jobctl" dataset build --input "${inputs[@]}" --tokenizer sentencepiece:2048 --validation-fraction 0.05 \
  --max-bytes 8MiB --out "$run/data"

say "5. Train: submit, then watch"
began=$SECONDS
settings=(--set "data.train=$run/data/train" --set "data.validation=$run/data/validation")
if [ -n "$steps" ]; then  # the file's schedule, shorter
  share() { echo $((steps * $1 / 700 > 0 ? steps * $1 / 700 : 1)); }
  settings+=(--set "train.steps=$steps" --set "schedule.warmup_steps=$((steps * 30 / 700))"
    --set "schedule.decay_steps=$((steps * 170 / 700))" --set "train.eval_every=$(share 100)"
    --set "checkpoint.every_steps=$(share 350)")
fi
job=$("$bin/jobctl" submit -o name configs/jobs/quickstart.yaml "${settings[@]}")
job=${job#job/}
echo "job/$job submitted"
"$bin/jobctl" watch "$job" --exit-status || die "the job did not succeed: jobctl describe $job"
took=$((SECONDS - began))

say "6. Result"
"$bin/jobctl" metrics "$job" -o csv >"$run/metrics.csv"
losses=$(awk -F, 'NR==1{for(i=1;i<=NF;i++)if($i=="validation_loss")c=i;next} $c!=""{if(a=="")a=$c;b=$c}
  END{printf "%.4f %.4f %.1f", a, b, 100*(a-b)/a}' "$run/metrics.csv")
read -r first last fall <<<"$losses"
checkpoint=$("$bin/jobctl" checkpoints "$job" -o json | sed -n 's/.*"path": "\([^"]*\)".*/\1/p' | head -n 1)
echo "held-out loss: $first at the start, $last at the end (-$fall %), training took $took s"
echo "a sample of the trained model:"
"$bin/hearth-trainer" sample "$checkpoint" --prompt "This package was" --tokens 60 --temperature 0.8 --top-k 40 --seed 2 |
  sed 's/^/  | /'

say "7. Next"
cat <<END
checkpoint  $checkpoint   (a Hugging Face model folder)
metrics     http://$http/metrics   (Prometheus: deploy/prometheus/prometheus.yml)
logs        $run/*.log

  export PATH=$bin:\$PATH HEARTH_COORDINATOR=$HEARTH_COORDINATOR \\
    HEARTH_TOKEN_FILE=$run/tokens/local-${HEARTH_COORDINATOR##*:}
  jobctl list
  jobctl describe $job
  jobctl submit configs/jobs/quickstart.yaml --set data.train=$run/data/train --set data.validation=$run/data/validation --watch
  scripts/quickstart.sh stop        stops the daemons
END
[ -n "$steps" ] || awk -v f="$fall" 'BEGIN{exit !(f >= 40)}' || die "the held-out loss fell by only $fall %"
