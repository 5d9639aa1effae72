#!/bin/sh
@raw:head@
#
@if prolog@
# slurm.conf: Prolog=/etc/slurm/gpuenv-prolog  (PrologFlags=Alloc runs it before the job's first step)
@end@
@if healthcheck@
# slurm.conf: HealthCheckProgram=/etc/slurm/gpuenv-healthcheck
#             HealthCheckInterval=300
#             HealthCheckNodeState=IDLE,CYCLE  (the check creates a CUDA context on every GPU)
@end@
# Install the script on every node (owner root, mode 755). Only root may have write permission for gpuenv and the environments
# If the node has a fault, the script drains it and sets the cause as the reason.
# A full GPU or a broken environment of a job does not drain the node.
# The exit status is always 0, because any other exit status of a prolog also drains the node.

# Edit these: PATH, the path of gpuenv, the environments to check (owned by root), and the time limit in seconds for all checks.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
gpuenv=gpuenv
set -- @sh:env@
seconds=4

export PATH
node=${SLURMD_NODENAME:-$(hostname -s)}
end=$(($(date +%s%3N) + seconds * 1000))

log() {
    logger -t gpuenv -- "$node: $1" 2>/dev/null || :
    echo "gpuenv: $node: $1" >&2
}

drain() {
    # A node that is already draining keeps its existing reason.
    case $(timeout 0.5 scontrol -o show node "$node" 2>/dev/null | sed -n 's/.* State=\([^ ]*\).*/\1/p') in
    *DRAIN*) return ;;
    esac
    timeout 0.5 scontrol update NodeName="$node" State=DRAIN Reason="gpuenv: $1" ||
        log "$node was not drained: scontrol failed"
}

check() {
    left=$((end - $(date +%s%3N)))
    if [ "$left" -lt 100 ]; then
        log "$1 was not checked: the time limit of $seconds s was reached"
        return
    fi
    left=$((left / 1000)).$(printf %03d $((left % 1000)))
    said=$(env -i PATH="$PATH" HOME=/root LANG=C.UTF-8 timeout -s KILL "$left" \
        "$gpuenv" verify --quick --node -q --timeout "$left" "$1" 2>/dev/null </dev/null)
    code=$?
    case $code in
    0) ;;
    8)
        log "$1: $said"
        drain "${said%%:*}"
        ;;
    124 | 137) log "$1 was not checked: no response within $left s" ;;
    *) log "$1 was not checked: gpuenv exited with code $code" ;;
    esac
}

for env in "$@"; do
    check "$env"
done
exit 0
