"""Write Kubernetes manifests: a node-problem-detector check, and a Job that verifies an environment."""

from __future__ import annotations

import json

from . import base_images, export_subject_and_shared_texts as s
from .export_subject_and_shared_texts import Subject
from .node_check import PATH, examine, settings

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
        f"          image: {json.dumps(base_images.image(subject).image)}",
        "          # Tests every GPU of the node with the node's own programs.",
        "          securityContext: {privileged: true}",
        f"          command: {json.dumps(command)}",
        f"          volumeMounts: [{{name: host, mountPath: {_HOST}, mountPropagation: HostToContainer}}]",
        "      volumes: [{name: host, hostPath: {path: /, type: Directory}}]",
    ]) + "\n"  # fmt: skip
