#!/usr/bin/env bash
# One coordinator and one worker per GPU on this machine, from an unpacked bundle or a build tree.
#   scripts/start-node.sh                         coordinator, and a worker for each GPU
#   scripts/start-node.sh --coordinator HOST:PORT workers only, for a coordinator that runs elsewhere
#   scripts/start-node.sh --cpu N                 N workers on the CPU instead of the GPUs
#   scripts/start-node.sh --status | --stop       list what runs; stop everything (trainers write a checkpoint first)
# Options: --bin DIR (programs), --listen HOST:PORT and --http HOST:PORT (of the coordinator; port 0 = any free one),
#   --token-file PATH (with --coordinator: a worker's token, or a folder with the token of each worker in NAME.token),
#   --timeout SECONDS (default 60 to start, 120 to stop). Run again, it starts what is missing and does not touch what runs.
# Environment: HEARTH_HOME (default ~/.hearth; logs and process ids in $HEARTH_HOME/node), HEARTH_COORDINATOR_FLAGS,
#   HEARTH_WORKER_FLAGS, HEARTH_JOBCTL_FLAGS (more arguments, split at blanks), CUDA_VISIBLE_DEVICES (which GPUs).
# Exit status: 0 done; 1 something did not start or end (its last log lines are shown); 2 usage.
set -euo pipefail
self=$(readlink -f "$0")
root=$(dirname "$(dirname "$self")")
export HEARTH_HOME=${HEARTH_HOME:-$HOME/.hearth}
node=$HEARTH_HOME/node

usage() { sed -n '2,12s/^# \{0,1\}//p' "$self" >&2; exit 2; }
die() { echo "start-node: $1" >&2; exit "${2:-1}"; }

action=start cpu="" coordinator="" tokens="" bin="" listen=127.0.0.1:7070 http=127.0.0.1:7071 timeout=""
while [ $# -gt 0 ]; do
  case "$1" in
    --stop | --status) action=${1#--}; shift ;;
    --cpu | --coordinator | --token-file | --bin | --listen | --http | --timeout)
      [ $# -ge 2 ] || usage
      case "$1" in
        --cpu) cpu=$2 ;; --coordinator) coordinator=$2 ;; --token-file) tokens=$2 ;; --bin) bin=$2 ;;
        --listen) listen=$2 ;; --http) http=$2 ;; --timeout) timeout=$2 ;;
      esac
      shift 2 ;;
    *) usage ;;
  esac
done
[[ ${cpu:-1} =~ ^[1-9][0-9]*$ ]] || die "--cpu $cpu is not a number of workers" 2
[[ ${timeout:-1} =~ ^[1-9][0-9]*$ ]] || die "--timeout $timeout is not a number of seconds" 2
[ -z "$tokens" ] || [ -n "$coordinator" ] || die "--token-file goes with --coordinator: workers find the token of a coordinator of their own" 2
[ -z "$tokens" ] || [ -r "$tokens" ] || die "--token-file $tokens: no such file or folder, or it is not ours" 2
if [ -z "$bin" ]; then
  for bin in "$root/bin" "$root/build/release/bin" "$root/build/dev/bin"; do [ ! -x "$bin/hearth-worker" ] || break; done
fi
bin=$(readlink -f "$bin")
for program in hearth-coordinator hearth-worker hearth-trainer jobctl; do
  [ "$action" != start ] || [ -x "$bin/$program" ] || die "no $program in $bin: build it, or say where with --bin DIR" 2
done

mkdir -p "$node"
exec 9>"$node/lock"
flock -n 9 || die "another start-node.sh works in $node"

# A process id may go to another program; with the time of its start (in clock ticks since boot) it is one process for ever. Nothing for
# one that has ended, even if nobody reaps it (a container without an init).
start_time() { sed '/.*) [ZX] /d; s/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }
running() {  # running UNIT: prints its process id
  local pid began
  [ -s "$node/$1.pid" ] || return 1
  read -r pid began <"$node/$1.pid"
  [ -n "${began:-}" ] && [ "$(start_time "$pid")" = "$began" ] && echo "$pid"
}
units() { for file in "$node"/*.pid; do [ ! -e "$file" ] || basename "$file" .pid; done; }

started=()
launch() {  # launch UNIT PROGRAM ARGS...
  local unit=$1 program=$2
  shift 2
  setsid "$bin/$program" "$@" >"$node/$unit.log" 2>&1 </dev/null 9>&- &
  local pid=$!
  echo "$pid $(start_time "$pid")" >"$node/$unit.pid"
  disown "$pid"
  started+=("$unit")
}

stop_units() {  # stop_units SECONDS UNIT...: SIGTERM to all, SIGKILL to what is left
  local until=$((SECONDS + $1)) unit pid left
  shift
  for unit in "$@"; do if pid=$(running "$unit"); then kill "$pid" 2>/dev/null || true; fi; done
  while :; do
    left=()
    for unit in "$@"; do if running "$unit" >/dev/null; then left+=("$unit"); else rm -f "$node/$unit.pid"; fi; done
    [ ${#left[@]} -gt 0 ] || return 0
    [ $SECONDS -lt $until ] || break
    sleep 0.05
  done
  for unit in "${left[@]}"; do
    echo "start-node: $unit did not end in time and is killed; see $node/$unit.log" >&2
    if pid=$(running "$unit"); then kill -KILL "$pid" 2>/dev/null || true; fi
    rm -f "$node/$unit.pid"
  done
  return 1
}

fail() {  # fail MESSAGE [UNIT]: takes back what this call started
  echo "start-node: $1" >&2
  if [ -n "${2:-}" ]; then tail -n 15 "$node/$2.log" | sed 's/^/  | /' >&2; fi
  if [ ${#started[@]} -gt 0 ]; then stop_units 10 "${started[@]}" || true; fi
  exit 1
}

loopback() { [[ $1 =~ ^(127\.[0-9.]+|localhost|\[::1\]):[0-9]+$ ]]; }
# The token of a worker; nothing where hearth-worker finds it by itself.
token_of() {
  if [ -d "$tokens" ]; then echo "$tokens/$1.token"; else echo "$tokens"; fi
}
# Whether a worker says that the coordinator has welcomed it: its token allows no question to the coordinator.
connected() {  # connected NAME
  local http host
  http=$(sed -n 's/.*"http": *"\([^"]*\)".*/\1/p' "$HEARTH_HOME/workers/$1/endpoints.json" 2>/dev/null)
  [ -n "$http" ] || return 1
  host=${http%:*}
  (exec 8<>"/dev/tcp/${host//[\[\]]/}/${http##*:}" && printf 'GET /metrics HTTP/1.0\r\n\r\n' >&8 && grep -q '^hearth_worker_connected 1' <&8) 2>/dev/null
}
endpoint() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" "$HEARTH_HOME/coordinator/endpoints.json" 2>/dev/null; }
# Where to dial what listens on all addresses.
dialled() { sed 's/^0\.0\.0\.0:/127.0.0.1:/; s/^\[::\]:/[::1]:/'; }
jobctl() { "$bin/jobctl" --coordinator "$address" ${own_jobctl_flags[@]+"${own_jobctl_flags[@]}"} ${HEARTH_JOBCTL_FLAGS:-} "$@"; }

if [ "$action" != start ]; then
  workers=() found=false
  for unit in $(units); do
    if pid=$(running "$unit"); then
      found=true
      [ "$action" = stop ] || echo "$unit runs, process $pid, log $node/$unit.log"
    else
      echo "$unit has ended; its log is $node/$unit.log"
      [ "$action" = status ] || rm -f "$node/$unit.pid"
      continue
    fi
    [ "$unit" = coordinator ] || workers+=("$unit")
  done
  $found || { echo "nothing of $node runs"; exit 0; }
  [ "$action" = stop ] || exit 0
  status=0
  if [ ${#workers[@]} -gt 0 ]; then stop_units "${timeout:-120}" "${workers[@]}" || status=1; fi
  stop_units 30 coordinator || status=1
  rm -f "$node/address" "$node/listen" "$node/token-file"
  [ $status != 0 ] || echo "stopped"
  exit $status
fi

# Units: gpuN for the GPU that cuda:N names, cpuN.
wanted=()
if [ -n "$cpu" ]; then
  for ((i = 0; i < cpu; i++)); do wanted+=("cpu$i"); done
elif [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
  IFS=, read -ra gpus <<<"$CUDA_VISIBLE_DEVICES"
  for ((i = 0; i < ${#gpus[@]}; i++)); do wanted+=("gpu$i"); done
else
  count=0
  if command -v nvidia-smi >/dev/null; then count=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU [0-9]') || true; fi
  if [ "$count" = 0 ]; then count=$(find /dev -maxdepth 1 -name 'nvidia[0-9]*' 2>/dev/null | wc -l); fi
  [ "$count" != 0 ] || die "no GPU: nvidia-smi lists none and there is no /dev/nvidia0. Is the driver installed? (--cpu N trains on the CPU)"
  for ((i = 0; i < count; i++)); do wanted+=("gpu$i"); done
fi
for unit in $(units); do
  if [ "$unit" != coordinator ] && [[ " ${wanted[*]} " != *" $unit "* ]] && running "$unit" >/dev/null; then
    echo "start-node: $unit runs too, from an earlier start" >&2
  fi
done

until=$((SECONDS + ${timeout:-60}))
if [ -s "$node/address" ] && running_any=$(for unit in $(units); do running "$unit" || true; done) && [ -n "$running_any" ]; then
  address=$(cat "$node/address")
  [ -z "$coordinator" ] || [ "$coordinator" = "$address" ] ||
    die "this node already runs for the coordinator at $address; end it first: $self --stop"
  # A node that had a coordinator of its own keeps it.
  [ -e "$node/coordinator.pid" ] || coordinator=$address
fi
if [ -n "$coordinator" ]; then
  address=$coordinator
elif ! running coordinator >/dev/null; then
  # A coordinator that died with its workers alive must come back where they look for it.
  if [ -n "${running_any:-}" ]; then
    listen=$address
    # On the port that it got then, at the address that it was given: 0.0.0.0 is not where one dials.
    if [ -s "$node/listen" ]; then listen=$(cat "$node/listen"); listen=${listen%:*}:${address##*:}; fi
  fi
  for place in "$listen" "$http"; do
    host=$(dialled <<<"${place%:*}:") port=${place##*:}
    host=${host%:}
    [ "$port" = 0 ] || ! (exec 8<>"/dev/tcp/${host//[\[\]]/}/$port") 2>/dev/null ||
      die "port $port of $host is taken. Another coordinator? Join it with --coordinator $host:$port, or choose others with --listen 127.0.0.1:0 --http 127.0.0.1:0"
  done
  rm -f "$HEARTH_HOME/coordinator/endpoints.json"
  echo "$listen" >"$node/listen"
  # shellcheck disable=SC2086
  launch coordinator hearth-coordinator --data-dir "$HEARTH_HOME/coordinator" --listen "$listen" --http "$http" ${HEARTH_COORDINATOR_FLAGS:-}
  until [ -s "$HEARTH_HOME/coordinator/endpoints.json" ]; do
    running coordinator >/dev/null || fail "the coordinator ended" coordinator
    [ $SECONDS -lt $until ] || fail "the coordinator does not answer" coordinator
    sleep 0.05
  done
fi
if [ -z "$coordinator" ]; then address=$(endpoint listen | dialled); fi
echo "$address" >"$node/address"
if [ -n "$tokens" ]; then readlink -f "$tokens" >"$node/token-file"; fi
if [ -n "$coordinator" ] && [ -s "$node/token-file" ]; then tokens=$(cat "$node/token-file"); fi
own_jobctl_flags=() export_token=""
own_token=$HEARTH_HOME/tokens/local-${address##*:}
if [ -z "$coordinator" ] && ! loopback "$address" && [ -e "$own_token" ]; then
  # Programs look for the coordinator's own tokens by themselves only where they dial a loopback address.
  tokens=$own_token-worker
  own_jobctl_flags=(--token-file "$own_token")
  export_token=" HEARTH_TOKEN_FILE=$own_token"
  [[ " ${HEARTH_COORDINATOR_FLAGS:-} " != *" --insecure "* ]] || own_jobctl_flags+=(--insecure)
fi

host=$(hostname -s | tr 'A-Z' 'a-z' | tr -c 'a-z0-9\n' '-' | sed 's/^-*//; s/-*$//')
if [ -n "$coordinator" ] && [ -f "$tokens" ] && [ ${#wanted[@]} -gt 1 ]; then
  die "--token-file $tokens is the token of one worker, and ${#wanted[@]} start here: give a folder with $host-${wanted[0]}.token and so on" 2
fi
for unit in "${wanted[@]}"; do
  [ ! -d "$tokens" ] || [ -r "$(token_of "$host-$unit")" ] ||
    die "no $(token_of "$host-$unit"); an admin makes it: jobctl token create $host-$unit --role worker --worker $host-$unit --output-file $host-$unit.token" 2
done
new=0
for unit in "${wanted[@]}"; do
  if running "$unit" >/dev/null; then continue; fi
  new=$((new + 1))
  if [ -n "$cpu" ]; then
    threads=$(($(nproc) / cpu))
    device=(--device cpu --threads $((threads > 0 ? threads : 1)))
  else
    device=(--device "cuda:${unit#gpu}")
  fi
  if [ -n "$tokens" ]; then device+=(--token-file "$(token_of "$host-$unit")"); fi
  # shellcheck disable=SC2086
  launch "$unit" hearth-worker --coordinator "$address" --name "$host-$unit" "${device[@]}" ${HEARTH_WORKER_FLAGS:-}
done

# IDLE or BUSY: the coordinator counts on them.
online() {
  if [ -n "$coordinator" ]; then
    for unit in "${wanted[@]}"; do if connected "$host-$unit"; then echo "$host-$unit"; fi; done
    return
  fi
  jobctl workers 2>"$node/jobctl.log" | awk 'NR > 1 && tolower($2) ~ /idle|busy/ { print $1 }'
}
: >"$node/jobctl.log"
while :; do
  missing=() there=$(online) || true
  for unit in "${wanted[@]}"; do
    running "$unit" >/dev/null || fail "worker $unit ended" "$unit"
    grep -qx "$host-$unit" <<<"$there" || missing+=("$unit")
  done
  [ ${#missing[@]} -gt 0 ] || break
  if running coordinator >/dev/null || [ -n "$coordinator" ]; then :; else fail "the coordinator ended" coordinator; fi
  [ $SECONDS -lt $until ] || { cat "$node/jobctl.log" >&2; fail "not registered at $address in time: ${missing[*]}" "${missing[0]}"; }
  sleep 0.1
done

if [ ${#started[@]} = 0 ]; then
  echo "already running, nothing to start"
elif [ $new = 0 ]; then
  echo "the coordinator had ended and is started again; the workers were running"
fi
echo "coordinator $address, ${#wanted[@]} workers: $host-${wanted[0]} .. $host-${wanted[-1]}; logs in $node"
listening=$([ -n "$coordinator" ] || endpoint listen)
# jobctl sends a token in clear text beyond loopback only when it is told to.
clear=""
if [[ " ${HEARTH_COORDINATOR_FLAGS:-} " == *" --insecure "* ]] && ! loopback "$address"; then clear=" --insecure"; fi
if [ -n "$coordinator" ] && [ -n "$tokens" ]; then
  echo "A worker's token submits no jobs; people have tokens of their own: jobctl --coordinator $address --token-file FILE submit -f JOB.yaml"
else
  cat <<END

  export PATH=$bin:\$PATH HEARTH_COORDINATOR=$address$export_token
  jobctl$clear submit -f JOB.yaml --set resources.workers=${#wanted[@]} --watch
END
fi
if [ -z "$coordinator" ] && ! loopback "$listening"; then
  reach=$(sed "s/^0\.0\.0\.0:/$(hostname):/; s/^\[::\]:/$(hostname):/" <<<"$listening")
  flags="--tls-ca CA.crt"
  [[ " ${HEARTH_COORDINATOR_FLAGS:-} " != *" --insecure "* ]] || flags=--insecure
  cat <<END

Another machine joins with a token for each of its workers, which are called HOST-gpu0, HOST-gpu1, .. (HOST as hostname -s says there).
Here, for each of them:
  mkdir -p tokens && jobctl$clear token create HOST-gpu0 --role worker --worker HOST-gpu0 --output-file tokens/HOST-gpu0.token
There, with that folder:
  HEARTH_WORKER_FLAGS="$flags" $0 --coordinator $reach --token-file tokens
END
fi
cat <<END

To stop: $([ "$HEARTH_HOME" = "$HOME/.hearth" ] || echo "HEARTH_HOME=$HEARTH_HOME ")$self --stop
END
