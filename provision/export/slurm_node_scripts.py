"""Write scripts with which Slurm keeps jobs off faulty nodes.

They also end jobs if their environment is broken.
"""

from __future__ import annotations

from . import export_subject_and_shared_texts as s
from .export_subject_and_shared_texts import Subject
from .node_check import examine, settings

_NODE_CHECK = """
export PATH
node=${SLURMD_NODENAME:-$(hostname -s)}
end=$(($(date +%s%3N) + seconds * 1000))

log() {
    logger -t gpuenv -- "$node: $1" 2>/dev/null || :
    echo "gpuenv: $node: $1" >&2
}

drain() {
    # A node that is already draining keeps its existing reason.
    case $(timeout 0.5 scontrol -o show node "$node" 2>/dev/null | sed -n 's/.* State=\\([^ ]*\\).*/\\1/p') in
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
@EXAMINE@
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
"""

_TASK_CHECK = """
# Only the first task on each node runs the check.
[ "${SLURM_LOCALID:-0}" = 0 ] || exit 0

# GPUENV_ENV sets the environment. If it is not set, the active environment is checked if gpuenv created it and the
# job has GPUs.
env=${GPUENV_ENV:-}
if [ -z "$env" ]; then
    env=${VIRTUAL_ENV:-${CONDA_PREFIX:-}}
    [ -n "${SLURM_STEP_GPUS:-${SLURM_JOB_GPUS:-}}" ] && [ -n "$env" ] && [ -d "$env/.gpuenv" ] || exit 0
fi

# Slurm shows the text after "print" to the user of the job.
said=$(timeout "$seconds" "$gpuenv" verify --quick -q "$env" 2>&1 </dev/null)
code=$?
case $code in
0) exit 0 ;;
2 | 8) ;;
*)
    echo "print gpuenv: $env was not checked (exit code $code)"
    exit 0
    ;;
esac
printf '%s\\n' "$said" | sed 's/^/print gpuenv: /'

# Cancel the step, because the other tasks would wait for this one.
if [ "${SLURM_STEP_NUM_TASKS:-1}" -gt 1 ]; then
    scancel "$SLURM_JOB_ID.$SLURM_STEP_ID" 2>/dev/null
fi
exit 1
"""


def prolog(subject: Subject) -> str:
    """Return the prolog. Raises UsageError for a lock without a GPU."""
    usage = [
        "slurm.conf: Prolog=/etc/slurm/gpuenv-prolog  (PrologFlags=Alloc runs it before the job's first step)"
    ]
    return _node_script(subject, "prolog", usage)


def healthcheck(subject: Subject) -> str:
    """Return the health check. Raises UsageError for a lock without a GPU."""
    usage = [
        "slurm.conf: HealthCheckProgram=/etc/slurm/gpuenv-healthcheck",
        "            HealthCheckInterval=300",
    ]
    usage += ["            HealthCheckNodeState=IDLE,CYCLE  (the check creates a CUDA context on every GPU)"]
    return _node_script(subject, "healthcheck", usage)


def taskprolog(subject: Subject) -> str:
    """Return the task prolog. Raises UsageError for a lock of another system than Linux."""
    s.linux_only(subject, "a Slurm job")
    comments = [
        "slurm.conf: TaskProlog=/etc/slurm/gpuenv-taskprolog",
        "one user: srun --task-prolog=gpuenv-taskprolog",
    ]
    comments += [
        "It runs as the job's user. If the environment is broken or the GPU is full, the job fails. The node is not drained."
    ]
    head = s.comment(subject, "taskprolog", "", *comments)
    return f"#!/bin/sh\n{head}gpuenv=gpuenv\nseconds=60\n{_TASK_CHECK}"


def _node_script(subject: Subject, form: str, usage: list[str]) -> str:
    comments = [
        *usage,
        "Install the script on every node (owner root, mode 755). Only root may have write permission for gpuenv and the environments",
    ]
    comments += [
        "If the node has a fault, the script drains it and sets the cause as the reason.",
        "A full GPU or a broken environment of a job does not drain the node.",
    ]
    comments += [
        "The exit status is always 0, because any other exit status of a prolog also drains the node."
    ]
    head = s.comment(subject, form, "", *comments)
    body = _NODE_CHECK.replace("@EXAMINE@", examine("    "))
    return f"#!/bin/sh\n{head}{settings(subject, form)}{body}"
