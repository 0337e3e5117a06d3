#!/usr/bin/env bash
# down.sh [--name NAME]: ends the cluster and removes all that was of it, also when it crashed.
source "$(dirname "$0")/cluster/common.sh"
name=
while [ $# -gt 0 ]; do
  case $1 in
  --name) name=${2:?--name needs a name}; shift 2 ;;
  --name=*) name=${1#*=}; shift ;;
  *) echo "usage: down.sh [--name NAME]" >&2; exit 64 ;;
  esac
done
in_run "${name:-$(the_name)}"
[ -d "$RUN" ] || { echo "no cluster '$NAME'" >&2; exit 0; }
MODE=nodes
[ ! -e "$RUN/addresses" ] || source "$RUN/addresses"

# With nodes, the death of the first process is that of its PID namespace, and with it go mounts and interfaces. On the
# loopback address it is asked, and what it leaves is ended one by one.
if pid=$(pid_of "$RUN/init.pid"); then
  if [ "$MODE" = nodes ]; then kill -KILL "$pid"; else kill -TERM "$pid"; fi || true
fi
gone() { local f; for f in "$RUN"/*.pid; do ! pid_of "$f" || return 1; done; }
if ! within 60 gone; then
  for f in "$RUN"/*.pid; do pid=$(pid_of "$f") && kill -KILL "$pid" || true; done
  within 60 gone || { echo "error: processes of '$NAME' do not end: $(for f in "$RUN"/*.pid; do pid_of "$f" || true; done)" >&2; exit 1; }
fi
# Processes that the namespace's end kills may take a moment to leave their groups.
groups_gone() {
  local h
  for h in /sys/fs/cgroup /sys/fs/cgroup/*; do
    [ ! -d "$h/lateen-kube-$NAME" ] || find "$h/lateen-kube-$NAME" -depth -type d -exec rmdir {} + || return 1
  done
}
[ "$MODE" = api ] || within 60 groups_gone || { echo "error: control groups lateen-kube-$NAME cannot be removed: processes are left in them" >&2; exit 1; }
rm -rf "$RUN"
progress "'$NAME' is gone"
