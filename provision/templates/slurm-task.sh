#!/bin/sh
@raw:head@
#
# slurm.conf: TaskProlog=/etc/slurm/gpuenv-taskprolog
# one user: srun --task-prolog=gpuenv-taskprolog
# It runs as the job's user. If the environment is broken or the GPU is full, the job fails. The node is not drained.
gpuenv=gpuenv
seconds=60

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
printf '%s\n' "$said" | sed 's/^/print gpuenv: /'

# Cancel the step, because the other tasks would wait for this one.
if [ "${SLURM_STEP_NUM_TASKS:-1}" -gt 1 ]; then
    scancel "$SLURM_JOB_ID.$SLURM_STEP_ID" 2>/dev/null
fi
exit 1
