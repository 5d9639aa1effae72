"""Write docs/reference/json.md: each JSON document with an example of a real run: `json_reference.py
[--write]`.

The runs use the configured package index, for jax on the CPU. Long lists and texts are cut in the examples.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "json.md"
JAX = "--framework jax --device cpu --python 3.12"
TORCH = "--framework torch --driver 550.54.15 --gpu T4 --python 3.12"
FLEET = "--framework torch --target hosts"
RUNS = (
    ("gpuenv.machine/1", "detect", "gpuenv detect --json", "This machine. `--target` reads it."),
    ("gpuenv.variant-properties/1", "detect --variant-properties", "gpuenv detect --variant-properties --json",
     "What a provider of wheel variants reports: [indexes with wheel variants](../how-to/mirrors.md#indexes-with-wheel-variants)."),
    ("gpuenv.plan/1", "resolve", f"gpuenv resolve {TORCH} --json", "The builds that fit, and the objections to others."),
    ("gpuenv.fleet/1", "resolve` with several `--target", f"gpuenv resolve {FLEET} --json", "The fewest plans for several machines."),
    ("gpuenv.fleet-locks/1", "lock` with several `--target", f"gpuenv lock {FLEET} --json", "A lock for each of the fewest plans: [fleets](fleet.md)."),
    ("gpuenv.lock/1", "lock", f"gpuenv lock {JAX} --json", "The lock: every package with its hash."),
    ("gpuenv.create/1", "create", f"gpuenv create {JAX} --json", "Machine, plan, lock, environment and verdict."),
    ("gpuenv.verdict/1", "verify", "gpuenv verify --json", "The stages and the verdict."),
    ("gpuenv.node/1", "verify --node", "gpuenv verify --quick --node --json", "Whether the machine has a fault: [checks of nodes](node-checks.md)."),
    ("gpuenv.fleet-results/1", "report --hosts", "gpuenv report --hosts results.json --json", "The results of many hosts: [fleets](fleet.md#results-of-many-hosts)."),
    ("gpuenv.run/1", "run", "gpuenv run --json python -c 'print(1)'", "The exit code of the program, and the findings."),
    ("gpuenv.list/1", "list", "gpuenv list --json", "The environments that gpuenv made."),
    ("gpuenv.repair/1", "repair", "gpuenv repair --json", "What was restored."),
    ("gpuenv.preview/1", "remove --dry-run", "gpuenv remove .venv --dry-run --json", "What a command would change."),
    ("gpuenv.export/1", "export", "gpuenv export --format requirements --json", "The exported text."),
    ("gpuenv.bundle/1", "bundle", "gpuenv bundle stick --framework jax --device cpu --target hosts --json",
     "What a machine without a network needs. `plans` is empty in a bundle for one machine."),
    ("gpuenv.report/1", "report", "gpuenv report --json", "The text for an issue."),
    ("gpuenv.cache/1", "cache dir", "gpuenv cache dir --json", "The folder of the cache."),
    ("gpuenv.findings/1", "diagnose", "gpuenv diagnose train.log --no-machine --json", "The causes, likeliest first."),
    ("gpuenv.profiles/1", "profiles list", "gpuenv profiles list --json", "The tables of profiles."),
    ("gpuenv.init/1", "init", "gpuenv init --framework jax --json", "The files that were written."),
    ("gpuenv.remove/1", "remove", "gpuenv remove .venv --json", "The environments that were removed."),
    ("gpuenv.error/1", "every command that fails", "gpuenv resolve --framework torch --driver 1.2.3.4.5 --json",
     "An error. A command that reached its value prints that value, also with exit code 5 or 8."),
)  # fmt: skip
HEAD = """\
# JSON documents

`--json` prints one document on standard output. `schema` names its form and version. An unknown value is `null`, a list is never
`null`. Later releases may add fields; a removed or renamed field gets a new version.

`scripts/json_reference.py --write` makes these examples with real commands. `...` marks what is cut.
"""


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write docs/reference/json.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpuenv-json-") as folder:
        text = page(Path(folder))
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


def page(folder: Path) -> str:
    """Run the commands in a folder, and return the page."""
    work = folder / "project"
    (work / "hosts").mkdir(parents=True)
    (work / "train.log").write_text(
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040)\n"
    )
    for name, gpu, driver in (("a", "8.0", "535.129.03"), ("b", "9.0", "580.65.06")):
        target = {"platform": "linux-x86_64", "glibc": "2.35", "driver": driver, "driver_os": "linux",
                  "gpus": [{"capability": gpu, "name": None}]}  # fmt: skip
        (work / "hosts" / f"{name}.json").write_text(
            json.dumps({"schema": "gpuenv.target/1", **target, "driver_cuda": None, "forward_compat": None})
        )
    parts = [HEAD]
    for schema, command, line, what in RUNS:
        if schema == "gpuenv.fleet-results/1":
            write_results(folder, work)
        document = run(line, folder, work)
        if document.get("schema") != schema:
            sys.exit(f"{line}: {document.get('schema')} is not {schema}\n{json.dumps(document)[:2000]}")
        example = json.dumps(cut(document), indent=2, ensure_ascii=False)
        parts.append(f"## {schema}\n\n`{command}`. {what}\n\n```json\n{example}\n```\n")
    return "\n".join(parts)


def write_results(folder: Path, work: Path) -> None:
    """Write the results of one host, from its verdict."""
    verdict = run("gpuenv verify --json", folder, work)
    row = {"host": "node1", "class": "cpu", "plan": "jax (CPU)", "verdict": verdict["verdict"], "ok": True, "cause": None,
           "hint": None, "seconds": round(sum(stage["seconds"] or 0 for stage in verdict["stages"]), 2)}  # fmt: skip
    document = {"schema": "gpuenv.fleet-results/1", "hosts": [row]}
    (work / "results.json").write_text(json.dumps(document), encoding="utf-8")


def run(line: str, folder: Path, work: Path) -> dict[str, Any]:
    """Run a command and return its document, with paths and addresses of this machine replaced."""
    env = {**os.environ, "XDG_DATA_HOME": str(folder / "data"), "XDG_STATE_HOME": str(folder / "state")}
    env["PATH"] = f"{sysconfig.get_path('scripts')}{os.pathsep}{env['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=work,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    text = done.stdout.replace(str(work), "/home/me/project").replace(str(folder), "/home/me")
    text = re.sub(r"(file://)/[^\"\s]*/", r"\1/wheels/", text).replace(str(Path.home()), "/home/me")
    text = re.sub(r"https://[^/\"]+/", "https://index.example/", text)
    text = text.replace(str(PAGE.parents[2]), "/usr/lib/gpuenv")
    try:
        document: dict[str, Any] = json.loads(text)
    except ValueError:
        sys.exit(f"{line}\n{done.stdout}\n{done.stderr}")
    return document


def cut(value: Any, depth: int = 0) -> Any:
    """Return a value with one entry of each list and at most 100 characters of each text."""
    if isinstance(value, dict):
        return {key: cut(entry, depth + 1) for key, entry in value.items()}
    if isinstance(value, list):
        return [cut(entry, depth + 1) for entry in value[:1]]
    if isinstance(value, str) and len(value) > 100:
        return f"{value[:97]}..."
    return value


if __name__ == "__main__":
    main()
