#!/usr/bin/env bash
# Stops the SLURM of up.sh, whose VITINIT_SLURM it must be given: its jobs, then the processes that up.sh started, each
# only if it is still the one. Accounting and logs stay; remove the folder to forget them.
set -euo pipefail
. "$(dirname "$0")/common.sh"

export SLURM_CONF=$STATE/etc/slurm.conf
if running slurmctld >/dev/null && running slurmd >/dev/null; then
  timeout 10 scancel --quiet --user "$(id -un)" || true
  for _ in $(seq 80); do # the default KILL_WAIT of up.sh is 5 s
    [ -n "$(timeout 5 squeue --noheader 2>/dev/null)" ] || break
    sleep 0.1
  done
fi
stop() {
  local name pid
  for name in "$@"; do
    pid=$(running "$name") && kill "$pid" && echo "stopping $name ($pid)"
  done
  for name in "$@"; do
    for _ in $(seq 100); do
      running "$name" >/dev/null || break
      sleep 0.1
    done
    pid=$(running "$name") && kill -9 "$pid"
    rm -f "$STATE/pids/$name"
  done
}

stop slurmd slurmctld
stop slurmdbd
stop mariadbd munged
