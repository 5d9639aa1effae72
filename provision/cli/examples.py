"""List the examples in the help of each command."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "create": (
        ("gpuenv create", "build what gpuenv.yaml asks for in .venv"),
        ("gpuenv create --framework torch", "newest torch for this machine"),
        ("gpuenv create -f 'torch>=2.6' --with torchvision -r requirements.txt", "with other packages"),
        ("gpuenv create --framework jax --device cpu", "without a GPU"),
        ("gpuenv create --locked", "install exactly the lock"),
    ),
    "sync": (
        ("gpuenv sync", "bring .venv up to date with gpuenv.yaml"),
        ("gpuenv sync --locked", "install exactly the lock"),
    ),
    "verify": (
        ("gpuenv verify", "test .venv, or the active environment"),
        ("gpuenv verify /opt/conda/envs/train", "test an environment of another tool"),
        ("gpuenv verify --quick", "driver, CUDA and cuDNN in seconds"),
        ("gpuenv verify --deep --report verdict.html", "run all checks, and write an HTML page"),
    ),
    "detect": (
        ("gpuenv detect", "show this machine"),
        ("gpuenv detect --json > node.json", "describe this machine, for --target of other commands"),
    ),
    "resolve": (
        ("gpuenv resolve --framework torch", "plan for this machine"),
        ("gpuenv resolve -f torch --driver 535.129.03 --gpu V100", "plan for another machine"),
        ("gpuenv resolve -f torch --driver 550.54.15 --gpu T4 --pip", "the same build with pip or uv"),
        ("gpuenv resolve -f torch --target node.json --explain", "show every build, and why it fits or not"),
    ),
    "lock": (
        ("gpuenv lock", "write or update pylock.toml"),
        ("gpuenv lock --check", "fail if the lock is out of date"),
        ("gpuenv lock --upgrade numpy", "upgrade one package"),
    ),
    "diagnose": (
        ("gpuenv diagnose train.log", "find the cause of a failure"),
        ("python train.py 2>&1 | gpuenv diagnose -", "read standard input"),
        ("gpuenv diagnose --env .venv", "verify an environment too"),
    ),
    "run": (
        ("gpuenv run python train.py", "in the project's .venv"),
        ("gpuenv run /opt/envs/a -- pytest -x", "in another environment"),
        ("gpuenv run python -c 'import torch'", "options after CMD belong to CMD"),
    ),
    "list": (("gpuenv list", "paths, frameworks, verdicts and sizes"),),
    "remove": (("gpuenv remove .venv --dry-run", "show what would be removed"),),
    "report": (
        ("gpuenv report", "describe this machine and .venv"),
        ("gpuenv report /opt/conda/envs/train", "describe another environment"),
    ),
    "init": (
        ("gpuenv init", "find frameworks in requirements and imports"),
        ("gpuenv init --framework torch", "name the framework"),
    ),
    "add": (
        ("gpuenv add einops", "newest release that fits"),
        ("gpuenv add 'transformers>=4.50' --dry-run", "show what would change"),
    ),
    "drop": (("gpuenv drop einops", "remove a package"),),
    "repair": (
        ("gpuenv repair", "restore .venv to its lock"),
        ("gpuenv repair --dry-run", "show what differs"),
    ),
    "export": (
        ("gpuenv export --format requirements -o requirements.txt", "for pip"),
        ("gpuenv export --format dockerfile -o Dockerfile", "for a container"),
        ("gpuenv export --format sbatch -o train.sbatch", "for Slurm"),
    ),
    "bundle": (
        ("gpuenv bundle torch-bundle --framework torch --target node.json", "for another machine"),
        ("gpuenv create --bundle torch-bundle", "install it there"),
    ),
    "profiles update": (("gpuenv profiles update torch", "add new releases of torch"),),
    "profiles show": (("gpuenv profiles show gpus", "GPUs and their capabilities"),),
}
