#!/bin/sh
@raw:head@
#
@if prolog@
# slurm.conf: Prolog=/etc/slurm/gpuenv-prolog  (PrologFlags=Alloc runs it before the job's first step)
#             SchedulerParameters=nohold_on_prolog_fail  (otherwise Slurm holds the jobs that it requeues)
@end@
@if healthcheck@
# slurm.conf: HealthCheckProgram=/etc/slurm/gpuenv-healthcheck
#             HealthCheckInterval=300
#             HealthCheckNodeState=IDLE,CYCLE  (the check creates a CUDA context on every GPU)
@end@
# Install the script on every node (owner root, mode 755). Only root may have write permission for gpuenv and the environments
# If the node has a fault, the script drains it and sets the cause as the reason.
# A full GPU or a broken environment of a job does not drain the node.
@if prolog@
# It then ends with 1, and Slurm requeues the job. It ends with 0 for all else, because any other status also drains the node.
@end@
@if healthcheck@
# If all checks pass, it resumes a node that gpuenv drained. It leaves a node whose reason someone changed.
@end@
kind=@line:kind@

# Edit these: PATH, the path of gpuenv, the environments to check (owned by root), the time limit in seconds for all checks,
# how many seconds a result serves other jobs, and the number of GPUs (empty: as many as the lock is for; 0: any).
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
gpuenv=gpuenv
set -- @sh:env@
seconds=20
share=10
gpus=

export PATH
node=${SLURMD_NODENAME:-$(hostname -s)}
end=$(($(date +%s) + seconds))
found=nothing

log() {
    logger -t gpuenv -- "$node: $1" 2>/dev/null || :
    echo "gpuenv: $node: $1" >&2
}

# Print a part of what Slurm shows of the node, by a sed expression.
show() {
    timeout 2 scontrol -o show node "$node" 2>/dev/null | sed -n "s/.* $1/p"
}

drains() {
    case $(show 'State=\([^ ]*\).*/\1') in
    *DRAIN*) return 0 ;;
    esac
    return 1
}

drain() {
    # A node that is already draining keeps its existing reason.
    drains || timeout 2 scontrol update NodeName="$node" State=DRAIN Reason="gpuenv: $1" ||
        log "not drained: scontrol failed"
}

resume() {
    drains || return
    # An operator may have added words to the reason.
    show 'Reason=\(.*\) \[[^ ]*\]$/\1' | grep -q '^gpuenv: [a-z0-9_]*$' || return
    timeout 2 scontrol update NodeName="$node" State=RESUME && log "resumed: $said"
}

left() {
    echo $((end - $(date +%s)))
}

check() {
    # Jobs that start at one time share what gpuenv said: its code, and its line.
    kept=/run/gpuenv/$(echo "$node $gpuenv $gpus $1" | cksum | tr ' ' -)
    { command exec 9>>"$kept.lock"; } 2>/dev/null # `command`: sh does not end where it fails
    code=124 said=''
    if ! flock -w "$(left)" 9 2>/dev/null; then
        : # another check does not end
    elif [ $(($(date +%s) - $(stat -c %Y "$kept" 2>/dev/null || echo 0))) -lt "$share" ]; then
        read -r code said <"$kept"
    elif [ "$(left)" -gt 1 ]; then
        # gpuenv has a shorter limit, so that it can tell what does not answer.
        said=$(env -i PATH="$PATH" HOME=/root LANG=C.UTF-8 timeout -s KILL "$(left)" \
            "$gpuenv" verify --quick --node -q --timeout "$(($(left) * 3 / 4))" ${gpus:+--expect-gpus "$gpus"} "$1" \
            2>/dev/null </dev/null 9>&-)
        code=$?
        printf '%s %s\n' "$code" "$said" >"$kept"
    fi
    exec 9>&-
    case $code:$said in
    0:"driver "*) return ;;
    8:* | 10:*)
        log "$1: $said"
        drain "${said%%:*}"
        found=fault
        return
        ;;
    0:*) ;;
    124:* | 137:*) log "$1 was not checked: no response within $seconds s" ;;
    *) log "$1 was not checked: gpuenv exited with code $code" ;;
    esac
    [ "$found" = fault ] || found=unknown
}

umask 077
mkdir -p /run/gpuenv 2>/dev/null
for env in "$@"; do
    check "$env"
done
case $kind:$found in
prolog:fault) exit 1 ;;
healthcheck:nothing) resume ;;
esac
exit 0
