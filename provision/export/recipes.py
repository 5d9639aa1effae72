"""Write images that build the lock without a GPU."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from ..errors import UsageError
from ..model import BaseImage, Lock, find_lock_target, make_lock_name
from . import subject as s
from .subject import Subject

# The older names of manylinux tags (PEP 600)
_OLD_NAMES = {"manylinux2014": 17, "manylinux2010": 12, "manylinux1": 5}
# TensorFlow and JAX wheels without nvidia-* packages find CUDA on the loader path. Such wheels of torch contain CUDA.
_CARRIES_CUDA = "torch"


def image(subject: Subject, use: str = "container") -> BaseImage:
    """Return the base image: the one with the oldest glibc that supports every file of the lock.

    It has the lock's Python if such an image is known, and CUDA only if the lock has none. Raises UsageError.
    """
    lock = subject.lock
    fitting = [i for i in subject.images if i.use == use and lock.plan.platform in i.platform]
    fitting = [i for i in fitting if _minor(i.glibc or "0") >= needed_glibc(lock)]
    cuda = cuda_of_base(lock)
    fitting = [i for i in fitting if (_brings(i, lock, cuda) if cuda else not i.cuda)]
    if not fitting:
        raise _none_fits(lock, cuda)
    with_python = [i for i in fitting if i.python == lock.plan.python]
    newest = max(_numbers(i.python or "0") for i in fitting)
    chosen = with_python or [i for i in fitting if _numbers(i.python or "0") == newest]
    return min(chosen, key=lambda i: _minor(i.glibc or "0"))


def runner(subject: Subject) -> str:
    """Return the label of the CI machine. Raises UsageError."""
    lock = subject.lock
    here = [i for i in subject.images if i.use == "runner" and lock.plan.platform in i.platform]
    fitting = [i for i in here if _minor(i.glibc or "0") >= needed_glibc(lock)]
    if not fitting:
        raise _none_fits(lock, None)
    return max(fitting, key=lambda i: _minor(i.glibc or "0")).image


def action(subject: Subject, name: str) -> str:
    """Return an action with its version: "actions/checkout@v6"."""
    return next(i.image for i in subject.images if i.use == "action" and i.image.startswith(f"{name}@"))


def gpuenv_python(subject: Subject) -> str:
    """Return the Python for gpuenv in a CI: the lock's, if an image with it is known."""
    known = [i.python for i in subject.images if i.use == "container" and i.python and not i.cuda]
    python = subject.lock.plan.python
    return python if python in known and python else max(known, key=_numbers)


def cuda_of_base(lock: Lock) -> str | None:
    """Return the CUDA that the base image must have, because the lock's wheels need it and have none."""
    if lock.manager == "conda" or any(p.name.startswith("nvidia-") for p in lock.packages):
        return None
    return next((b.cuda for b in lock.plan.builds if b.cuda and b.framework != _CARRIES_CUDA), None)


def needed_glibc(lock: Lock) -> int:
    """Return the minor version of the oldest glibc 2 that supports every file of the lock.

    Wheels state it in their names, conda packages in their dependencies.
    """
    glibc_minors = [0]
    for package in lock.packages:
        name = s.file_name(package)
        if name.endswith(".whl"):
            tags = name.removesuffix(".whl").rpartition("-")[2]
            minors = [int(m) for m in re.findall(r"manylinux_2_(\d+)_", tags)]
            minors += [minor for old, minor in _OLD_NAMES.items() if f"{old}_" in tags]
            glibc_minors += [min(minors)] if minors else []  # a wheel with several tags runs on the oldest
        for need in package.depends:
            match = re.match(r"__glibc\s.*?>=\s*2\.(\d+)", need)
            glibc_minors += [int(match[1])] if match else []
    return max(glibc_minors)


def _brings(one: BaseImage, lock: Lock, cuda: str) -> bool:
    cudnn = next((b.cudnn for b in lock.plan.builds if b.cudnn), None)
    same = one.cuda is not None and _numbers(one.cuda)[:2] == _numbers(cuda)[:2]
    return same and (not cudnn or not one.cudnn or _numbers(cudnn)[:1] == _numbers(one.cudnn)[:1])


def _none_fits(lock: Lock, cuda: str | None) -> UsageError:
    if cuda:
        who = s.oneline(", ".join(f"{b.framework} {b.version}" for b in lock.plan.builds if b.cuda))
        return UsageError(
            f"{who} has no CUDA, and gpuenv knows no base image with CUDA {s.oneline(cuda)}",
            hint="lock a newer version with CUDA in its wheels, or use --manager conda",
        )
    return UsageError(
        f"gpuenv knows no base image for {s.oneline(lock.plan.platform)} with glibc 2.{needed_glibc(lock)}",
        hint="add a row to images.yaml in a folder given with --profiles",
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version))


def _minor(glibc: str) -> int:
    return (*_numbers(glibc), 0, 0)[1]


ENV = "/opt/env"
EXACTLY = "# Installs the lock and checks every hash."
# The caches of pip and uv: later builds reuse them, and the image does not contain them.
_CACHE = "--mount=type=cache,target=/root/.cache"
# pip's configuration for a private index, available only during the step and not stored in a layer.
_SECRET = "--mount=type=secret,id=pip,target=/etc/pip.conf"  # noqa: S105  # the name of a mount
_CONTEXT = "--mount=type=bind,target=/context"


def dockerfile(subject: Subject) -> str:
    """Return the Dockerfile. Raises UsageError if no base image fits."""
    s.linux_only(subject, "a Dockerfile")
    start = image(subject)
    return "\n".join([
        "# syntax=docker/dockerfile:1",
        s.comment(subject, "dockerfile", "", *_usage(subject)),
        *_start(start, subject),
        *_gpuenv(subject),
        *_environment(subject),
        *_user(subject.lock),
    ])  # fmt: skip


def _usage(subject: Subject) -> list[str]:
    gpus = "--gpus all " if subject.lock.plan.device == "cuda" else ""
    return [
        f"docker build -t app .            (put this file and {s.oneline(subject.gpuenv.files(subject.lock_file))} in one folder)",
        f"docker run --rm {gpus}app python train.py",
    ]


def _start(start: BaseImage, subject: Subject) -> list[str]:
    lock = subject.lock
    if start.cuda:
        why = f"# The wheels need CUDA but do not include it: the base image has CUDA {start.cuda} and cuDNN."
    elif lock.plan.device == "cuda":
        why = f"# CUDA comes from the {'packages' if lock.manager == 'conda' else 'wheels'}, and the driver from the host. The base image needs neither."
    else:
        why = "# An environment without CUDA."
    return [why, f"FROM {start.image}", *_apt(start, subject), ""]


def _apt(start: BaseImage, subject: Subject) -> list[str]:
    """Return the step that installs what gpuenv requires: Python, and git for commits."""
    packages = [*start.apt, *s.git_packages(subject)]
    if not packages:
        return []
    return [
        "RUN --mount=type=cache,target=/var/cache/apt,sharing=locked \\",
        "    --mount=type=cache,target=/var/lib/apt/lists,sharing=locked \\",
        "    rm -f /etc/apt/apt.conf.d/docker-clean \\",
        f" && apt-get update && apt-get install -y --no-install-recommends {s.shell(*packages)}",
    ]


def _gpuenv(subject: Subject) -> list[str]:
    default = subject.gpuenv.requirement("/context")
    itself, requirements = s.install_gpuenv(subject.lock, "/opt/gpuenv", '"$GPUENV"')
    return [
        "# What pip installs as gpuenv: a wheel with its hash. What it requires has hashes in it. The build context is /context during this step. To use an",
        "# address (a git address needs git in the base image) or another wheel of the build context:",
        "#   docker build --build-arg GPUENV=/context/gpuenv-0.1.0-py3-none-any.whl ."
        if subject.gpuenv.wheel
        else "#   docker build --build-arg GPUENV=ADDRESS .",
        f'ARG GPUENV="{default}"',
        f"RUN {_CACHE} \\",
        f"    {_SECRET} \\",
        f"    {_CONTEXT} \\",
        "    python3 -m venv /opt/gpuenv \\",
        f" && {itself} \\",
        f" && {requirements} \\",
        " && ln -s /opt/gpuenv/bin/gpuenv /usr/local/bin/gpuenv",
        "",
    ]  # fmt: skip


def _environment(subject: Subject) -> list[str]:
    lock = subject.lock
    lock_path = f"/opt/lock/{PurePosixPath(subject.lock_file).name}"
    wheels = [s.oneline(s.file_name(p)) for p in s.local_files(lock)]
    create = s.create_command(subject, ENV, lock_path, *(["--find-links", "/wheels"] if wheels else []))
    return [
        EXACTLY
        + (
            " The image build has no GPU, so options describe the target machine."
            if lock.plan.device == "cuda"
            else ""
        ),
        *_folders(subject),
        f"COPY {json.dumps([subject.lock_file, lock_path])}",
        *local(wheels),
        "ENV UV_LINK_MODE=copy UV_PYTHON_INSTALL_DIR=/opt/python",
        f"RUN {_CACHE} \\",
        f"    {_SECRET} \\",
        *(["    --mount=type=bind,source=wheels,target=/wheels \\"] if wheels else []),
        f"    {_override(lock)}{s.shell(*create)}",
        "# Verifies without a GPU: imports, and convolutions on the CPU.",
        f"RUN {_CACHE} \\",
        f"    {s.shell('gpuenv', 'verify', ENV, '--device', 'cpu')}",
        "",
    ]


def _override(lock: Lock) -> str:
    cuda = s.conda_override(lock)
    return f"CONDA_OVERRIDE_CUDA={s.shell(cuda)} " if cuda else ""


def local(wheels: list[str]) -> list[str]:
    """Return the comment on wheels of the locking machine, if any."""
    head = "# Copy these wheels from the locking machine to ./wheels"
    return [head, *(f"#   {name}" for name in wheels)] if wheels else []


def _folders(subject: Subject) -> list[str]:
    """Return the steps that copy folders to the paths in the lock."""
    rows = []
    for package in subject.lock.packages:
        folder = s.folder_of(package)
        if folder:
            rows.append(f"# The folder of {s.oneline(package.name)}, at the path in the lock.")
            rows.append(f"COPY {json.dumps([in_context(folder, subject.folder), folder])}")
    return rows


def in_context(folder: str, context: str) -> str:
    """Return a folder's path in the build context, or its name outside of it."""
    path = PurePosixPath(folder)
    return f"{path.relative_to(context) if path.is_relative_to(context) else path.name}/"


def _user(lock: Lock) -> list[str]:
    gpu = ["    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility"]
    cuda = lock.plan.device == "cuda"
    path = f"ENV PATH={ENV}/bin:$PATH"
    check = json.dumps(s.quick_check(lock, ENV))
    return [
        f"{path} \\" if cuda else path,
        *(gpu if cuda else []),
        "RUN useradd --create-home --uid 1000 app",
        "USER 1000:1000",
        "WORKDIR /home/app",
        "# Checks driver, runtime, libraries and a small cuDNN convolution. It uses some GPU memory for a second."
        if cuda else "# Checks imports and convolutions on the CPU.",
        f"HEALTHCHECK --interval=5m --timeout=2m --start-period=30s CMD {check}",
        "# Runs the program with the variables that the environment needs (LD_LIBRARY_PATH for old TensorFlow).",
        f"ENTRYPOINT {json.dumps(['gpuenv', 'run', '--exec', ENV, '--'])}",
        'CMD ["python"]',
        "",
    ]  # fmt: skip


_HELD = "/opt/lock"


def apptainer(subject: Subject) -> str:
    """Return the definition. Its build arguments need Apptainer 1.2 or SingularityCE 4. Raises UsageError."""
    s.linux_only(subject, "an Apptainer image")
    start, lock = image(subject), subject.lock
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
    rows = [s.comment(subject, "apptainer", "", *head) + f"\nBootstrap: docker\nFrom: {start.image}\n"]
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


def devcontainer(subject: Subject) -> str:
    """Return the file for .devcontainer/ with comments, which its readers allow. Raises UsageError."""
    s.linux_only(subject, "a dev container")
    start, lock = image(subject, "devcontainer"), subject.lock
    # Outside of the workspace: that is the host's folder and may contain an environment of the host.
    env = f"/home/{start.user}/env"
    document: dict[str, Any] = {
        "name": s.headline(lock),
        "image": start.image,
        "remoteUser": start.user,
        **({"hostRequirements": {"gpu": "optional"}} if lock.plan.device == "cuda" else {}),
        **({"runArgs": ["--ipc=host"]} if any(b.framework == "torch" for b in lock.plan.builds) else {}),
        # The default of localEnv ends at its first colon, so the command has the default.
        "containerEnv": {"GPUENV_FROM": "${localEnv:GPUENV}"},
        "onCreateCommand": " && ".join(_make(subject, f"/home/{start.user}")),
        "postStartCommand": _start_check(lock, env),
        "customizations": {
            "vscode": {
                "extensions": ["ms-python.python"],
                "settings": {"python.defaultInterpreterPath": f"{env}/bin/python"},
            }
        },
    }
    return (
        s.comment(subject, "devcontainer", "", *_told(subject), sign="//")
        + json.dumps(document, indent=2)
        + "\n"
    )


def _told(subject: Subject) -> list[str]:
    files = subject.gpuenv.files(subject.lock_file)
    rows = [
        f".devcontainer/devcontainer.json of a project. It needs {s.oneline(files)} in the project's folder",
        "To install gpuenv from another URL or wheel, set GPUENV on the host",
    ]
    if subject.lock.plan.device == "cuda":
        # Two `--gpus` are two requests, and a single one fails on a host without a GPU.
        rows.append("hostRequirements.gpu adds `--gpus all` if the host has a GPU")
    if any(b.framework == "torch" for b in subject.lock.plan.builds):
        rows.append("--ipc=host: data loaders of torch pass tensors through shared memory")
    wheels = [s.oneline(s.file_name(p)) for p in s.local_files(subject.lock)]
    if wheels:
        rows.append(f"copy these wheels from the locking machine to ./wheels: {', '.join(wheels)}")
    return rows


def _make(subject: Subject, home: str) -> list[str]:
    source, tool = subject.gpuenv, f"{home}/.gpuenv"
    copied = replace(source, wheel=PurePosixPath(source.wheel).name)
    wheels = ["--find-links", "wheels"] if any(s.local_files(subject.lock)) else []
    create = s.create_command(subject, f"{home}/env", subject.lock_file, *wheels)
    cuda = s.conda_override(subject.lock)
    override = f"CONDA_OVERRIDE_CUDA={s.shell(cuda)} " if cuda else ""
    return [
        "python3 -m venv ~/.gpuenv",
        # The path of the project's folder may contain a space, which an address cannot.
        *([f"cp {s.shell(source.wheel)} ~/.gpuenv/"] if source.wheel else []),
        f'{{ [ -n "$GPUENV_FROM" ] || GPUENV_FROM={s.shell(copied.requirement(tool))}; }}',
        *s.install_gpuenv(subject.lock, "~/.gpuenv", '"$GPUENV_FROM"'),
        "mkdir -p ~/.local/bin",
        "ln -sf ~/.gpuenv/bin/gpuenv ~/.local/bin/gpuenv",
        f"{override}~/.gpuenv/bin/gpuenv {s.shell(*create[1:])}",
    ]


def _start_check(lock: Lock, env: str) -> str:
    """Return the command that verifies the GPU of the host, or the CPU, at each start."""
    on_cpu = s.shell("verify", env, "--device", "cpu")
    if lock.plan.device != "cuda":
        return f"~/.gpuenv/bin/gpuenv {on_cpu}"
    quick = s.shell(*s.quick_check(lock, env)[1:])
    return (
        f"if [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; then ~/.gpuenv/bin/gpuenv {quick}; "
        f"else ~/.gpuenv/bin/gpuenv {on_cpu}; fi"
    )


_ENV = ".venv"


def github(subject: Subject) -> str:
    """Return the workflow. Raises UsageError if no machine fits. Strings are JSON, which is valid YAML."""
    s.linux_only(subject, "the workflow")
    lock = subject.lock
    wheels = [s.oneline(s.file_name(p)) for p in s.local_files(lock)]
    find_links = ["--find-links", "wheels"] if wheels else []
    options = lock_options(subject)
    check = s.shell("gpuenv", "lock", "--check", *options, *find_links) if options else ""
    create = s.shell(*s.create_command(subject, _ENV, subject.lock_file, *find_links))
    if "${{" in s.headline(lock) + check + create + subject.gpuenv.address + subject.gpuenv.wheel:
        # The author of the lock could otherwise make the workflow evaluate expressions, with its secrets.
        raise UsageError("the lock contains an expression of GitHub Actions (${{), which gpuenv never writes")
    wheel, steps = subject.gpuenv.wheel, [".github/workflows/environment.yml"]
    steps += [f"commit {wheel} as well: pip installs gpuenv from it"] if wheel else []
    steps += ["to install gpuenv from another URL or wheel, set the repository variable GPUENV"]
    steps += (
        [f"copy these wheels from the locking machine to ./wheels: {', '.join(wheels)}"] if wheels else []
    )
    rows = [*_job(subject), *_steps(subject, check, create)]
    return s.comment(subject, "github", "", *steps) + "\n".join(rows) + "\n"


def _job(subject: Subject) -> list[str]:
    cuda = s.conda_override(subject.lock)
    return [
        "name: environment",
        "on: [push, pull_request]",
        "permissions:",
        "  contents: read",
        "jobs:",
        "  environment:",
        f"    runs-on: {runner(subject)}",
        "    timeout-minutes: 60",
        *(["    env:", f"      CONDA_OVERRIDE_CUDA: {json.dumps(cuda)}"] if cuda else []),
    ]


def _install(subject: Subject) -> list[str]:
    """Return the step that installs gpuenv. Its variable is unset in later steps, where it has another meaning."""
    default = _in_quotes(subject.gpuenv.requirement("{0}"))
    value = f"${{{{ vars.GPUENV || format({default}, github.workspace) }}}}"
    tool = '"$RUNNER_TEMP"/gpuenv'
    return [
        "      - run: |",
        f"          python -m venv {tool}",
        *(f"          {row}" for row in s.install_gpuenv(subject.lock, tool, '"$GPUENV"')),
        f'          echo {tool}/bin >> "$GITHUB_PATH"',
        "        env:",
        f"          GPUENV: {json.dumps(value)}",
    ]


def _steps(subject: Subject, check: str, create: str) -> list[str]:
    hashed = f"hashFiles({_in_quotes(subject.lock_file)})"
    return [
        "    steps:",
        f"      - uses: {action(subject, 'actions/checkout')}",
        "        with:",
        "          persist-credentials: false",
        f"      - uses: {action(subject, 'actions/setup-python')}",
        "        with:",
        f"          python-version: {json.dumps(gpuenv_python(subject))}",
        f"      - uses: {action(subject, 'actions/cache')}",
        "        with:",
        "          path: ~/.cache",
        f"          key: gpuenv-${{{{ runner.os }}}}-${{{{ runner.arch }}}}-${{{{ {hashed} }}}}",
        *_install(subject),
        *_github_check(check),
        "      - name: Install the lock and check hashes",
        f"        run: {json.dumps(create)}",
        "      - name: Verify without a GPU",
        f"        run: {s.shell('gpuenv', 'verify', _ENV, '--device', 'cpu')}",
        f"      - run: gpuenv run {_ENV} -- python -c 'print(\"your tests here\")'",
    ]


def _github_check(command: str) -> list[str]:
    if command:
        return [
            "      - name: Check that the lock is up to date",
            f"        run: {json.dumps(command)}",
        ]
    return [
        "      # The lock is for a project and an unnamed machine. With a named target in",
        "      # gpuenv.yaml this workflow can check it: gpuenv lock --check --target NAME",
    ]


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
    options += s.target_options(lock)
    if lock.manager == "conda":
        options += ["--manager", "conda"]
        for channel in dict.fromkeys(p.index for p in s.conda_packages(lock) if p.index):
            options += ["--channel", channel]
    for build in plan.builds:
        options += ["--framework", f"{build.framework}=={build.version}"]
    cuda = next((b.cuda for b in plan.builds if b.cuda), None)
    options += ["--cuda", cuda] if cuda and lock.manager == "venv" else []
    for package in plan.packages:
        options += ["--with", package]
    return options


def _in_quotes(path: str) -> str:
    """Return a string literal for GitHub's expressions."""
    return "'" + s.oneline(path).replace("'", "''") + "'"
