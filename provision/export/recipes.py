"""Write recipes that build the lock elsewhere, also without a GPU: images, a dev container, a workflow of
GitHub, and what Slurm and Kubernetes run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import PurePosixPath

from ..errors import UsageError
from ..index.wheel_names import glibc_of
from ..model import BaseImage, Lock, find_lock_target, make_lock_name
from ..system.versions import numbers
from ..templates import oneline, shell
from .subject import (
    Subject,
    conda_packages,
    create_command,
    describe_target,
    file_name,
    find_links,
    folder_of,
    from_template,
    headline,
    target_options,
)

# TensorFlow and JAX wheels without nvidia-* packages find CUDA on the loader path. Such wheels of torch contain CUDA.
_CARRIES_CUDA = "torch"
_ENV = "/opt/env"


# --- the recipes ---------------------------------------------------------------------------------


def dockerfile(subject: Subject) -> str:
    """Return a Dockerfile, which needs BuildKit. Raises UsageError if no base image fits."""
    lock, start = subject.lock, base_image(subject)
    path = f"/opt/lock/{PurePosixPath(subject.lock_file).name}"
    folders = []
    for package in lock.packages:
        if folder := folder_of(package):
            # its path in the build context, or its name outside of it
            inside = PurePosixPath(folder).is_relative_to(subject.folder)
            copied = PurePosixPath(folder).relative_to(
                subject.folder if inside else PurePosixPath(folder).parent
            )
            folders.append(f"# The folder of {oneline(package.name)}, at the path in the lock.")
            folders.append(f"COPY {json.dumps([f'{copied}/', folder])}")
    carrier = "packages" if lock.manager == "conda" else "wheels"
    return from_template(
        "Dockerfile", subject, "dockerfile", image=start.image, digest=start.digest, pushed=start.pushed,
        base_cuda=start.cuda,
        cuda_packages="" if start.cuda or lock.plan.device != "cuda" else carrier,
        apt=[*start.apt, *_git_packages(subject)], gpuenv=subject.gpuenv.requirement("/context"), folders=folders,
        copied_lock=[subject.lock_file, path], create=create_command(subject, _ENV, path, "/wheels"),
    )  # fmt: skip


def apptainer(subject: Subject) -> str:
    """Return a definition. Its build arguments need Apptainer 1.2 or SingularityCE 4. Raises UsageError."""
    lock, start = subject.lock, base_image(subject)
    path = f"/opt/lock/{make_lock_name(lock.manager)}"
    copied = {subject.lock_file: path}
    if wheel := subject.gpuenv.wheel:
        copied[wheel] = f"/opt/lock/{wheel}"
    cache = ["--cache-dir", "/tmp/gpuenv-cache"]  # noqa: S108  # of the image
    return from_template(
        "apptainer.def", subject, "apptainer", image=start.image, target=describe_target(lock),
        nv="--nv " if lock.plan.device == "cuda" else "", apt=[*start.apt, *_git_packages(subject)],
        gpuenv=subject.gpuenv.requirement("/opt/lock"), create=create_command(subject, _ENV, path, "/opt/wheels", *cache),
        copied=[shell(*pair) for pair in copied.items()],
        folders=[shell(folder, folder) for p in lock.packages if (folder := folder_of(p))],
    )  # fmt: skip


def devcontainer(subject: Subject) -> str:
    """Return the file for .devcontainer/ with comments, which its readers allow. Raises UsageError."""
    lock, start, source = subject.lock, base_image(subject, "devcontainer"), subject.gpuenv
    # Outside of the workspace: that is the host's folder and may contain an environment of the host.
    home = f"/home/{start.user}"
    # The path of the project's folder may contain a space, which an address cannot.
    copied = replace(source, wheel=PurePosixPath(source.wheel).name)
    values = {
        "image": start.image, "user": start.user, "torch": any(b.framework == "torch" for b in lock.plan.builds),
        "gpuenv": copied.requirement(f"{home}/.gpuenv"), "env": f"{home}/env", "interpreter": f"{home}/env/bin/python",
        "create": create_command(subject, f"{home}/env", subject.lock_file, "wheels")[1:],
    }  # fmt: skip
    steps = from_template("devcontainer-create.sh", subject, "devcontainer", **values).splitlines()
    start_text = from_template("devcontainer-start.sh", subject, "devcontainer", **values).strip()
    return from_template(
        "devcontainer.json",
        subject,
        "devcontainer",
        on_create=" && ".join(steps),
        on_start=start_text,
        **values,
    )


def github(subject: Subject) -> str:
    """Return a workflow. Raises UsageError if no machine fits. Strings are JSON, which is valid YAML."""
    lock, source = subject.lock, subject.gpuenv
    options = lock_options(subject)
    check = shell("gpuenv", "lock", "--check", *options, *find_links(lock, "wheels")) if options else ""
    create = shell(*create_command(subject, ".venv", subject.lock_file, "wheels"))
    if "${{" in headline(lock) + check + create + source.address + source.wheel:
        # The author of the lock could otherwise make the workflow evaluate expressions, with its secrets.
        raise UsageError("the lock contains an expression of GitHub Actions (${{), which gpuenv never writes")
    # {0} is the folder of the checkout. GPUENV is unset in later steps, where it has another meaning.
    default = "'" + oneline(source.requirement("{0}")).replace("'", "''") + "'"
    known = [i.python for i in subject.images if i.use == "container" and i.python and not i.cuda]
    actions = {i.image.partition("@")[0]: i.image for i in subject.images if i.use == "action"}
    return from_template(
        "github.yml", subject, "github", runner=_runner(subject), checkout=actions["actions/checkout"],
        setup_python=actions["actions/setup-python"], cache=actions["actions/cache"], lock_file=subject.lock_file,
        python=lock.plan.python if lock.plan.python in known else max(known, key=numbers),
        gpuenv=f"${{{{ vars.GPUENV || format({default}, github.workspace) }}}}", check=check, create=create,
    )  # fmt: skip


def lock_options(subject: Subject) -> list[str]:
    """Return the options of `gpuenv lock` that reproduce this lock, or none.

    A lock of project files (`inputs`) does not name them, so only its own machine can reproduce it.
    """
    lock, plan = subject.lock, subject.lock.plan
    target = find_lock_target(PurePosixPath(subject.lock_file).name)
    if subject.project and target:
        return ["--target", target]
    if lock.inputs:
        return []
    options = ["--output", subject.lock_file, "--python", plan.python or "", "--device", plan.device]
    options += ["--platform", plan.platform, *(["--glibc", lock.target.glibc] if lock.target.glibc else [])]
    options += target_options(lock)
    if lock.manager == "conda":
        options += ["--manager", "conda"]
        for channel in dict.fromkeys(p.index for p in conda_packages(lock) if p.index):
            options += ["--channel", channel]
    for build in plan.builds:
        options += ["--framework", f"{build.framework}=={build.version}"]
    options += ["--cuda", plan.cuda] if plan.cuda and lock.manager == "venv" else []
    for package in plan.packages:
        options += ["--with", package]
    return options


def _git_packages(subject: Subject) -> list[str]:
    """Return the packages of the base's distribution by which commits are fetched."""
    addresses = [subject.gpuenv.address, *(p.url for p in subject.lock.packages)]
    return ["ca-certificates", "git"] if any(a.startswith("git+") for a in addresses) else []


# --- base images, from profiles/images.yaml ---------------------------------------------------------


def base_image(subject: Subject, use: str = "container") -> BaseImage:
    """Return the base image: the one with the oldest glibc that supports every file of the lock.

    It has the lock's Python if such an image is known, and CUDA only if the lock has none. Raises UsageError.
    """
    lock = subject.lock
    cuda = _cuda_of_base(lock)
    fitting = [
        i for i in _select_images(subject, use) if (_has_cuda(i, lock, cuda) if cuda else not i.cuda)
    ]  # fmt: skip
    if not fitting:
        raise _make_image_error(lock, cuda)
    newest = max(numbers(i.python or "0") for i in fitting)
    chosen = [i for i in fitting if i.python == lock.plan.python]
    chosen = chosen or [i for i in fitting if numbers(i.python or "0") == newest]
    return min(chosen, key=lambda i: _minor(i.glibc))


def _runner(subject: Subject) -> str:
    """Return the label of the CI machine. Raises UsageError."""
    if not (fitting := _select_images(subject, "runner")):
        raise _make_image_error(subject.lock, None)
    return max(fitting, key=lambda i: _minor(i.glibc)).image


def _select_images(subject: Subject, use: str) -> list[BaseImage]:
    """Return the images for a use on which every file of the lock runs."""
    lock, glibc = subject.lock, _needed_glibc(subject.lock)
    return [
        i for i in subject.images
        if i.use == use and lock.plan.platform in i.platform and _minor(i.glibc) >= glibc
    ]  # fmt: skip


def _cuda_of_base(lock: Lock) -> str | None:
    """Return the CUDA that the base image must have, because the lock's wheels need it and have none."""
    if lock.manager == "conda" or any(p.name.startswith("nvidia-") for p in lock.packages):
        return None
    return next((b.cuda for b in lock.plan.builds if b.cuda and b.framework != _CARRIES_CUDA), None)


def _needed_glibc(lock: Lock) -> int:
    """Return the minor version of the oldest glibc 2 that supports every file of the lock.

    Wheels state it in their names, conda packages in their dependencies.
    """
    glibc_minors = [0]
    for package in lock.packages:
        name = file_name(package)
        if name.endswith(".whl"):
            tags = name.removesuffix(".whl").rpartition("-")[2].split(".")
            minors = [glibc[1] for glibc in map(glibc_of, tags) if glibc]
            glibc_minors += [min(minors)] if minors else []  # a wheel with several tags runs on the oldest
        for need in package.depends:
            match = re.match(r"__glibc\s.*?>=\s*2\.(\d+)", need)
            glibc_minors += [int(match[1])] if match else []
    return max(glibc_minors)


def _has_cuda(image: BaseImage, lock: Lock, cuda: str) -> bool:
    """Return whether an image has a CUDA, and the major version of the lock's cuDNN."""
    cudnn = next((b.cudnn for b in lock.plan.builds if b.cudnn), None)
    same = image.cuda is not None and numbers(image.cuda)[:2] == numbers(cuda)[:2]
    return same and (not cudnn or not image.cudnn or numbers(cudnn)[:1] == numbers(image.cudnn)[:1])


def _make_image_error(lock: Lock, cuda: str | None) -> UsageError:
    if cuda:
        who = oneline(", ".join(f"{b.framework} {b.version}" for b in lock.plan.builds if b.cuda))
        return UsageError(
            f"{who} has no CUDA, and gpuenv knows no base image with CUDA {oneline(cuda)}",
            hint="lock a newer version with CUDA in its wheels, or use --manager conda",
        )
    return UsageError(
        f"gpuenv knows no base image for {oneline(lock.plan.platform)} with glibc 2.{_needed_glibc(lock)}",
        hint="add a row to images.yaml in a folder given with --profiles",
    )


def _minor(glibc: str | None) -> int:
    return (*numbers(glibc or "0"), 0, 0)[1]


# --- jobs that verify their environment first, and checks of nodes ---------------------------------------------


def sbatch(subject: Subject) -> str:
    """Return a batch script."""
    gpus = max(len(subject.lock.target.gpus), 1)
    return from_template("sbatch.sh", subject, "sbatch", env=subject.env, gpus=str(gpus))


def prolog(subject: Subject) -> str:
    """Return a prolog that drains a faulty node. Raises UsageError for a lock without a GPU."""
    return _node_script(subject, "prolog")


def healthcheck(subject: Subject) -> str:
    """Return the same check as a health check, which also resumes a node. Raises UsageError for a lock without a GPU."""
    return _node_script(subject, "healthcheck")


def _node_script(subject: Subject, form: str) -> str:
    _require_gpu(subject, form)
    kinds = {kind: kind == form for kind in ("prolog", "healthcheck")}
    return from_template("slurm-node.sh", subject, form, env=subject.env, kind=form, **kinds)


def taskprolog(subject: Subject) -> str:
    """Return the task prolog."""
    return from_template("slurm-task.sh", subject, "taskprolog")


def npd(subject: Subject) -> str:
    """Return a ConfigMap with a plugin of node-problem-detector. Raises UsageError for a lock without a GPU."""
    _require_gpu(subject, "npd")
    script = from_template("npd.sh", subject, "npd", env=subject.env)
    return from_template("npd.yaml", subject, "npd", script=script.rstrip())


def daemonset(subject: Subject) -> str:
    """Return what taints nodes of Kubernetes with a fault. Raises UsageError for a lock without a GPU."""
    _require_gpu(subject, "daemonset")
    return from_template("k8s-node.yaml", subject, "daemonset")


def job(subject: Subject) -> str:
    """Return a Job that verifies its environment before it starts."""
    gpus, cuda = max(len(subject.lock.target.gpus), 1), subject.lock.plan.device == "cuda"
    verify = ["gpuenv", "verify", *([] if cuda else ["--device", "cpu"]), "--quick", "/opt/env"]
    limits = {"memory": "64Gi", **({"nvidia.com/gpu": gpus} if cuda else {})}
    return from_template("k8s-job.yaml", subject, "job", verify=verify, limits=limits)


def _require_gpu(subject: Subject, form: str) -> None:
    """Raise UsageError for a lock without a GPU."""
    if subject.lock.plan.device != "cuda":
        raise UsageError(
            f"--format {form} checks GPUs, but the lock is for the CPU",
            hint="export an environment with CUDA: gpuenv create ENV --device cuda",
        )
