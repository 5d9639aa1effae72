"""One project of a stranger, in which everything that can be started leaves a mark that says what it is.

The words before "_" in the marks are the columns of the table in docs/explanation/security.md, and `program` for programs,
modules and hooks that lie in the folder: no command starts those.
"""

import shutil
from pathlib import Path

import project_packages
from bundle_site import add_own
from command import Command
from environment_facts import HERE
from framework_envs import LYING_JAX
from loopback import Index

ASK = ("--framework", "jax", "--device", "cpu", "--python", HERE)
PROGRAMS = (
    "nvidia-smi", "uv", "python", "python3", f"python{HERE}", "git", "ldconfig", "conda", "mamba", "pip", "bash", "sh", "virtualenv", "ssh",
    "lspci", "cc", "gcc", "make", "nvcc",
)  # fmt: skip
MODULES = (
    "sitecustomize",
    "usercustomize",
    "conftest",
    "typing",
    "json",
    "torch",
    "yaml",
    "uv",
    "packaging",
    "tomli",
)
HOOKS = ("post-checkout", "pre-commit", "fsmonitor", "reference-transaction", "post-index-change")
YAML = f"""\
frameworks: [jax]
device: cpu
python: "{HERE}"
requirements: [requirements.txt]
packages: [extra]
checks:
  - run: CHECK
"""


class HostileFolder:
    """The folder `work` of a `gpuenv`. It is made once, and `fresh` puts it back as it was."""

    def __init__(self, folder: Path, index: Index) -> None:
        self.gpuenv, self.index = Command(folder), index
        self.work, self.marks, self.kept = self.gpuenv.work, folder / "marks", folder / "kept"
        self.outside = folder / "outside"
        self.marks.mkdir()
        self.gpuenv.env |= {
            "PIP_INDEX_URL": index.url, "UV_PYTHON_INSTALL_MIRROR": "file:///nowhere",
            "TMPDIR": str(folder / "tmp"),
        }  # fmt: skip
        (folder / "tmp").mkdir()
        add_own(index)
        plan = self.gpuenv("resolve", "--json", *ASK).json
        index.add_plan(plan)
        version = plan["builds"][0]["version"]
        index.add("jax", version, (f"jaxlib=={version}",), self._mark("environment_jax") + LYING_JAX)
        for name in ("plain", "extra", "spare"):
            index.add(name, "1.0")
        self._write_project()
        for argv in (("lock",), ("create", "--no-verify", "--no-checks")):
            ran = self.gpuenv(*argv)
            assert ran.code == 0, ran.err
        shutil.copy(self.work / "pylock.toml", self.work / "pylock.other.toml")
        self._poison_environment()
        self._write_programs()
        shutil.move(self.work, self.kept)
        self.home = shutil.copytree(folder / "home", folder / "home.kept", symlinks=True)
        path = self.gpuenv.env["PATH"]
        self.gpuenv.env |= {
            "VIRTUAL_ENV": str(self.work / ".venv"),
            "PATH": f"bin:.::{self.work}/.venv/bin:{path}:",
        }

    def fresh(self) -> None:
        """Put back the folder, the home and empty caches, without marks."""
        for path in (self.work, self.marks, *(self.gpuenv.folder / n for n in ("home", "cache", "uv-cache"))):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.kept, self.work, symlinks=True)
        shutil.copytree(self.home, self.gpuenv.folder / "home", symlinks=True)
        self.marks.mkdir()

    def ran(self) -> set[str]:
        """What left marks: the words of the table, and `program` with its name."""
        names = {path.name for path in self.marks.iterdir()}
        return {n if n.startswith("program") else n.partition("_")[0] for n in names}

    def _mark(self, name: str) -> str:
        return f"open({str(self.marks / name)!r}, 'w').close()\n"

    def _program(self, path: Path, name: str, then: str = "exit 0") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/bash\n: > "{self.marks / name}"\n{then}\n')
        path.chmod(0o755)
        return path

    def _package(self, path: Path, name: str) -> Path:
        """A folder whose requirements only its build backend knows, which leaves a mark, as its setup.py does."""
        project_packages.folder(path, name, "1.0")
        pyproject = path / "pyproject.toml"
        pyproject.write_text(pyproject.read_text().replace("dependencies = []", 'dynamic = ["dependencies"]'))
        with (path / "backend.py").open("a") as file:
            file.write(self._mark(f"build_{name}"))
        (path / "setup.py").write_text(self._mark(f"build_setup_{name}"))
        return path

    def _write_project(self) -> None:
        work, outside = self.work, self.outside
        self._package(work, "mine")
        self._package(work / "app", "app")
        self._package(outside / "other", "other")
        source = self._package(outside / "archived", "archived")
        file, data = project_packages.packed(source, "archived", "1.0")
        (work / file).write_bytes(data)
        committed = project_packages.committed(self._package(work / "committed", "committed"))
        (work / "leads_out").symlink_to(outside / "other")
        rows = ("plain", "-e ./app", f"./{file}", f"committed @ git+file://{committed}")
        (work / "requirements.txt").write_text("".join(f"{row}\n" for row in rows))
        check = self._program(work / "check.sh", "checks_yaml")
        (work / "gpuenv.yaml").write_text(YAML.replace("CHECK", str(check)))
        (work / "train.py").write_text("import jax, backend\n")
        (work / "log.txt").write_text("RuntimeError: Found no NVIDIA driver on your system.\n")

    def _poison_environment(self) -> None:
        """Its Python, what that reads when it starts, and the framework."""
        env = self.work / ".venv"
        site = next(env.glob("lib/python3*/site-packages"))
        real = (env / "bin" / "python").resolve()
        for path in env.glob("bin/python*"):
            path.unlink()
            self._program(path, "environment_python", f'exec -a "$0" "{real}" "$@"')
        (site / "archived" / "__init__.py").unlink()  # for `repair`
        (site / "sitecustomize.py").write_text(self._mark("environment_site"))
        (site / "zzz.pth").write_text(f"import sys; {self._mark('environment_pth')}")

    def _write_programs(self) -> None:
        """Programs, modules and hooks of the folder, each under a name that something might look for."""
        for folder in (self.work, self.work / "bin"):
            for name in PROGRAMS:
                self._program(folder / name, f"program_{name}")
        for name in MODULES:
            (self.work / f"{name}.py").write_text(self._mark(f"program_{name}"))
        hook = self._program(self.work / ".git" / "hooks" / HOOKS[0], "program_hook")
        for name in HOOKS[1:]:
            shutil.copy(hook, hook.with_name(name))
        for name in ("objects", "refs"):
            (self.work / ".git" / name).mkdir()
        (self.work / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (self.work / ".git" / "config").write_text(
            f"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = {hook}\n\tsshCommand = {hook}\n[diff]\n\texternal = {hook}\n"
        )
        (self.work / ".envrc").write_text(f": > {self.marks / 'program_envrc'}\n")
        (self.work / "Makefile").write_text(f"$(shell : > {self.marks / 'program_makefile'})\n")
