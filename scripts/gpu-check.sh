#!/usr/bin/env bash
# Checks Hearth on a machine with a GPU, from an unpacked bundle (scripts/bundle.sh) or a source tree that was built.
#   scripts/gpu-check.sh [--only STEP,STEP] [--skip STEP] [--seconds N] [--device N] [--bin DIR] [--rows FILE]
#                        [--peer FILE] [--steps N] [--pack] OUT
#   scripts/gpu-check.sh --list
# Runs the steps of the table below, each with its own time limit and all within N seconds (default 480). Writes OUT/summary.txt,
# OUT/bench.{txt,jsonl} and OUT/logs/STEP.log (--pack: one OUT/logs.tar.gz), prints the summary and leaves no process behind.
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
  "guard 90 a NaN and a jump on purpose: found on the GPU, done again in BF16, the same bits each time"
  "gang 120 several GPUs: a job on all of them from submit to first step, then three faults and what they cost"
  "bench 240 hearth-trainer bench over a table of jobs"
  "perf 60 time and share of the ceiling of each kernel (ops perf -d cuda)"
  "sanitizer 150 compute-sanitizer memcheck and racecheck over a few kernels"
)
# What the sanitizer runs, the slow ones last: it slows a kernel by a factor of ten to a hundred, and what does not fit into the step's
# time is not run.
sanitized=(swiglu qk_norm_rope embedding quantize count_codes adamw linear_cross_entropy attention gelu dropout amax grad_norm step_gate scale round
  layernorm rmsnorm)

only="" skip="" seconds=480 device=0 bin="" rows="" peer="" bench_steps="" pack=false step="" out=""
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

# What runs on one GPU runs on the one named, whose number is nvidia-smi's.
one_gpu() { export CUDA_VISIBLE_DEVICES=$device; }

step_device() {
  command -v nvidia-smi >/dev/null || { echo "nvidia-smi is not on PATH: is the NVIDIA driver installed?"; return 1; }
  nvidia-smi -i "$device" || return 1
  nvidia-smi -i "$device" --query-gpu=name,driver_version,memory.total,power.limit,clocks.max.sm --format=csv
  uname -a
  head -n 2 /etc/os-release
  nproc
  "$bin/hearth-trainer" --version
}

step_probe() { one_gpu; "$bin/hearth-trainer" probe; }

step_ops() {
  [ -x "$bin/ops" ] || skipped "no ops in $bin (built without tests)"
  one_gpu
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
  one_gpu
  "$bin/ops" perf -d cuda
}

step_bench() {
  command -v python3 >/dev/null || skipped "python3 is not on PATH"
  local arguments=(--bin "$bin" --out "$out" --device "$device" --budget "$GPU_CHECK_LIMIT")
  [ -z "$bench_steps" ] || arguments+=(--steps "$bench_steps")
  [ -z "$peer" ] || arguments+=(--peer "$peer")
  python3 "$root/tests/bench/bench_table.py" "${arguments[@]}" --log "$out/logs/bench-runs.log" "${rows:-$root/tests/bench/check.rows}"
}

# Whether the program of a racecheck log passed and all hazards are in kernels of cuDNN and cuBLASLt; names those.
only_library_hazards() {  # only_library_hazards LOG
  local hazards
  hazards=$(grep 'Race reported' "$1") && grep -q ' 0 failed' "$1" || return 1
  ! grep -qvE '[ :](cudnn_|nvjet_)' <<<"$hazards" || return 1
  grep -oE '[ :](cudnn_|nvjet_)[A-Za-z0-9_]*' <<<"$hazards" | tr -d ' :' | sort | uniq -c
}

step_sanitizer() {
  local tool=compute-sanitizer op check failed=0 log=$out/logs/sanitizer-one.log left status
  command -v $tool >/dev/null || tool=/usr/local/cuda/bin/compute-sanitizer
  command -v "$tool" >/dev/null || skipped "compute-sanitizer is not on PATH nor under /usr/local/cuda"
  # gVisor's kernel calls itself 4.4.0; the tool cannot attach to the driver there.
  if [ "$(uname -r)" = 4.4.0 ] || grep -qi gvisor /proc/version; then skipped "compute-sanitizer does not work under gVisor"; fi
  [ -x "$bin/ops" ] || skipped "no ops in $bin (built without tests)"
  one_gpu
  for check in memcheck racecheck; do
    for op in "${sanitized[@]}"; do
      left=$((GPU_CHECK_LIMIT - SECONDS))
      if [ $left -lt 10 ]; then echo "not run $check $op: the step's time is up"; continue; fi
      if [ $left -gt 60 ]; then left=60; fi
      timeout -k 5 $left "$tool" --tool $check --error-exitcode 99 "$bin/ops" test -d cuda -o "$op/" >"$log" 2>&1
      status=$?
      if [ $status = 0 ]; then
        echo "clean   $check $op"
      elif [ $status = 124 ] && [ $left -lt 60 ]; then
        echo "not run $check $op: the step's time is up"
      elif [ $status = 99 ] && [ $check = racecheck ] && only_library_hazards "$log"; then
        echo "clean   $check $op except for the hazards above, in kernels of cuDNN and cuBLASLt"
      else
        echo "FAILED  $check $op (exit status $status)"
        tail -n 60 "$log"
        failed=1
      fi
    done
  done
  rm -f "$log"
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

scrape() {  # scrape NAME ADDRESS
  echo "# scrape $1 $(date +%s.%N)" >>"$out/logs/metrics.txt"
  http_get "$2" /metrics >>"$out/logs/metrics.txt"
}

step_cluster() {
  local address http worker job status csv watts
  home=$(mktemp -d)
  trap stop_daemons EXIT
  export HEARTH_HOME=$home NO_COLOR=1
  rm -f "$out/logs/metrics.txt"
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
  # Twice, so that the growth of counters is known; tests/integration/record_gpu_sample.py makes the tests' sample of it.
  scrape worker "$worker" && scrape coordinator "$http" && sleep 2 && scrape worker "$worker" && scrape coordinator "$http"
  watts=$(sed -n 's/^hearth_gpu_power_watts{[^}]*} //p' "$out/logs/worker-metrics.txt")
  "$bin/jobctl" wait "$job" --timeout 90s
  status=$?
  "$bin/jobctl" describe "$job"
  csv=$out/logs/cluster-metrics.csv
  "$bin/jobctl" metrics "$job" -o csv >"$csv"
  [ $status = 0 ] || { echo "the job ended with status $status"; "$bin/jobctl" logs "$job"; tail -n 30 "$home"/*.log; return 1; }
  # What a job that ends under somebody's eyes says.
  "$bin/jobctl" --price-per-kwh 0.10 watch "$job" | tail -n 10
  "$bin/jobctl" report "$job" -o json | grep -q '"hottest_celsius": [1-9]' || { echo "the hottest temperature is not with the job"; return 1; }
  [ -n "$watts" ] || { echo "no hearth_gpu_power_watts among the worker's metrics ($worker)"; return 1; }
  # Energy is a sum over the job: short steps alone may round to nothing.
  awk -F, -v watts="$watts" 'NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
    { if (NR == 2) first = $column["loss"]; last = $column["loss"]; joules += $column["energy_joules"]; rate = $column["tokens_per_second"] }
    END { printf "%d steps, loss %.3f -> %.3f, %.0f tok/s at the end, %.1f J in the steps, %.0f W at the worker\n", NR - 1, first, last, rate, joules, watts
          if (NR < 3 || last > 0.8 * first) { print "the loss did not fall by a fifth"; exit 1 }
          if (joules <= 0 || watts <= 0) { print "no power or energy was measured"; exit 1 } }' "$csv"
}

# -- guard: one job three times: clean, spoiled, spoiled again -------------------------------------------------------------------------
guard_run() {  # guard_run NAME RECIPE FAULTS
  HEARTH_FAULTS=$3 "$bin/hearth-trainer" run "$root/configs/jobs/gpu-smoke.yaml" --quiet --device "$guard_device" --out "$home/$1" \
    --set "data.train=$home/data" "precision.recipe=$2" precision.stats_every=50 train.steps=150 train.deterministic=true \
    train.spike_sigma=8 train.spike_window=16 checkpoint.every_steps=0 resources.device="${guard_device%%:*}" >"$home/$1.log" 2>&1 ||
    { echo "run $1 failed"; tail -n 30 "$home/$1.log"; return 1; }
}

step_guard() {
  local guard_device=${GPU_CHECK_GUARD_DEVICE:-cuda:0} recipe faults=trainer.nan_gradient=error@60,trainer.loss_spike=error@120
  command -v python3 >/dev/null || skipped "python3 is not on PATH"
  one_gpu
  home=$(mktemp -d)
  trap stop_daemons EXIT
  export HEARTH_HOME=$home NO_COLOR=1
  "$bin/jobctl" dataset build --input "$root/configs" "$root/scripts" "$root/tests" --tokenizer bytes --out "$home/data" || return 1
  for recipe in fp8 fp8_current nvfp4; do
    guard_run "$recipe-clean" $recipe "" && guard_run "$recipe-one" $recipe $faults && guard_run "$recipe-two" $recipe $faults || return 1
    python3 - "$home" $recipe <<'END' || return 1
import json, sys
home, recipe = sys.argv[1:]
clean, one, two = ([json.loads(line) for line in open(f"{home}/{recipe}-{name}/metrics.jsonl")] for name in ("clean", "one", "two"))
decided = [(int(d["step"]), d["action"], d["cause"]) for row in one for d in row.get("decisions", [])]
losses = lambda rows: [float(row["loss"]) for row in rows]
end = lambda rows: sum(losses(rows)[-10:]) / 10
tensors = [t for row in one for t in row.get("tensors", [])]
print(f"{recipe}: {decided}, loss at the end {end(one):.4f}, of a clean run {end(clean):.4f}; {len(tensors)} rows of tensor statistics, "
      f"worst underflow {max((t.get('underflow_ratio', 0) for t in tensors), default=0):.3f}")
assert decided == [(60, "redo", "non_finite"), (120, "redo", "spike")], "not what was to be decided"
assert losses(one) == losses(two), "a replay has other bits"
assert losses(one)[:59] == losses(clean)[:59], "it differs before anything was spoiled"
assert abs(end(one) / end(clean) - 1) < 0.03, "it ends elsewhere"
assert tensors, "no tensor statistics"
END
  done
}

# -- gang: all GPUs, one job, three faults ---------------------------------------------------------------------------------------------
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }
gang_job() { "$bin/jobctl" -o json get "$job"; }
gang_events() { "$bin/jobctl" -o json events "$job"; }
# Seconds from the submit to the first step, by the coordinator's own clock.
gang_first_step() {
  gang_events | awk -F'"' '/"time":/ { time = $4 } /"toState":/ { state = $4 } /"reasonCode":/ { code = $4 }
    /}/ { if (code == "submitted" && begin == "") begin = time; if (code == "first_step" && end == "") end = time; code = "" }
    END { print begin, end }' | {
    read -r begin end
    [ -n "${end:-}" ] && awk -v a="$(date -d "$begin" +%s.%N)" -v b="$(date -d "$end" +%s.%N)" 'BEGIN { printf "%.2f\n", b - a }'
  }
}
gang_fail() {  # gang_fail MESSAGE: what happened, from everybody's mouth
  echo "FAILED: $1"
  "$bin/jobctl" describe "$job" | tail -n 60
  "$bin/jobctl" logs "$job" | tail -n 30
  "$bin/jobctl" workers -o wide
  for log in "$home"/node/*.log; do echo "-- $log"; tail -n 8 "$log"; done
  nvidia-smi --query-gpu=index,memory.used,utilization.gpu --format=csv 2>/dev/null
  return 1
}
gang_wait() {  # gang_wait SECONDS WHAT COMMAND...
  local until=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $until ] || { gang_fail "no $what in time"; return 1; }
    ! gang_job | grep -q '^ "state": "JOB_STATE_FAILED"' || { gang_fail "the job failed while waiting for $what"; return 1; }
    sleep 0.1
  done
}
# Runs on that many workers, and this epoch has a checkpoint: a fault loses little.
gang_ready() {  # gang_ready WORKERS
  gang_job | awk -F'"' -v wanted="$1" '/^ "[a-zA-Z]+":/ { top = $2 } /^ "state":/ { state = $4 } /^ "epoch":/ { epoch = $4 }
    /^  "epoch":/ && top == "checkpoint" { saved = $4 } /^  "/ && top == "workers" { ++workers }
    END { exit !(state == "JOB_STATE_RUNNING" && workers == wanted && saved == epoch) }'
}
gang_recoveries() { gang_events | grep -c '"type": "recovery"'; }
gang_recovered() { [ "$(gang_recoveries)" -gt "$1" ]; }
node_pid() { cut -d ' ' -f 1 "$home/node/$1.pid"; }
children() {  # children PID: not every machine has pgrep
  sed -n 's/^\([0-9]*\) (.*) \(.\) \([0-9]*\) .*/\1 \2 \3/p' /proc/[0-9]*/stat 2>/dev/null | awk -v parent="$1" '$3 == parent && $2 != "Z" { print $1 }'
}
trainers() { local i; for ((i = 0; i < gpus; i++)); do children "$(node_pid "$kind$i")"; done; }
dead() { local pid; for pid in "$@"; do [[ $(cut -d ' ' -f 3 "/proc/$pid/stat" 2>/dev/null) =~ ^[ZX]?$ ]] || return 1; done; }
gang_fault() {  # gang_fault NAME SIGNAL PID
  local before all began
  before=$(gang_recoveries)
  all=$(trainers)
  seen_pids+=" $all"
  began=$(now)
  kill "-$2" "$3" || return 1
  # shellcheck disable=SC2086
  gang_wait 20 "end of the other ranks after $1" dead $all || return 1
  local aborted
  aborted=$(since "$began")
  gang_wait 45 "step after $1" gang_recovered "$before" || return 1
  printf '%-34s others gone after %5s s, next step after %5s s\n' "$1:" "$aborted" "$(since "$began")" | tee -a "$out/logs/gang-times.txt"
  gang_events | sed -n 's/.*"message": "\(recovered in .*\)",*$/  \1/p' | tail -n 1
  awk -v s="$aborted" 'BEGIN { exit !(s <= 5) }' || { late=true; echo "  more than 5 s"; }
}
gang_end() {
  [ -z "${job:-}" ] || "$bin/jobctl" cancel --now "$job" >/dev/null 2>&1
  "$root/scripts/start-node.sh" --bin "$bin" --stop --timeout 6 >/dev/null 2>&1
  rm -rf "$home"
}

# GPU_CHECK_CPU=N tries the step itself without a GPU: N CPU workers and a small model.
step_gang() {
  local seconds step small=() began
  kind=gpu gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU [0-9]')
  if [ -n "${GPU_CHECK_CPU:-}" ]; then kind=cpu gpus=$GPU_CHECK_CPU; fi
  [ "$gpus" -ge 2 ] || skipped "needs two GPUs or more, found $gpus"
  home=$(mktemp -d) job="" seen_pids="" late=false
  trap gang_end EXIT
  export HEARTH_HOME=$home NO_COLOR=1 HEARTH_COORDINATOR_FLAGS="--reattach-grace-seconds 1 --resize-interval-seconds 3 --resize-settle-seconds 0.5"
  local node=("$root/scripts/start-node.sh" --bin "$bin" --listen 127.0.0.1:0 --http 127.0.0.1:0 --timeout 30)
  if [ $kind = cpu ]; then
    node+=(--cpu "$gpus")
    small=(--set model.preset=hearth-nano --set data.sequence_length=64 --set resources.device=cpu --set precision.recipe=fp32)
  fi
  began=$(now)
  "${node[@]}" || return 1
  echo "node of $gpus workers up after $(since "$began") s"
  HEARTH_COORDINATOR=$(cat "$home/node/address")
  export HEARTH_COORDINATOR
  "$bin/jobctl" dataset build --input "$root/configs" "$root/scripts" "$root/tests" "$root/deploy" --tokenizer bytes --out "$home/data" || return 1
  local sequence=2048
  [ $kind = gpu ] || sequence=64
  job=$("$bin/jobctl" submit -o name "$root/configs/jobs/gang-112m.yaml" --set "data.train=$home/data" --set "resources.workers=$gpus" \
    --set "resources.min_workers=$(((gpus + 1) / 2))" --set "batch.global_batch_tokens=$((18 * sequence * gpus))" "${small[@]}") || return 1
  job=${job#job/}
  gang_wait 60 "first step" gang_first_step || return 1
  seconds=$(gang_first_step)
  printf 'submit to first step: %s s on %s workers\n' "$seconds" "$gpus" | tee "$out/logs/gang-times.txt"
  gang_wait 30 "checkpoint" gang_ready "$gpus" || return 1
  "$bin/jobctl" describe "$job" | grep -E '^(Speed|Batch|Workers|Precision)'

  gang_fault "kill -9 of a trainer" KILL "$(children "$(node_pid "${kind}1")")" || return 1
  gang_wait 30 "checkpoint of $gpus workers" gang_ready "$gpus" || return 1
  gang_fault "SIGSTOP of a trainer" STOP "$(children "$(node_pid "$kind$((gpus - 1))")")" || return 1
  gang_wait 30 "checkpoint of $gpus workers" gang_ready "$gpus" || return 1
  gang_fault "kill -9 of a daemon" KILL "$(node_pid "${kind}1")" || return 1
  gang_wait 30 "checkpoint of $((gpus - 1)) workers" gang_ready $((gpus - 1)) || return 1
  began=$(now)
  "${node[@]}" >/dev/null || return 1
  gang_wait 45 "growth back to $gpus workers" gang_ready "$gpus" || return 1
  echo "grown back to $gpus workers $(since "$began") s after the daemon's restart (a checkpoint of theirs included)"
  seen_pids+=" $(trainers)"

  "$bin/jobctl" events "$job" >"$out/logs/gang-events.txt"
  "$bin/jobctl" metrics "$job" -o csv >"$out/logs/gang-metrics.csv"
  "$bin/jobctl" cancel --now "$job"
  "$bin/jobctl" wait "$job" --timeout 20s >/dev/null
  # shellcheck disable=SC2086
  gang_wait 10 "end of all trainers" dead $seen_pids || return 1
  if [ $kind = gpu ]; then
    local left pid
    left=$(nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv,noheader)
    for pid in $seen_pids; do
      if grep -q "^$pid," <<<"$left"; then echo "FAILED: nvidia-smi still shows process $pid of ours: $left"; return 1; fi
    done
    echo "nvidia-smi shows no process of ours${left:+ (of others: $left)}"
    nvidia-smi --query-gpu=index,memory.used --format=csv,noheader
  fi
  "$root/scripts/start-node.sh" --bin "$bin" --stop --timeout 20 || return 1
  awk -F, 'NR > 1 { if ($1 != NR - 1) { print "step " $1 " follows " NR - 2; exit 1 } }' "$out/logs/gang-metrics.csv" || return 1
  ! $late || { echo "FAILED: the other ranks outlived a fault by more than 5 s"; return 1; }
  tr '\n' ';' <"$out/logs/gang-times.txt" | sed 's/  */ /g; s/others gone after/gone/g; s/next step after/step/g'
  echo
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
    GPU_CHECK_LIMIT=$((limit - 5)) timeout -k 10 "$limit" "$self" --step "$name" --device "$device" --bin "$bin" ${bench_steps:+--steps "$bench_steps"} \
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
