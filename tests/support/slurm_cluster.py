"""Slurm on this machine: a real slurmctld and two slurmd, on loopback, with munge keys of their own."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from debian import skip_or_fail

PROGRAMS = ("munged", "slurmctld", "slurmd", "slurmstepd", "scontrol", "sinfo", "srun", "sbatch", "scancel")
FOLDER = "GPUENV_SLURM"
"""Names a folder that scripts/private_slurm.sh filled; without it the machine's own Slurm is taken."""
NODES = ("n1", "n2")
_SECONDS = 60.0


def find_programs():
    """The programs by name, those that are there. Debian's packages end the daemons' names with -wlm."""
    root = os.environ.get(FOLDER)
    path = f"{root}/usr/bin:{root}/usr/sbin" if root else f"{os.environ['PATH']}:/usr/sbin"
    found = {
        name: shutil.which(name, path=path) or shutil.which(f"{name}-wlm", path=path) for name in PROGRAMS
    }
    return {name: place for name, place in found.items() if place}


def libraries():
    """The folders of the libraries and plug-ins in GPUENV_SLURM."""
    root = Path(os.environ.get(FOLDER, "/"))
    return sorted(p.parent for p in root.glob("usr/lib/*/slurm-wlm") if FOLDER in os.environ)


def require():
    """Skip the test where Slurm cannot be run, and fail it where Slurm has to be there."""
    absent = [p for p in PROGRAMS if p not in find_programs()]
    why = f"{', '.join(absent)}: not there; scripts/private_slurm.sh DIR fetches them, and {FOLDER}=DIR names them"
    if absent:
        skip_or_fail(why)
    if os.geteuid() != 0:
        pytest.skip("slurmd needs root")


def free_ports(count):
    """Ports that nothing listens on."""
    with contextlib.ExitStack() as held:
        found = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


class Cluster:
    """A controller and two nodes. `scripts` are the options of slurm.conf and their programs."""

    def __init__(self, scripts):
        # munge wants a folder that every user can enter, and a socket with a short path.
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.bin = self._commands()
        self.environ = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        self.environ["PATH"] = f"{self.bin}:{os.environ['PATH']}"
        self._running = {}
        self._configure(scripts)

    def _commands(self):
        """A folder with Slurm's programs, which find their libraries wherever these are. Its plug-ins ask for the name
        that a daemon was started by."""
        folder = self.folder / "bin"
        folder.mkdir()
        parts = ":".join(f"{p}:{p}/slurm-wlm" for p in libraries())
        for name, place in find_programs().items():
            own = f"export LD_LIBRARY_PATH={parts}\n" if parts else ""
            (folder / name).write_text(f'#!/bin/bash\n{own}exec -a {name} {place} "$@"\n')
            (folder / name).chmod(0o755)
        return folder

    def _configure(self, scripts):
        for name in ("state", "spool", "run", "log"):
            (self.folder / name).mkdir()
        (self.folder / "gres.conf").write_text("Name=gpu File=/dev/full\n")
        scripts = {key: self._with_conf(key, path) for key, path in scripts.items()}
        here, ports = socket.gethostname().partition(".")[0], free_ports(3)
        rows = [
            "ClusterName=gpuenv", f"SlurmctldHost={here}(127.0.0.1)", f"SlurmctldPort={ports[0]}", "SlurmUser=root",
            "SlurmdUser=root", "AuthType=auth/munge", f"AuthInfo=socket={self.folder}/sock", "CredType=cred/munge",
            f"StateSaveLocation={self.folder}/state", f"SlurmdSpoolDir={self.folder}/spool/%n",
            f"SlurmctldPidFile={self.folder}/run/ctld.pid", f"SlurmdPidFile={self.folder}/run/%n.pid",
            "MpiDefault=none", "ProctrackType=proctrack/pgid", "TaskPlugin=task/none", "ReturnToService=2",
            "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core", "GresTypes=gpu", "PrologFlags=Alloc",
            "SlurmdParameters=config_overrides", "HealthCheckInterval=3600", "HealthCheckNodeState=IDLE",
            "SchedulerParameters=nohold_on_prolog_fail",
            # A busy machine answers late: wait longer for one answer, and ask a silent node again each 20 s.
            "MessageTimeout=60", "SlurmdTimeout=60",
            *(f"{key}={path}" for key, path in scripts.items()),
            *(f"PluginDir={folder}/slurm-wlm" for folder in libraries()),
            *(
                f"NodeName={node} NodeHostname={here} NodeAddr=127.0.0.1 Port={port} CPUs=20 Gres=gpu:1"
                for node, port in zip(NODES, ports[1:], strict=True)
            ),
            "PartitionName=all Nodes=ALL Default=YES",
        ]  # fmt: skip
        (self.folder / "slurm.conf").write_text("\n".join(rows) + "\n")

    def _with_conf(self, key, script):
        """A program for this cluster: Slurm gives a health check no SLURM_CONF, and its own file is elsewhere."""
        path = self.folder / key
        path.write_text(f"#!/bin/sh\nSLURM_CONF={self.folder}/slurm.conf {script}\n")
        path.chmod(0o755)
        return path

    def __enter__(self):
        try:
            self._start_munge()
            self._start("ctld", "slurmctld", "-D", "-c", "-f", str(self.folder / "slurm.conf"))
            for node in NODES:
                self._start_node(node)
            for node in NODES:
                self.wait_for(node, lambda state: "IDLE" in state)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error):
        with contextlib.suppress(subprocess.TimeoutExpired, FileNotFoundError):
            subprocess.run(
                ["scancel", "--user=root"], env=self.environ, check=False, timeout=5, capture_output=True
            )
        for name in reversed(list(self._running)):
            self._stop(name)
        shutil.rmtree(self.folder)

    def _start_munge(self):
        key = self.folder / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        own = {
            "key-file": "key",
            "socket": "sock",
            "pid-file": "munge.pid",
            "log-file": "munge.log",
            "seed-file": "seed",
        }
        self._start(
            "munge", "munged", "-F", "--num-threads=1", *(f"--{k}={self.folder}/{v}" for k, v in own.items())
        )
        self.until((self.folder / "sock").exists, "munged opens no socket")

    def _start_node(self, node):
        self._start(
            node,
            "slurmd",
            "-D",
            "-d",
            f"{self.bin}/slurmstepd",
            "-N",
            node,
            "-f",
            str(self.folder / "slurm.conf"),
        )

    def _start(self, name, program, *words):
        with (self.folder / "log" / name).open("ab") as log:
            # Daemons of a group of their own get no Ctrl-C of the terminal before the tests end them.
            self._running[name] = subprocess.Popen(
                [self.bin / program, *words],
                cwd=self.folder,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    def _stop(self, name):
        running = self._running.pop(name)
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(10)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()

    def until(self, done, words):
        end = time.monotonic() + _SECONDS
        while not done():
            logs = "".join(
                p.read_text(errors="replace")[-3000:] for p in sorted((self.folder / "log").iterdir())
            )
            assert time.monotonic() < end, f"{words}\n{logs}"
            dead = [n for n, p in self._running.items() if p.poll() is not None]
            assert not dead, f"{dead} ended\n{logs}"
            time.sleep(0.1)

    # --- what tests ask for --------------------------------------------------------------------------

    def run(self, *words, **more):
        """Run one of Slurm's commands."""
        environ = {**self.environ, **more}
        return subprocess.run(
            words, env=environ, capture_output=True, text=True, check=False, timeout=120, cwd=self.folder
        )

    def node(self, name):
        """The fields of `scontrol show node`, once no job is on it and it answers the controller."""
        passing = {"COMPLETING", "ALLOCATED", "MIXED", "NOT_RESPONDING"}
        self.until(lambda: not passing & self._states(name), f"{name} has a job or does not answer")
        return self._shown("node", name)

    def last_job(self):
        """The fields of `scontrol show job` for the newest job, once it is over."""
        self.until(lambda: self._shown("job").get("JobState") not in ("RUNNING", "COMPLETING"), "a job stays")
        return self._shown("job")

    def _states(self, node):
        return set(self._shown("node", node).get("State", "").split("+"))

    def _shown(self, *what):
        """The fields of the last row that `scontrol show` prints."""
        rows = self.run("scontrol", "-o", "show", *what).stdout.splitlines()
        return _fields(rows[-1]) if rows else {}

    def wait_for(self, node, good):
        """Wait for a state of a node."""
        self.until(
            lambda: good(self._shown("node", node).get("State", "")), f"{node} does not come to its state"
        )

    @contextlib.contextmanager
    def health_checks(self):
        """Run the health check of every node each four seconds."""
        conf = self.folder / "slurm.conf"
        seldom = conf.read_text()
        for text in (seldom.replace("HealthCheckInterval=3600", "HealthCheckInterval=4"), seldom):
            conf.write_text(text)
            assert self.run("scontrol", "reconfigure").returncode == 0
            if text != seldom:
                yield
        own = str(self.folder / "HealthCheckProgram").encode()
        self.until(lambda: not _running(own), "a health check does not end")

    def resume(self, node):
        """Give a drained node back."""
        assert self.run("scontrol", "update", f"NodeName={node}", "State=RESUME").returncode == 0
        self.wait_for(node, lambda state: "DRAIN" not in state)


def _running(program):
    """Whether a process has this program on its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            if program in path.read_bytes():
                return True
    return False


def _fields(row):
    found, key = {}, None
    for word in row.split():
        name, sign, value = word.partition("=")
        if sign:
            key = name
            found[key] = value
        elif key:
            found[key] += f" {word}"
    return found
