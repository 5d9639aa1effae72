"""Write an Apptainer (Singularity) definition that builds the lock."""

from __future__ import annotations

from ..model import Lock, make_lock_name
from . import base_images, export_subject_and_shared_texts as s
from .dockerfile import ENV, EXACTLY, local
from .export_subject_and_shared_texts import Subject

FORM = "apptainer"
_HELD = "/opt/lock"


def text(subject: Subject) -> str:
    """Return the definition. Its build arguments need Apptainer 1.2 or SingularityCE 4. Raises UsageError."""
    s.linux_only(subject, "an Apptainer image")
    start, lock = base_images.image(subject), subject.lock
    sections = {
        "arguments": ["# What pip installs as gpuenv: a wheel with its hash, an address, or a wheel named in %files.",
                      f"GPUENV={subject.gpuenv.requirement(_HELD)}"],
        "files": _files(subject),
        "post": _post(subject, list(start.apt)),
        "environment": [f"export PATH={ENV}/bin:$PATH"],
        "test": _test(lock),
        "runscript": [f'exec gpuenv run {ENV} -- "$@"'],
        "help": [s.headline(lock), f"Locked for {s.made_for(lock)}.",
                 f"apptainer run {_nv(lock)}app.sif python train.py"],
    }  # fmt: skip
    head = [
        f"apptainer build app.sif app.def      (put this file and {s.oneline(subject.gpuenv.files(subject.lock_file))} in one folder)",
        f"apptainer run {_nv(lock)}app.sif python train.py",
        f"apptainer test {_nv(lock)}app.sif            (on the machine with the GPU)",
    ]
    # Bootstrap must be the first entry of the header. Comments may precede it.
    rows = [s.comment(subject, FORM, "", *head) + f"\nBootstrap: docker\nFrom: {start.image}\n"]
    rows += [f"%{name}\n" + "".join(f"    {row}\n" for row in body) for name, body in sections.items()]
    return "\n".join(rows)


def _nv(lock: Lock) -> str:
    return "--nv " if lock.plan.device == "cuda" else ""


def _held(subject: Subject) -> str:
    return f"{_HELD}/{make_lock_name(subject.lock.manager)}"


def _files(subject: Subject) -> list[str]:
    rows = [f"{_word(subject.lock_file)} {_held(subject)}"]
    wheel = subject.gpuenv.wheel
    rows += [f"{_word(wheel)} {_word(f'{_HELD}/{wheel}')}"] if wheel else []
    wheels = [s.oneline(s.file_name(p)) for p in s.local_files(subject.lock)]
    rows += [*local(wheels), "wheels /opt/wheels"] if wheels else []
    for package in subject.lock.packages:
        folder = s.folder_of(package)
        rows += [f"{_word(folder)} {_word(folder)}"] if folder else []
    return rows


def _word(path: str) -> str:
    """Quote a path for %files. Its lines are split at spaces as in a shell."""
    return s.shell(s.oneline(path))


def _post(subject: Subject, apt: list[str]) -> list[str]:
    lock = subject.lock
    wheels = ["--find-links", "/opt/wheels"] if any(s.local_files(lock)) else []
    apt = [*apt, *s.git_packages(subject)]
    cuda = s.conda_override(lock)
    rows = ["set -eu"]
    if apt:
        rows.append(f"apt-get update && apt-get install -y --no-install-recommends {s.shell(*apt)}")
        rows.append("rm -rf /var/lib/apt/lists/*")
    return [
        *rows,
        "export UV_PYTHON_INSTALL_DIR=/opt/python",
        *([f"export CONDA_OVERRIDE_CUDA={s.shell(cuda)}"] if cuda else []),
        "python3 -m venv /opt/gpuenv",
        *s.install_gpuenv(lock, "/opt/gpuenv", '"{{ GPUENV }}"', " --no-cache-dir"),
        "ln -s /opt/gpuenv/bin/gpuenv /usr/local/bin/gpuenv",
        EXACTLY
        + (
            " The image build has no GPU, so options describe the target machine."
            if lock.plan.device == "cuda"
            else ""
        ),
        s.shell(*s.create_command(subject, ENV, _held(subject), *wheels, "--cache-dir", "/tmp/gpuenv-cache")),  # noqa: S108
        "rm -rf /tmp/gpuenv-cache",
    ]


def _test(lock: Lock) -> list[str]:
    on_cpu = s.shell("gpuenv", "verify", ENV, "--device", "cpu")
    if lock.plan.device != "cuda":
        return [on_cpu]
    return [
        "# With --nv on a GPU machine this tests the GPU. During a build it tests the CPU.",
        "if [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; then",
        f"    {s.shell(*s.quick_check(lock, ENV))}",
        "else",
        f"    {on_cpu}",
        "fi",
    ]
