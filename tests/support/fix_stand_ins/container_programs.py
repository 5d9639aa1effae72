"""Stand-ins for programs that start containers and jobs."""

import json
from pathlib import Path

from machine import Parser, refuse

CDI = "etc/cdi/nvidia.yaml"


def _run_parser(name):
    """The options of `docker run` (28.2) and `podman run` (5.4) that fixes use, and a few beside them."""
    parser = Parser(name, wrong=125)
    parser.values("--device", "--group-add", "-e", "--env", "-v", "--volume")
    for option in ("--gpus", "--memory", "--pids-limit", "--ipc", "--shm-size", "--name", "--security-opt"):
        parser.add_argument(option)
    parser.flags("-i", "-t", "--rm", "-d")
    parser.add_argument("image")
    parser.add_argument("command", nargs="...")
    return parser


def docker(machine, words):
    if words[:1] == ["restart"]:
        parser = Parser("docker restart")
        parser.add_argument("containers", nargs="+")
        parser.parse_args(words[1:])
        return
    if words[:1] != ["run"]:
        refuse(f"docker: '{words}' is not a docker command.")
    given = _run_parser("docker run").parse_args(words[1:])
    # docker/cli, opts/gpus.go: one CSV record; its fields are a count, "all", or key=value
    for field in (given.gpus or "all").strip('"').split(","):
        key, _, value = field.partition("=")
        if (
            field != "all"
            and not field.isdigit()
            and (key not in ("device", "count", "capabilities") or not value)
        ):
            refuse(f'invalid argument "{given.gpus}" for "--gpus" flag', 125)
    if given.pids_limit and not given.pids_limit.lstrip("-").isdigit():
        refuse(f'invalid argument "{given.pids_limit}" for "--pids-limit" flag', 125)


def podman(machine, words):
    """Podman finds the devices of CDI in the specifications of /etc/cdi and /var/run/cdi."""
    if words[:1] != ["run"]:
        refuse(f"Error: unrecognized command `podman {words}`", 125)
    given = _run_parser("podman run").parse_args(words[1:])
    for device in given.device:
        if "=" in device and not (machine.root / CDI).exists():
            refuse(f"Error: setting up CDI devices: unresolvable CDI devices {device}", 126)


def apptainer(machine, words):
    """Apptainer, and singularity, which is its older name."""
    if words[:1] != ["exec"]:
        refuse(f"Error for command {words}")
    parser = Parser("apptainer exec")
    parser.flags("--nv", "--nvccli", "-c")
    parser.add_argument("image")
    parser.add_argument("command", nargs="...")
    if not parser.parse_args(words[1:]).command:
        refuse("Error for command: requires at least 2 arg(s)")


def nvidia_ctk(machine, words):
    """nvidia-container-toolkit 1.18, cmd/nvidia-ctk. Without --output, `cdi generate` only prints."""
    parser = Parser("nvidia-ctk")
    options = {
        ("runtime", "configure"): ("--runtime", "--config"),
        ("cdi", "generate"): ("--output", "--format"),
        ("system", "create-dev-char-symlinks"): ("--create-all",),
    }.get(tuple(words[:2]))
    if not options:
        refuse(f"nvidia-ctk: no command {words[:2]}")
    for option in options:
        parser.add_argument(option, action="store_true" if option == "--create-all" else "store")
    given = parser.parse_args(words[2:])
    if words[0] == "cdi" and not given.output:
        print("cdiVersion: 0.5.0\nkind: nvidia.com/gpu")
        return
    machine.require_root("unable to write: permission denied")
    if words[0] == "cdi":
        machine.create(given.output, "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n")
    elif words[0] == "runtime":
        if given.runtime not in ("docker", "containerd", "crio"):
            refuse(f"unrecognized runtime '{given.runtime}'")
        runtimes = {"nvidia": {"path": "nvidia-container-runtime", "args": []}}
        machine.create("etc/docker/daemon.json", json.dumps({"runtimes": runtimes}))
    else:
        machine.create("dev/char/195:0")


def srun(machine, words):
    """Slurm, srun(1)."""
    parser = Parser("srun")
    for option in ("--gpus", "--mem", "--ntasks"):
        parser.add_argument(option)
    parser.add_argument("command", nargs="...")
    if not parser.parse_args(words).command:
        refuse("srun: fatal: No command given to execute.")


def sbatch(machine, words):
    """Slurm, sbatch(1): lines of the script that begin with #SBATCH are options too."""
    parser = Parser("sbatch")
    for option in ("--gpus", "--mem", "--ntasks"):
        parser.add_argument(option)
    parser.add_argument("script")
    script = parser.parse_args(words).script
    lines = Path(script).read_text(encoding="utf-8").splitlines()
    inside = [w for line in lines if line.startswith("#SBATCH ") for w in line.split()[1:]]
    given = parser.parse_args([*inside, *words])
    machine.write("job", [f"gpus={given.gpus}", f"mem={given.mem}"])


PROGRAMS = {
    "docker": docker, "podman": podman, "apptainer": apptainer, "nvidia-ctk": nvidia_ctk, "srun": srun,
    "sbatch": sbatch,
}  # fmt: skip
