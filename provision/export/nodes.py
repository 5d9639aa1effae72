"""Write what Slurm and Kubernetes run: a job that verifies its environment first, and checks of the nodes."""

from __future__ import annotations

from ..errors import UsageError
from .subject import Subject, from_template, linux_only


def sbatch(subject: Subject) -> str:
    """Return a batch script. Raises UsageError for a lock of another system than Linux."""
    linux_only(subject, "a Slurm job")
    gpus = max(len(subject.lock.target.gpus), 1)
    return from_template("sbatch.sh", subject, "sbatch", env=subject.env, gpus=str(gpus))


def prolog(subject: Subject) -> str:
    """Return a prolog that drains a faulty node. Raises UsageError for a lock without a GPU."""
    return _node_script(subject, "prolog")


def healthcheck(subject: Subject) -> str:
    """Return the same check as a health check, which also resumes a node. Raises UsageError for a lock without a GPU."""
    return _node_script(subject, "healthcheck")


def _node_script(subject: Subject, form: str) -> str:
    _for_gpus(subject, form)
    kinds = {kind: kind == form for kind in ("prolog", "healthcheck")}
    return from_template("slurm-node.sh", subject, form, env=subject.env, kind=form, **kinds)


def taskprolog(subject: Subject) -> str:
    """Return the task prolog. Raises UsageError for a lock of another system than Linux."""
    linux_only(subject, "a Slurm job")
    return from_template("slurm-task.sh", subject, "taskprolog")


def npd(subject: Subject) -> str:
    """Return a ConfigMap with a plugin of node-problem-detector. Raises UsageError for a lock without a GPU."""
    _for_gpus(subject, "npd")
    script = from_template("npd.sh", subject, "npd", env=subject.env)
    return from_template("npd.yaml", subject, "npd", script=script.rstrip())


def daemonset(subject: Subject) -> str:
    """Return what taints nodes of Kubernetes with a fault. Raises UsageError for a lock without a GPU."""
    _for_gpus(subject, "daemonset")
    return from_template("k8s-node.yaml", subject, "daemonset")


def job(subject: Subject) -> str:
    """Return a Job that verifies its environment before it starts. Raises UsageError for another system than Linux."""
    linux_only(subject, "a Job of Kubernetes")
    gpus, cuda = max(len(subject.lock.target.gpus), 1), subject.lock.plan.device == "cuda"
    verify = ["gpuenv", "verify", *([] if cuda else ["--device", "cpu"]), "--quick", "/opt/env"]
    limits = {"memory": "64Gi", **({"nvidia.com/gpu": gpus} if cuda else {})}
    return from_template("k8s-job.yaml", subject, "job", verify=verify, limits=limits)


def _for_gpus(subject: Subject, form: str) -> None:
    """Raise UsageError for a lock without a GPU."""
    linux_only(subject, f"--format {form}")
    if subject.lock.plan.device != "cuda":
        raise UsageError(
            f"--format {form} checks GPUs, but the lock is for the CPU",
            hint="export an environment with CUDA: gpuenv create ENV --device cuda",
        )
