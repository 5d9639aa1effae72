"""Write the scripts and manifests with which Slurm and Kubernetes use an environment."""

from __future__ import annotations

import json

from ..errors import UsageError
from . import recipes, subject as s
from .subject import Subject

SECONDS = 4
"""For all environments together. With what Slurm's own commands take it stays below 5."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Folders that only root can change. Slurm gives its programs no PATH."""

_EXAMINE = """\
said=$({chroot}env -i PATH="$PATH" HOME=/root LANG=C.UTF-8 timeout -s KILL "$left" \\
    "$gpuenv" verify --quick --node -q --timeout "$left" "{env}" 2>/dev/null </dev/null)
code=$?"""


def settings(subject: Subject, form: str) -> str:
    """Return the lines that the administrator edits. Raises UsageError for a lock without a GPU."""
    s.linux_only(subject, f"--format {form}")
    if subject.lock.plan.device != "cuda":
        raise UsageError(
            f"--format {form} checks GPUs, but the lock is for the CPU",
            hint="export an environment with CUDA: gpuenv create ENV --device cuda",
        )
    return "\n".join([
        "",
        "# Edit these: PATH, the path of gpuenv, the environments to check (owned by root), and the time limit in seconds for all checks.",
        f"PATH={PATH}",
        "gpuenv=gpuenv",
        f"set -- {s.shell(subject.env)}",
        f"seconds={SECONDS}",
    ]) + "\n"  # fmt: skip


def examine(indent: str, *, env: str = "$1", chroot: str = "") -> str:
    """Return the lines that examine one environment for at most $left seconds. They set $said and $code."""
    rows = _EXAMINE.format(env=env, chroot=chroot).splitlines()
    return "\n".join(indent + row for row in rows)


def sbatch(subject: Subject) -> str:
    """Return the script. Raises UsageError for a lock of another system than Linux."""
    s.linux_only(subject, "a Slurm job")
    lock = subject.lock
    cuda = lock.plan.device == "cuda"
    gpus = max(len(lock.target.gpus), 1)
    comments = [
        "sbatch train.sbatch                    (command-line options override the options below)",
        f"GPUENV_ENV=/path/of/the/environment sbatch {'--gres=gpu:1 ' if cuda else ''}train.sbatch --epochs 10",
    ]  # fmt: skip
    rows = [
        "#!/bin/bash",
        "#SBATCH --job-name=train",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks=1",
        "#SBATCH --cpus-per-task=8",
        *([f"#SBATCH --gres=gpu:{gpus}"] if cuda else []),
        "#SBATCH --time=01:00:00",
        "#SBATCH --output=%x-%j.log",
        s.comment(subject, "sbatch", "", *comments).rstrip("\n"),
        "set -euo pipefail",
        "",
        f'env="${{GPUENV_ENV:-{_in_double_quotes(subject.env)}}}"',
        "# If the driver is broken, the GPU is full or the GPU model is different, the job ends here and prints the cause."
        if cuda
        else "# If the framework cannot be imported or returns wrong results on this node, the job ends here.",
        " ".join(s.quick_check(lock, '"$env"')),
        "# Runs one task. gpuenv run removes library paths of the node's modules that would override the environment's libraries.",
        'srun gpuenv run "$env" -- python train.py "$@"',
    ]
    return "\n".join(rows) + "\n"


def _in_double_quotes(text: str) -> str:
    """Return text for bash's "${GPUENV_ENV:-...}". A brace would end it."""
    for sign in '\\"$`}':
        text = text.replace(sign, "\\" + sign)
    return s.oneline(text)


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


_SCRIPT = """
export PATH
left=$((seconds / $#))
[ "$left" -gt 0 ] || left=1

for env in "$@"; do
@EXAMINE@
    case $code in
    0) ;;
    8)
        printf '%.79s\\n' "$said"
        exit 1
        ;;
    *)
        printf '%.79s\\n' "exit code $code of gpuenv: $env was not checked"
        exit 2
        ;;
    esac
done
printf '%.79s\\n' "$said"
exit 0
"""
_FOLDER = "/config/gpuenv"
_SCRIPT_NAME, _CONFIG_NAME = "gpuenv-node.sh", "gpuenv-node.json"
_CONDITION = "GPUEnvironmentProblem"
_HOST = "/host"


def npd(subject: Subject) -> str:
    """Return a ConfigMap with the plugin and its configuration. Raises UsageError for a lock without a GPU."""
    comments = [
        f"Run `kubectl apply -f THIS`, then mount it at {_FOLDER} (defaultMode: 0755) in the DaemonSet of",
        f"node-problem-detector, with --config.custom-plugin-monitor={_FOLDER}/{_CONFIG_NAME}",
        f"Mount the node's root folder / at {_HOST} in that container (hostPath, privileged). gpuenv and the environments are installed on the node.",
        "Where the detector runs on the node itself, leave host empty.",
    ]
    script = [
        "#!/bin/sh",
        *settings(subject, "npd").splitlines(),
        "# The folder where the node's / is mounted; empty on the node itself.",
        f"host={_HOST}",
        *_SCRIPT.replace(
            "@EXAMINE@", examine("    ", env="$env", chroot='${host:+chroot "$host"} ')
        ).splitlines(),
    ]
    config = json.dumps(_config(), indent=2).splitlines()
    return "\n".join([
        s.comment(subject, "npd", "", *comments).rstrip("\n"),
        "apiVersion: v1",
        "kind: ConfigMap",
        "metadata:",
        "  name: gpuenv-node-problem-detector",
        "  namespace: kube-system",
        "data:",
        f"  {_CONFIG_NAME}: |",
        *(f"    {row}" for row in config),
        f"  {_SCRIPT_NAME}: |",
        *(f"    {row}".rstrip() for row in script),
    ]) + "\n"  # fmt: skip


def _config() -> dict[str, object]:
    """Return the plugin's configuration with the keys of the detector (its custom_plugin_monitor.md)."""
    return {
        "plugin": "custom",
        "pluginConfig": {
            "invoke_interval": "300s", "timeout": "10s", "max_output_length": 80, "concurrency": 1,
            "enable_message_change_based_condition_update": True,
        },
        "source": "gpuenv-node-monitor",
        "metricsReporting": True,
        "conditions": [
            {"type": _CONDITION, "reason": "GPUEnvironmentWorks", "message": "driver, CUDA and cuDNN work"}
        ],
        "rules": [
            {
                "type": "permanent", "condition": _CONDITION, "reason": "GPUEnvironmentFails",
                "path": f"{_FOLDER}/{_SCRIPT_NAME}", "timeout": "8s",
            }
        ],
    }  # fmt: skip


def job(subject: Subject) -> str:
    """Return a Job that verifies the environment of one node. Raises UsageError where no image fits."""
    s.linux_only(subject, "a Job on a node")
    comments = ["sed s/NODE_NAME/gpu-07/ THIS | kubectl create -f -", "kubectl logs -l app=gpuenv-verify"]
    comments += ["gpuenv and the environment are installed on the node. The container runs them with chroot."]
    cpu = ["--device", "cpu"] if subject.lock.plan.device == "cpu" else []
    command = ["chroot", _HOST, "/usr/bin/env", "-i", f"PATH={PATH}", "HOME=/root", "LANG=C.UTF-8"]
    command += ["gpuenv", "verify", *cpu, s.oneline(subject.env)]
    return "\n".join([
        s.comment(subject, "job", "", *comments).rstrip("\n"),
        "apiVersion: batch/v1",
        "kind: Job",
        "metadata:",
        "  generateName: gpuenv-verify-",
        "spec:",
        "  backoffLimit: 0",
        "  activeDeadlineSeconds: 900",
        "  ttlSecondsAfterFinished: 86400",
        "  template:",
        "    metadata:",
        "      labels: {app: gpuenv-verify}",
        "    spec:",
        "      restartPolicy: Never",
        "      nodeSelector: {kubernetes.io/hostname: NODE_NAME}",
        "      tolerations: [{operator: Exists}]  # a node that is cordoned is verified too",
        "      containers:",
        "        - name: verify",
        f"          image: {json.dumps(recipes.image(subject).image)}",
        "          # Tests every GPU of the node with the node's own programs.",
        "          securityContext: {privileged: true}",
        f"          command: {json.dumps(command)}",
        f"          volumeMounts: [{{name: host, mountPath: {_HOST}, mountPropagation: HostToContainer}}]",
        "      volumes: [{name: host, hostPath: {path: /, type: Directory}}]",
    ]) + "\n"  # fmt: skip
