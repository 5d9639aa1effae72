"""Runs that are killed, interrupted and terminated, at random moments and at each step they take.

    python tests/faults/kills.py [--moments 100] [--steps 40] [--seed 1] [--only 'conda change']

Each moment is drawn uniformly over the length that the same run was measured to have. The line tells the
moment, whether files were still to be written, the stage (the last event and what lies on the disk), the
signal and whom it was sent to, and what was there afterwards. It holds when the old environment is as it
was, or none is, or the next run knows it as unfinished with the old one aside; when the next run starts at
once and succeeds; and when then nothing half-made is left, and nothing beside ENV and the caches changed.
A change whose proof fails leaves the old environment in any case: it is verified, and asked for again, with
no index, no channel and empty caches.

`--steps` kills each run before single file operations of its own, spread over all of them: moments too
short to be met by chance. All of it takes some fifteen minutes.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ground import Report, parser_of
from runs import Action, Site, actions, after_the_blow, next_run, ready, site

SHARES = {"create": 12, "recreate": 12, "change": 14, "remove": 6, "bundle": 6, "update": 8}
"""How the moments of a venv are spread; conda has the same but for the update."""
BLOWS = ("KILL family", "KILL parent", "INT group", "INT twice", "TERM group", "TERM parent")
CODES = {"KILL": (-9,), "INT": (130, -2), "TERM": (143, -15)}


@dataclass
class Length:
    """A run's measured length and when its last file was written, in seconds from its start."""

    whole: float
    written: float
    steps: int = 0


def start(at: Site, action: Action, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    argv = [at.index.url if a == "INDEX" else a for a in action.argv]
    program = (_COUNTED if env else "") + _RUN
    return subprocess.Popen(
        [sys.executable, "-c", program, *argv], env=at.gpuenv.env | (env or {}), cwd=at.work, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def measured(at: Site, action: Action) -> Length:
    """Let a run go to its end."""
    ready(at, action)
    counter = at.folder / "steps"
    began = time.time()
    child = start(at, action)
    _, err = child.communicate(timeout=120)
    assert child.returncode == action.code, err
    whole, written = time.time() - began, newest(at) - began
    ready(at, action)
    began = time.time()
    child = start(at, action, {"COUNT_TO": str(counter)})
    _, err = child.communicate(timeout=120)
    assert child.returncode == action.code, err
    again, steps = time.time() - began, int(counter.read_text())
    counter.unlink()
    # The machine may be busy with other things: a moment after the end would strike nobody.
    return Length(min(whole, again), min(written, whole) * min(1, again / whole), steps)


def newest(at: Site) -> float:
    """When anything below the site was last written."""
    return max(p.lstat().st_ctime for p in at.folder.rglob("*"))


# --- blows ---------------------------------------------------------------------------------------


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                told = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(told[1]), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def strike(child: subprocess.Popen[str], blow: str) -> None:
    name, whom = blow.split()
    number = signal.Signals[f"SIG{name}"]
    for pid in family(child.pid) if whom == "family" else [child.pid]:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
    if whom == "twice":
        time.sleep(0.05)
        if child.poll() is None:
            child.send_signal(number)


def survivors(at: Site, seconds: float = 2.0) -> list[str]:
    """Programs of the run that are still at work after that long."""
    until = time.monotonic() + seconds
    while True:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    line = (entry / "environ").read_bytes()
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue
                if f"TMPDIR={at.folder}/tmp".encode() in line and command:
                    found.append(f"{entry.name} {command[:60]}")
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.05)


def stage_of(err: str, at: Site, action: Action) -> str:
    """The last event told, and what lies on the disk."""
    told = [x for x in err.splitlines() if x.partition(":")[0] in ("resolve", "lock", "build", "verify", "bundle",
                                                                   "profiles", "remove")]  # fmt: skip
    seen = [p.name.rpartition("-")[2] for p in at.siblings()]
    if action.verb == "bundle":
        seen += ["manifest"] if (at.out / "gpuenv-bundle.json").exists() else []
    elif action.verb != "update":
        seen += ["building"] if (at.env / ".gpuenv" / "building").exists() else []
        seen += ["ENV"] if at.env.exists() else []
    return f"{(told[-1] if told else 'start')[:34]:34} {'+'.join(seen) or '-':18}"


def judged(at: Site, action: Action, child: subprocess.Popen[str], blow: str, *, back: bool, report: Report,
           moment: str, states: Counter[str]) -> None:  # fmt: skip
    """Wait for a run that was struck, and tell what holds."""
    _, err = child.communicate(timeout=60)
    left = survivors(at)
    stage = stage_of(err, at, action)
    code = child.returncode
    before = at.before
    state, wrong = after_the_blow(at, action, before)
    name = blow.split(maxsplit=1)[0]
    # Python itself was still starting: no line of gpuenv's had run.
    starting = code == 1 and err.rstrip().endswith("KeyboardInterrupt") and "/provision/" not in err
    if code not in (action.code, *CODES[name]) and not starting:
        wrong = wrong or f"exit code {code}: {err.strip()[-200:]}"
    if name != "KILL" and "Traceback" in err and code != -2 and not starting:
        wrong = wrong or f"a traceback: {err.strip()[-300:]}"
    if left:
        wrong = wrong or f"still at work: {left}"
    then, _ = next_run(at, action, back=back)
    states[f"{action.name}: {state}"] += 1
    report.case(f"{action.name:20} {moment} {blow:11} {stage}", wrong or then, f"exit {code}, {state}")


# --- steps ---------------------------------------------------------------------------------------

_COUNTED = """
import os, sys
count, last, to = 0, int(os.environ.get("DIE_AT", "0")), os.environ.get("COUNT_TO")
seen = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
        "subprocess.Popen", "shutil.rmtree", "shutil.copyfile", "os.utime"}
def hook(event, args, pid=os.getpid()):
    global count
    if event in seen or (event == "open" and isinstance(args[2], int) and args[2] & 3 and "/dev/" not in str(args[0])):
        if os.getpid() == pid:
            count += 1
            if count == last:
                os.kill(pid, 9)
import atexit
if to:
    atexit.register(lambda n=os.getpid(): os.getpid() == n and os.write(os.open(to, os.O_WRONLY | os.O_CREAT), str(count).encode()))
sys.addaudithook(hook)
"""
_RUN = """
import runpy, sys
sys.argv[0] = "gpuenv"
runpy.run_module("provision", run_name="__main__", alter_sys=True)
"""


# --- all of it -----------------------------------------------------------------------------------


def shares(moments: int, names: list[Action]) -> dict[str, int]:
    """How many moments each run gets."""
    whole = sum(SHARES[a.verb] for a in names)
    found = {a.name: moments * SHARES[a.verb] // whole for a in names}
    for a in names[: moments - sum(found.values())]:
        found[a.name] += 1
    return found


@dataclass
class Blows:
    """All blows of a run of this script."""

    chance: random.Random
    report: Report
    states: Counter[str]
    until: float

    def at(self, at: Site, action: Action, moments: int, steps: int) -> dict:
        """Strike one kind of run, and give a row for the table."""
        length, before, done = measured(at, action), self.report.failed, [0, 0, 0]
        for i in range(moments):
            if time.monotonic() < self.until:
                moment = self.chance.uniform(0, length.whole)
                self._moment(at, action, moment, length, i)
                done[0], done[1] = done[0] + 1, done[1] + (moment < length.written)
        many = min(steps, length.steps)
        for i in range(many):
            if time.monotonic() < self.until:
                # One of each stretch of equal length, so that all of the run is met.
                low, high = (length.steps * n // many for n in (i, i + 1))
                self._step(at, action, 1 + self.chance.randrange(low, high), length, back=bool(i % 2))
                done[2] += 1
        return {"run": action.name, "seconds": length.whole, "written": length.written, "moments": done[0],
                "before": done[1], "steps": done[2], "of": length.steps, "failed": self.report.failed - before}  # fmt: skip

    def _moment(self, at: Site, action: Action, moment: float, length: Length, i: int) -> None:
        blow = BLOWS[(i + self.chance.randrange(2)) % len(BLOWS)]
        at.before = ready(at, action)
        child = start(at, action)
        time.sleep(moment)
        strike(child, blow)
        when = f"{moment:5.2f} s {'writing' if moment < length.written else 'written'}"
        judged(at, action, child, blow, back=bool(i % 2), report=self.report, moment=when, states=self.states)

    def _step(self, at: Site, action: Action, number: int, length: Length, *, back: bool) -> None:
        at.before = ready(at, action)
        child = start(at, action, {"DIE_AT": str(number)})
        judged(at, action, child, "KILL step", back=back, report=self.report, states=self.states,
               moment=f"step {number:4d}/{length.steps:<4d}")  # fmt: skip


def main() -> int:
    """Strike as often as was asked for."""
    parser = parser_of(__doc__)
    parser.add_argument("--moments", type=int, default=100)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", default="", help="a run, or the beginning of one: 'venv', 'conda change'")
    parser.add_argument("--minutes", type=float, default=25, help="no run is begun after that long")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    until = time.monotonic() + options.minutes * 60
    blows = Blows(random.Random(options.seed), Report(), Counter(), until)
    everything = [a for a in (*actions("venv"), *actions("conda", "URL")) if a.name.startswith(options.only)]
    moments, steps = (shares(n, everything) for n in (options.moments, options.steps))
    table: list[dict] = []
    for manager in ("venv", "conda"):
        if not any(a.name.startswith(manager) for a in everything):
            continue
        with site(manager) as at:
            table += [
                blows.at(at, action, moments[action.name], steps[action.name])
                for action in actions(manager, at.channel)
                if action.name.startswith(options.only)
            ]
    tabled(table, blows.states)
    return blows.report.end("blows")


def tabled(table: list[dict], states: Counter[str]) -> None:
    print(
        f"\n{'run':22}{'seconds':>8}{'last file':>10}{'moments':>9}{'before it':>10}{'steps':>15}{'failed':>8}"
    )
    for row in table:
        steps = f"{row['steps']} of {row['of']}"
        print(f"{row['run']:22}{row['seconds']:8.2f}{row['written']:10.2f}{row['moments']:9}{row['before']:10}"
              f"{steps:>15}{row['failed']:8}")  # fmt: skip
    moments, before = sum(r["moments"] for r in table), sum(r["before"] for r in table)
    print(f"{moments} moments, {before} of them before the last file was written; afterwards there was:")
    for state, count in sorted(states.items()):
        print(f"  {state:36} {count}")


if __name__ == "__main__":
    sys.exit(main())
