#!/usr/bin/env bash
# A real SLURM on one machine, for laptops and CI: munged, slurmctld, slurmd and, for sacct, slurmdbd with MariaDB.
# For Debian, as root; needs no systemd, listens on 127.0.0.1 only. Installs the Debian packages that are missing.
#
#   slurm/single_node/up.sh          then the line it prints; with no terminal: setsid up.sh </dev/null
#   slurm/single_node/down.sh        stops what up.sh started
#
# Started again it starts what is no longer running. Partitions: `main` (the default), and `high`, whose jobs preempt
# those of `main`: they are told, and requeued after the grace time.
#
# Settings, from the environment:
#   VITINIT_SLURM   folder of all state and logs       /tmp/vitinit-single-node-slurm
#   PORT_BASE       first of four ports                6817
#   ACCT            dbd, or none: no sacct             dbd
#   CPUS, GPUS      how many; the GPUs are fake        4, 2
#   MAX_ARRAY       MaxArraySize                       1001
#   CRED_EXPIRE     seconds that a requeued job waits before it starts again, and some more   120
#   GRACE           grace time of a preemption in seconds                                      10
#   KILL_WAIT       seconds between SIGTERM and SIGKILL                                        5
#   PREEMPT_SIGNAL  user: preempted jobs get the signal they asked for; term: SIGTERM          user
#   PARENT          pid of a process whose end takes SLURM down, even if it is killed               none
#   MEMORY          free, or enforced: a job that takes more than it asked for is killed       free
set -euo pipefail
. "$(dirname "$0")/common.sh"

PORT_BASE=${PORT_BASE:-6817} ACCT=${ACCT:-dbd} CPUS=${CPUS:-4} GPUS=${GPUS:-2} MAX_ARRAY=${MAX_ARRAY:-1001}
CRED_EXPIRE=${CRED_EXPIRE:-120} GRACE=${GRACE:-10} PREEMPT_SIGNAL=${PREEMPT_SIGNAL:-user} MEMORY=${MEMORY:-free} KILL_WAIT=${KILL_WAIT:-5}
PARENT=${PARENT:-}
CTLD_PORT=$PORT_BASE SLURMD_PORT=$((PORT_BASE + 1)) DBD_PORT=$((PORT_BASE + 2)) SQL_PORT=$((PORT_BASE + 3))
HOST=$(hostname -s)
export SLURM_CONF=$STATE/etc/slurm.conf

[ "$(id -u)" = 0 ] || die "must be root: slurmd starts jobs as their users"
[ -e /etc/debian_version ] || die "knows Debian's packages only; elsewhere install SLURM yourself and point SLURM_CONF at it"
case $ACCT in dbd | none) ;; *) die "ACCT=$ACCT: expected dbd or none" ;; esac
case $PREEMPT_SIGNAL in user | term) ;; *) die "PREEMPT_SIGNAL=$PREEMPT_SIGNAL: expected user or term" ;; esac
[ -z "$PARENT" ] || [ -d "/proc/$PARENT" ] || die "PARENT=$PARENT: no such process"
case $MEMORY in free | enforced) ;; *) die "MEMORY=$MEMORY: expected free or enforced" ;; esac

install_packages() {
  local wanted="slurm-wlm munge" missing="" package
  exec 9>/run/lock/vitinit-single-node-slurm
  flock 9 # another up.sh may be installing them just now
  [ "$ACCT" = none ] || wanted="$wanted slurmdbd mariadb-server"
  for package in $wanted; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
  done
  if [ -z "$missing" ]; then
    exec 9>&-
    return
  fi
  if [ ! -e /usr/sbin/policy-rc.d ]; then # Debian's way to say that installing must not start services
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
  fi
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >"$STATE/log/apt.log" 2>&1 ||
    die "could not install$missing; see $STATE/log/apt.log"
  exec 9>&-
}

# start DAEMON COMMAND...: unless it runs already.
start() {
  local name=$1
  shift
  running "$name" >/dev/null && return
  setsid "$@" >>"$STATE/log/$name.out" 2>&1 </dev/null &
  echo "$! $(started $!)" >"$STATE/pids/$name"
}

# wait_for DAEMON COMMAND: until the daemon answers.
wait_for() {
  local end=$((SECONDS + 30))
  until timeout 5 bash -c "$2" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || die "$1 does not answer; see $STATE/log/$1.*"
    sleep 0.2
  done
}

check_ports() {
  local daemon port
  while read -r daemon port; do
    running "$daemon" >/dev/null && continue
    if (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      die "port $port, for $daemon, is taken; choose four free ones with PORT_BASE"
    fi
  done
}

write_slurm_conf() {
  local gpus="" memory told="" counted=CR_Core gather="JobAcctGatherType=jobacct_gather/none"
  memory=$(awk '/MemTotal/ {print int($2 / 1024 * 0.9)}' /proc/meminfo)
  : >"$STATE/etc/gres.conf"
  if [ "$GPUS" -gt 0 ]; then
    gpus="Gres=gpu:fake:$GPUS"
    for number in $(seq 0 $((GPUS - 1))); do # each a device that is as empty as /dev/null
      [ -e "$STATE/gpu$number" ] || mknod "$STATE/gpu$number" c 1 3
    done
    echo "NodeName=$HOST Name=gpu Type=fake File=$STATE/gpu[0-$((GPUS - 1))]" >"$STATE/etc/gres.conf"
  fi
  [ "$PREEMPT_SIGNAL" = term ] || told="SlurmctldParameters=preempt_send_user_signal"
  if [ "$MEMORY" = enforced ]; then # without cgroups slurmd looks every second
    counted=CR_Core_Memory
    gather=$(printf '%s\n' JobAcctGatherType=jobacct_gather/linux JobAcctGatherFrequency=task=1 \
      JobAcctGatherParams=OverMemoryKill DefMemPerCPU=2000)
  fi
  cat >"$SLURM_CONF" <<CONF
ClusterName=single-node
SlurmctldHost=$HOST(127.0.0.1)
SlurmctldPort=$CTLD_PORT
SlurmdPort=$SLURMD_PORT
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$STATE/munge.socket,cred_expire=$CRED_EXPIRE
CredType=cred/munge
StateSaveLocation=$STATE/state
SlurmdSpoolDir=$STATE/spool
SlurmctldPidFile=$STATE/slurmctld.pid
SlurmdPidFile=$STATE/slurmd.pid
SlurmctldLogFile=$STATE/log/slurmctld.log
SlurmdLogFile=$STATE/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
$gather
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=$counted
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=5,bf_interval=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
$told
JobRequeue=1
MaxArraySize=$MAX_ARRAY
KillWait=$KILL_WAIT
OverTimeLimit=0
MinJobAge=60
InactiveLimit=0
ReturnToService=2
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName=$HOST NodeAddr=127.0.0.1 CPUs=$CPUS RealMemory=$memory $gpus State=UNKNOWN
PartitionName=main Nodes=$HOST Default=YES MaxTime=2-00:00:00 State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=$GRACE
PartitionName=high Nodes=$HOST MaxTime=2-00:00:00 State=UP PriorityTier=10 PreemptMode=OFF
CONF
  if [ "$ACCT" = none ]; then
    echo "AccountingStorageType=accounting_storage/none" >>"$SLURM_CONF"
  else # the password of slurmdbd is the socket of munge
    cat >>"$SLURM_CONF" <<CONF
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$DBD_PORT
AccountingStoragePass=$STATE/munge.socket
CONF
  fi
}

start_munge() {
  if [ ! -s "$STATE/etc/munge.key" ]; then
    (umask 077 && head -c 1024 /dev/urandom >"$STATE/etc/munge.key")
  fi
  # --force: munged dislikes folders that others may write to, and /tmp is one
  start munged munged --force --foreground --key-file="$STATE/etc/munge.key" --socket="$STATE/munge.socket" \
    --pid-file="$STATE/munged.pid" --seed-file="$STATE/munge.seed"
  wait_for munged "munge -n --socket='$STATE/munge.socket' | unmunge --socket='$STATE/munge.socket'"
}

make_database() {
  rm -rf "$STATE/sql/data"
  mkdir -p "$STATE/sql/data" "$STATE/sql/tmp"
  # as root, like the other daemons: another user might not be allowed into the folder above
  mariadb-install-db --no-defaults --innodb-use-native-aio=0 --user=root --tmpdir="$STATE/sql/tmp" --datadir="$STATE/sql/data" --skip-test-db \
    --auth-root-authentication-method=normal >"$STATE/log/mariadb-install.log" 2>&1
}

start_accounting() {
  local sql="--no-defaults --socket=$STATE/sql/socket"
  if [ ! -d "$STATE/sql/data/mysql" ]; then
    # now and then it fails on a busy machine; why is not known
    local tries=0
    until make_database; do
      tries=$((tries + 1))
      echo "up.sh: making the database failed: $(grep -iE 'error|fatal|cannot' "$STATE/log/mariadb-install.log" | head -n 5)" >&2
      [ $tries -lt 3 ] || die "could not make the database, in $tries tries: see $STATE/log/mariadb-install.log"
    done
  fi
  start mariadbd mariadbd --no-defaults --innodb-use-native-aio=0 --user=root --tmpdir="$STATE/sql/tmp" --datadir="$STATE/sql/data" --socket="$STATE/sql/socket" \
    --port=$SQL_PORT --bind-address=127.0.0.1 --pid-file="$STATE/sql/pid" --innodb-buffer-pool-size=64M \
    --innodb-lock-wait-timeout=900
  wait_for mariadbd "mariadb-admin $sql -uroot ping"
  # shellcheck disable=SC2086
  mariadb $sql -uroot -e "CREATE DATABASE IF NOT EXISTS slurm_acct_db;
    CREATE USER IF NOT EXISTS slurm@'127.0.0.1' IDENTIFIED BY 'slurm';
    CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED BY 'slurm';
    GRANT ALL ON slurm_acct_db.* TO slurm@'127.0.0.1'; GRANT ALL ON slurm_acct_db.* TO slurm@localhost;"
  (umask 077 && cat >"$STATE/etc/slurmdbd.conf") <<CONF
AuthType=auth/munge
AuthInfo=socket=$STATE/munge.socket
CommunicationParameters=NoInAddrAny
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$DBD_PORT
SlurmUser=root
LogFile=$STATE/log/slurmdbd.log
PidFile=$STATE/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$SQL_PORT
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
CONF
  start slurmdbd slurmdbd -D
  wait_for slurmdbd "sacctmgr -n -i show cluster"
  sacctmgr -n -P show cluster format=cluster | grep -qx single-node || sacctmgr -i add cluster single-node >/dev/null
}

# Take SLURM down once PARENT has ended; ends itself when SLURM was taken down before.
watch_parent() {
  local start
  start=$(started "$PARENT")
  while [ "$(started "$PARENT")" = "$start" ]; do
    running munged >/dev/null || exit 0
    sleep 1
  done
  exec "$(dirname "$0")/down.sh"
}

mkdir -p "$STATE"/{etc,log,pids,spool,state}
chmod 755 "$STATE"
install_packages
check_ports <<PORTS
slurmctld $CTLD_PORT
slurmd $SLURMD_PORT
$([ "$ACCT" = none ] || printf 'slurmdbd %s\nmariadbd %s\n' $DBD_PORT $SQL_PORT)
PORTS
getent hosts "$HOST" >/dev/null || echo "127.0.0.1 $HOST" >>/etc/hosts
running slurmctld >/dev/null || write_slurm_conf
start_munge
if [ -n "$PARENT" ]; then
  export VITINIT_SLURM=$STATE
  export -f watch_parent started running
  export PARENT STATE
  setsid bash -c watch_parent "$0" >>"$STATE/log/parent.out" 2>&1 </dev/null &
fi
[ "$ACCT" = none ] || start_accounting
start slurmctld slurmctld -D
wait_for slurmctld "scontrol ping | grep -q ' is UP'"
start slurmd slurmd -D -N "$HOST"
wait_for slurmd "sinfo -h -o %T | grep -Eqx 'idle|mixed|allocated'"

echo "export SLURM_CONF=$SLURM_CONF" >"$STATE/env.sh"
echo "SLURM runs; to use it: . $STATE/env.sh"
