#!/usr/bin/env bash
# Checks Hearth on a machine with a GPU, from an unpacked bundle (scripts/bundle.sh) or a source tree that was built.
#   scripts/gpu-check.sh [--only STEP,STEP] [--skip STEP] [--seconds N] [--device N] [--bin DIR] [--rows FILE]
#                        [--peer FILE] [--steps N] [--pack] OUT
#   scripts/gpu-check.sh --list
# Runs the steps of the table below, each under a time limit of its own and all of them within N seconds (default 480), writes
# OUT/summary.txt, OUT/bench.{txt,jsonl} and OUT/logs/STEP.log (--pack: one OUT/logs.tar.gz), prints the summary, leaves no process.
# --rows, --peer and --steps are for the benchmark (tests/bench/bench_table.py).
# Exit status: 0 all passed or were skipped, 1 one failed or ran out of time, 2 usage.
set -uo pipefail
self=$(readlink -f "$0")
root=$(dirname "$(dirname "$self")")

# Name, limit in seconds, what it does.
steps=(
  "device 20 driver, GPU and CPU as the system names them"
  "probe 60 hearth-trainer probe: what this GPU runs natively"
  "ops 200 every kernel against its CPU reference (ops test -d cuda --isolate)"
  "unit 60 unit tests labelled gpu"
  "cluster 120 a whole job: coordinator, worker on the GPU, jobctl; power in the metrics"
  "bench 240 hearth-trainer bench over a table of jobs"
  "perf 60 time and share of the ceiling of each kernel (ops perf -d cuda)"
  "sanitizer 150 compute-sanitizer memcheck and racecheck over a few kernels"
)
# What the sanitizer runs: those with shared memory, vector and odd paths; it slows a kernel by a factor of ten to a hundred.
sanitized=(rmsnorm swiglu qk_norm_rope embedding quantize adamw linear_cross_entropy attention)

only="" skip="" seconds=480 device=0 bin="" rows="" peer="" bench_steps=20 pack=false step="" out=""
usage() { sed -n '2,10s/^# \{0,1\}//p' "$self" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --list) printf '%s\n' "${steps[@]}"; exit 0 ;;
    --pack) pack=true; shift ;;
    --only | --skip | --seconds | --device | --bin | --rows | --peer | --steps | --step)
      [ $# -ge 2 ] || usage
      case "$1" in
        --only) only=$2 ;; --skip) skip=$2 ;; --seconds) seconds=$2 ;; --device) device=$2 ;; --bin) bin=$2 ;;
        --rows) rows=$2 ;; --peer) peer=$2 ;; --steps) bench_steps=$2 ;; --step) step=$2 ;;
      esac
      shift 2 ;;
    -*) usage ;;
    *) [ -z "$out" ] || usage; out=$1; shift ;;
  esac
done
[ -n "$out" ] || usage
[[ $seconds =~ ^[0-9]+$ ]] || { echo "gpu-check: --seconds $seconds is not a whole number" >&2; exit 2; }
mkdir -p "$out/logs" && out=$(readlink -f "$out") || exit 2
if [ -z "$bin" ]; then bin=$root/bin; [ -d "$bin" ] || bin=$root/build/release/bin; fi
[ -x "$bin/hearth-trainer" ] || { echo "gpu-check: no hearth-trainer in $bin (--bin DIR)" >&2; exit 2; }
tests=$(dirname "$bin")/tests

skipped() { echo "SKIPPED: $1"; exit 77; }

step_device() {
  command -v nvidia-smi >/dev/null || { echo "nvidia-smi is not on PATH: is the NVIDIA driver installed?"; return 1; }
  nvidia-smi -i "$device" || return 1
  nvidia-smi -i "$device" --query-gpu=name,driver_version,memory.total,power.limit,clocks.max.sm --format=csv
  uname -a
  head -n 2 /etc/os-release
  nproc
  "$bin/hearth-trainer" --version
}

step_probe() { "$bin/hearth-trainer" probe; }

step_ops() {
  [ -x "$bin/ops" ] || skipped "no ops in $bin (built without tests)"
  "$bin/ops" test -d cuda --isolate
}

step_unit() {
  local test found=false failed=0
  for test in "$tests"/*; do
    # A build folder also holds tests that need no GPU; only the bundle's folder holds the right ones alone.
    if [ ! -x "$test" ] || [ "$bin" != "$root/bin" ]; then continue; fi
    found=true
    timeout -k 5 40 "$test" || { echo "FAILED: $(basename "$test")"; failed=1; }
  done
  $found || skipped "the bundle has no unit tests for the GPU"
  return $failed
}

step_perf() {
  [ -x "$bin/ops" ] || skipped "no ops in $bin (built without tests)"
  "$bin/ops" perf -d cuda
}

step_bench() {
  command -v python3 >/dev/null || skipped "python3 is not on PATH"
  local arguments=(--bin "$bin" --out "$out" --steps "$bench_steps" --device "$device" --budget "$GPU_CHECK_LIMIT")
  [ -z "$peer" ] || arguments+=(--peer "$peer")
  python3 "$root/tests/bench/bench_table.py" "${arguments[@]}" --log "$out/logs/bench-runs.log" "${rows:-$root/tests/bench/check.rows}"
}

step_sanitizer() {
  local tool=compute-sanitizer op check failed=0
  command -v $tool >/dev/null || tool=/usr/local/cuda/bin/compute-sanitizer
  command -v "$tool" >/dev/null || skipped "compute-sanitizer is not on PATH nor under /usr/local/cuda"
  # gVisor's kernel calls itself 4.4.0; the tool cannot attach to the driver there.
  if [ "$(uname -r)" = 4.4.0 ] || grep -qi gvisor /proc/version; then skipped "compute-sanitizer does not work under gVisor"; fi
  [ -x "$bin/ops" ] || skipped "no ops in $bin (built without tests)"
  for check in memcheck racecheck; do
    for op in "${sanitized[@]}"; do
      if timeout -k 5 60 "$tool" --tool $check --error-exitcode 99 "$bin/ops" test -d cuda -o "$op/" >"$out/logs/sanitizer-one.log" 2>&1; then
        echo "clean   $check $op"
      else
        echo "FAILED  $check $op (exit status $?)"
        tail -n 60 "$out/logs/sanitizer-one.log"
        failed=1
      fi
    done
  done
  rm -f "$out/logs/sanitizer-one.log"
  return $failed
}

http_get() {  # http_get HOST:PORT PATH, without curl
  local stream
  exec {stream}<>"/dev/tcp/${1%:*}/${1##*:}" || return 1
  printf 'GET %s HTTP/1.0\r\nHost: %s\r\n\r\n' "$2" "$1" >&"$stream"
  timeout 5 cat <&"$stream"
  exec {stream}>&-
}

daemons=()
stop_daemons() {
  local pid
  for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null; done
  for _ in $(seq 50); do
    pid=$(jobs -pr) && [ -z "$pid" ] && break
    sleep 0.1
  done
  for pid in "${daemons[@]}"; do kill -KILL "$pid" 2>/dev/null; done
  [ -z "${home:-}" ] || rm -rf "$home"
}

wait_for() {  # wait_for SECONDS WHAT COMMAND...
  local until=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $until ] || { echo "no $what in time"; tail -n 30 "$home"/*.log; return 1; }
    sleep 0.2
  done
}

step_cluster() {
  local address http worker job status csv watts
  home=$(mktemp -d)
  trap stop_daemons EXIT
  export HEARTH_HOME=$home NO_COLOR=1
  "$bin/hearth-coordinator" --data-dir "$home/coordinator" --listen 127.0.0.1:0 --http 127.0.0.1:0 >"$home/coordinator.log" 2>&1 &
  daemons+=($!)
  wait_for 15 "coordinator" test -s "$home/coordinator/endpoints.json" || return 1
  address=$(sed -n 's/.*"listen": *"\([^"]*\)".*/\1/p' "$home/coordinator/endpoints.json")
  http=$(sed -n 's/.*"http": *"\([^"]*\)".*/\1/p' "$home/coordinator/endpoints.json")
  export HEARTH_COORDINATOR=$address
  "$bin/hearth-worker" --coordinator "$address" --name gpu --device "cuda:$device" --data-dir "$home/worker" --http 127.0.0.1:0 \
    >"$home/worker.log" 2>&1 &
  daemons+=($!)
  wait_for 20 "worker" sh -c "'$bin/jobctl' workers -o name | grep -q gpu" || return 1
  "$bin/jobctl" workers
  "$bin/jobctl" dataset build --input "$root/configs" "$root/scripts" "$root/tests" --tokenizer bytes --out "$home/data" || return 1
  job=$("$bin/jobctl" submit -o name "$root/configs/jobs/gpu-smoke.yaml" --set "data.train=$home/data") || return 1
  job=${job#job/}
  # The worker's metrics while it trains: its address is where the coordinator sends Prometheus.
  wait_for 60 "first step" sh -c "'$bin/jobctl' metrics $job -o csv | grep -q '^1,'" || { "$bin/jobctl" logs "$job"; return 1; }
  worker=$(http_get "$http" /sd/workers | grep -o '[0-9A-Za-z.]*:[0-9][0-9]*' | tail -n 1)
  http_get "$worker" /metrics >"$out/logs/worker-metrics.txt"
  watts=$(sed -n 's/^hearth_gpu_power_watts{[^}]*} //p' "$out/logs/worker-metrics.txt")
  "$bin/jobctl" wait "$job" --timeout 90s
  status=$?
  "$bin/jobctl" describe "$job"
  csv=$out/logs/cluster-metrics.csv
  "$bin/jobctl" metrics "$job" -o csv >"$csv"
  [ $status = 0 ] || { echo "the job ended with status $status"; "$bin/jobctl" logs "$job"; tail -n 30 "$home"/*.log; return 1; }
  [ -n "$watts" ] || { echo "no hearth_gpu_power_watts among the worker's metrics ($worker)"; return 1; }
  # Energy is a sum over the job: short steps alone may round to nothing.
  awk -F, -v watts="$watts" 'NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
    { if (NR == 2) first = $column["loss"]; last = $column["loss"]; joules += $column["energy_joules"]; rate = $column["tokens_per_second"] }
    END { printf "%d steps, loss %.3f -> %.3f, %.0f tok/s at the end, %.1f J in the steps, %.0f W at the worker\n", NR - 1, first, last, rate, joules, watts
          if (NR < 3 || last > 0.8 * first) { print "the loss did not fall by a fifth"; exit 1 }
          if (joules <= 0 || watts <= 0) { print "no power or energy was measured"; exit 1 } }' "$csv"
}

if [ -n "$step" ]; then
  declare -F "step_$step" >/dev/null || usage
  export CUDA_DEVICE_ORDER=PCI_BUS_ID
  "step_$step"
  exit
fi

chosen() {
  [ -z "$only" ] || [[ ",$only," == *",$1,"* ]] || return 1
  [[ ",$skip," != *",$1,"* ]]
}
for name in ${only//,/ } ${skip//,/ }; do
  [[ " ${steps[*]%% *} " == *" $name "* ]] || { echo "gpu-check: no step '$name' (--list)" >&2; exit 2; }
done

deadline=$((SECONDS + seconds)) failures=0
summary=$out/summary.txt
printf '%-10s %-9s %6s  %s\n' step result s said >"$summary"
for row in "${steps[@]}"; do
  read -r name limit _ <<<"$row"
  chosen "$name" || continue
  began=$SECONDS left=$((deadline - SECONDS)) log=$out/logs/$name.log
  # Asked for by name, a step may take all the time there is.
  if [ -n "$only" ] || [ "$limit" -gt "$left" ]; then limit=$left; fi
  if [ "$limit" -lt 10 ]; then
    status=124
    echo "not started: the $seconds seconds are up" >"$log"
  else
    echo "== $name (at most $limit s)"
    # timeout signals the whole process group; what is left 10 s later is killed.
    GPU_CHECK_LIMIT=$((limit - 5)) timeout -k 10 "$limit" "$self" --step "$name" --device "$device" --bin "$bin" --steps "$bench_steps" \
      ${rows:+--rows "$rows"} ${peer:+--peer "$peer"} "$out" >"$log" 2>&1 </dev/null
    status=$?
  fi
  case $status in
    0) result=passed ;;
    77) result=skipped ;;
    124 | 137) result=timeout; failures=$((failures + 1)) ;;
    *) result=FAILED; failures=$((failures + 1)) ;;
  esac
  [ $result = passed ] || [ $result = skipped ] || tail -n 15 "$log"
  printf '%-10s %-9s %6d  %s\n' "$name" "$result" $((SECONDS - began)) "$(grep -v '^[[:space:]]*$' "$log" | tail -n 1 | cut -c1-150)" >>"$summary"
done

if $pack; then
  tar -C "$out" -czf "$out/logs.tar.gz" logs && rm -rf "$out/logs"
fi
[ ! -s "$out/bench.txt" ] || { echo; cat "$out/bench.txt"; }
echo
cat "$summary"
[ "$failures" = 0 ]
