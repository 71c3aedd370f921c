# What up.sh and down.sh share: where the state is, and which processes are theirs. To be sourced.
STATE=${VITINIT_SLURM:-/tmp/vitinit-single-node-slurm}

die() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# In a folder that anybody may write, somebody else may have made it: daemons of root must not read their files there.
[ "$(id -u)" != 0 ] || [ ! -e "$STATE" ] || [ -O "$STATE" ] || die "$STATE belongs to somebody else; choose another folder with VITINIT_SLURM"

# When a process started, in clock ticks since boot: with its pid it names the process for good.
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }

# The pid of a daemon of ours that still runs.
running() {
  local pid start
  read -r pid start 2>/dev/null <"$STATE/pids/$1" || return 1
  [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$1" ] && [ "$(started "$pid")" = "$start" ] && echo "$pid"
}
