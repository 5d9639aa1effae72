"""The runs that kills.py and grounds.py disturb: what is there before, the command, and what must hold after.

Every run has a folder of its own with other people's files around the environment, and a small index or
channel on 127.0.0.1, so that it takes a second or two and goes through all stages.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ground import ASK, HERE, Command, Ran, differences, tree
from loopback import Index, serving

from provision.environment.place_lock import lock_file

MARK = "building"
"""The file of `.gpuenv/` by which the next run knows an environment as unfinished."""
# The last is a folder that was killed before it had its name: a later run sweeps it once it is old.
NOT_OURS = ("tmp", "conda-lock-", "TmP", ".gpuenv-scratch-")
"""Temporary folders of libraries, empty or nearly: rattler's and conda-lock's own."""


def is_pythons_own(path: Path) -> bool:
    """Python's tempfile tries a folder with a file of eight random letters, which a kill may leave there."""
    return re.fullmatch(r"[a-z0-9_]{8}", path.name) is not None and path.is_file() and path.stat().st_size < 8


OURS = (
    "cache",
    "cache-envs",
    "uv-cache",
    "rattler",
    "tmp",
    "home/.local/share/gpuenv",
    "home/.conda",
    "config/gpuenv",
)
"""What gpuenv may write beside ENV: caches, its state and the user's profiles."""


class Site:
    """A user's folder: `work` with a project, `.venv` in it, and files that are nobody's business."""

    def __init__(self, folder: Path, index: Index, channel: str = "") -> None:
        self.gpuenv, self.index, self.folder = Command(folder), index, folder
        self.work, self.env, self.out = self.gpuenv.work, self.gpuenv.work / ".venv", self.gpuenv.work / "out"
        self.channel = channel
        self.before = Before(content=None, installed=None)
        self.state: tuple[str, ...] = ()  # the command that the environment is known to answer
        (folder / "tmp").mkdir()
        self.gpuenv.env |= {
            "PIP_INDEX_URL": index.url, "UV_HTTP_TIMEOUT": "4", "PIP_TIMEOUT": "4", "TMPDIR": str(folder / "tmp"),
            "UV_PYTHON_INSTALL_MIRROR": "file:///nowhere", "RATTLER_CACHE_DIR": str(folder / "rattler"),
            "XDG_DATA_HOME": str(folder / "home" / ".local" / "share"),
        }  # fmt: skip
        self._strangers()
        self.around = self.others()

    def _strangers(self) -> None:
        """Files around the environment, some with names that come near to ours."""
        for name in ("thesis.txt", ".venv-mine/keep", ".venv2/pyvenv.cfg", ".venv.gpuenv-new/keep", "out2/keep",
                     ".pylock.toml.mine", "src/app.py"):  # fmt: skip
            path = self.work / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"mine: {name}\n")
        (self.work / "latest").symlink_to("src")
        (self.folder / "home" / "letter").write_text("mine\n")

    def others(self) -> dict[str, str]:
        """All that is not the run's own, with its times."""
        mine = (*OURS, "work/.venv/", "work/.venv", "work/out", "work/pylock.toml", "work/conda-lock.yml")
        found = tree(self.folder, times=True)
        leftover = tuple(str(p.relative_to(self.folder)) for p in self.siblings())
        return {
            path: told for path, told in found.items()
            if not any(path == m or path.startswith(m.rstrip("/") + "/") for m in (*mine, *leftover))
            and path not in (".", "work", "home", "home/.local", "home/.local/share", "config")
        }  # fmt: skip

    def swept(self) -> None:
        """Nothing of another case is laid at the next one's door."""
        for path in (self.folder / "tmp").iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()

    def siblings(self) -> list[Path]:
        """The hidden folders beside ENV in which it is made, removed and kept aside."""
        return [p for x in ("new", "old") if (p := self.work / f".{self.env.name}.gpuenv-{x}").exists()]

    def drafts(self) -> list[str]:
        """Half-written files and scratch folders that a run left behind."""
        temporary = [p for p in (self.folder / "tmp").iterdir() if not is_pythons_own(p)]
        found = [p for p in temporary if not p.name.startswith(("uv-", *NOT_OURS))]
        for place in (self.env / ".gpuenv", self.out, self.folder / "config" / "gpuenv" / "profiles",
                      self.folder / "home" / ".local" / "share" / "gpuenv" / "environments"):  # fmt: skip
            if place.is_dir():
                found += [p for p in place.iterdir() if p.name.startswith(".") and p.name != ".gitignore"]
        found += [
            p for n in ("fetched", "requirements.txt", MARK) if (p := self.env / ".gpuenv" / n).exists()
        ]
        return sorted(str(p.relative_to(self.folder)) for p in [*found, *self.siblings()])

    def cold(self) -> None:
        """Forget what installers and gpuenv have in their caches."""
        for name in ("uv-cache", "cache", "rattler"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def installed(self, env: Path | None = None) -> dict[str, str]:
        """What the environment's own python finds, each module imported."""
        python = (env or self.env) / "bin" / "python"
        done = subprocess.run([python, "-c", _ASKED], capture_output=True, text=True, check=False, timeout=60)
        return json.loads(done.stdout) if done.returncode == 0 else {"python": done.stderr[-200:]}

    def content(self, env: Path | None = None) -> dict[str, str]:
        """The environment's files but for bytecode and what `.gpuenv/` keeps of runs."""
        keep = ("plan.json", "lock.json", "request.json", "pylock.toml", "installed.json")
        found = tree(env or self.env)
        return {
            p: told for p, told in found.items()
            if "__pycache__" not in p and (not p.startswith(".gpuenv/") or p.split("/", 1)[1] in keep)
        }  # fmt: skip

    def whole(self, env: Path | None = None) -> bool:
        """Whether an environment is there that no run is to finish."""
        env = env or self.env
        return (env / ".gpuenv").is_dir() and not (env / ".gpuenv" / MARK).exists()


_ASKED = """
import importlib, importlib.metadata as m, json, sys
assert sys.prefix != sys.base_prefix or "conda" in sys.version or __import__("os").path.isdir(sys.prefix + "/conda-meta")
found = {d.name: d.version for d in m.distributions()}
for name in found:
    importlib.import_module(name.replace("-", "_"))
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Action:
    """A command. `other` is the command line that leads to the other of two states, where it changes one in
    place; `warm` says that caches stay; `code` is its exit code, 8 where what it builds fails its proof."""

    name: str
    argv: tuple[str, ...]
    other: tuple[str, ...] = ()
    warm: bool = True
    code: int = 0

    @property
    def fails(self) -> bool:
        return self.code != 0

    @property
    def verb(self) -> str:
        return self.name.split()[-1]


VENV = (*ASK, "--no-verify")
CONDA = ("--manager", "conda", "--framework", "jax==0.7.0", "--device", "cpu", "--no-verify")
OLD, NEW = ("--with", "aa==1.0"), ("--with", "aa==2.0", "--with", "bb")
CONDA_OLD, CONDA_NEW = (
    ("--with", "numpy==1.26.4"),
    ("--with", "numpy==2.1.0", "--with", "einops", "--with", "bb"),
)


def actions(manager: str, channel: str = "") -> list[Action]:
    """All runs of a manager."""
    conda = (*CONDA, "--channel", channel)
    ask, old, new = (conda, CONDA_OLD, CONDA_NEW) if channel else (VENV, OLD, NEW)
    plain = tuple(a for a in ask if a != "--no-verify")
    made = [
        Action(f"{manager} create", ("create", *ask, *old), warm=False),
        Action(f"{manager} recreate", ("create", *ask, *old, "--recreate"), ("create", *ask, *old)),
        Action(f"{manager} change", ("create", *ask, *new), ("create", *ask, *old)),
        # The jax of these indexes has no arrays: every proof fails, and the old environment has none.
        Action(f"{manager} failing change", ("create", *plain, *new), ("create", *ask, *old), code=8),
        Action(f"{manager} remove", ("remove", ".venv"), ("create", *ask, *old)),
        Action(f"{manager} bundle", ("bundle", "out", *plain, *old), warm=False),
    ]
    if not channel:
        made.append(Action("venv update", ("profiles", "update", "jax", "--index", "INDEX"), warm=False))
    return made


def fill(index: Index) -> None:
    """What the commands above ask for of an index."""
    from bundle_site import add_own
    from packaging.requirements import Requirement

    from provision.bundle import wheels

    add_own(index)
    for text in wheels.own_requirements("conda"):
        need = Requirement(text)
        if need.name in ("conda-lock", "py-rattler"):
            index.add(need.name, next(s.version for s in need.specifier if s.operator == ">="))
    for version in ("1.0", "2.0"):
        index.add("aa", version, also={f"aa/part{i}.py": f"number = {i}\n" * 200 for i in range(60)})
    index.add("bb", "1.0")
    index.add("pip", "26.0")


@contextlib.contextmanager
def site(manager: str) -> Iterator[Site]:
    """A Site with its index, and its channel where that is asked for."""
    folder = Path(tempfile.mkdtemp(prefix="gpuenv-faults-"))
    try:
        with contextlib.ExitStack() as stack:
            index = stack.enter_context(serving(Index()))
            fill(index)
            channel = ""
            if manager == "conda":
                import conda_channel

                channel = stack.enter_context(conda_channel.serving(_channel())).url
            made = Site(folder, index, channel)
            if manager == "venv":
                index.add_plan(made.gpuenv("resolve", "--json", *ASK).json)
                index.add("jax", "99.0", ("jaxlib==99.0",))
                index.add("jaxlib", "99.0")
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _channel() -> Path:
    """The channel with a real python and packages that are there to be linked, by the name of conda-forge."""
    import conda_channel

    bare = conda_channel.bare()
    named = bare.parent / "named" / "conda-forge"
    named.parent.mkdir()
    named.symlink_to(bare)
    return named


# --- before and after ----------------------------------------------------------------------------


@dataclass
class Before:
    """How it was: the environment's files and packages, None where there was none."""

    content: dict[str, str] | None
    installed: dict[str, str] | None
    bundle: dict[str, str] | None = None


def ready(site: Site, action: Action) -> Before:
    """Bring a site to the state that an action starts from."""
    site.swept()
    if action.verb == "create":
        shutil.rmtree(site.env, ignore_errors=True)
    elif action.verb in ("recreate", "change", "remove"):
        if site.state != action.other or not site.env.exists():
            ran = site.gpuenv(*action.other)
            assert ran.code == 0, ran.err
        site.state = ()
    elif action.verb == "bundle":
        shutil.rmtree(site.out, ignore_errors=True)
    else:
        shutil.rmtree(site.folder / "config" / "gpuenv", ignore_errors=True)
    if not action.warm:
        site.cold()
    there = site.env.exists()
    return Before(content=site.content() if there else None, installed=site.installed() if there else None)


def after_the_blow(site: Site, action: Action, before: Before) -> tuple[str, str | None]:
    """What is there now in a word, and what of it must not be so (None where nothing is)."""
    if action.verb == "bundle":
        return _bundle_state(site)
    if action.verb == "update":
        return _overlay_state(site)
    aside = site.work / f".{site.env.name}.gpuenv-old"
    if not site.env.exists():
        if before.content is None or action.verb == "remove":
            return "none", None
        if aside.exists() and site.content(aside) == before.content:
            return "none, old aside", None
        return "none", "the old environment is lost"
    if not site.whole():
        if (site.env / ".gpuenv" / "building").exists():
            if before.content is None or (aside.exists() and site.content(aside) == before.content):
                return "marked, old aside" if before.content else "marked", None
            return "marked", "the old environment is lost"
        return "marked, changing", None
    now = site.content()
    if now == before.content:
        return "old", None
    found = site.installed()
    if "python" in found:
        return "broken", f"it does not run: {found['python']}"
    if action.fails:
        return "new", "an environment whose proof failed is in the place"
    if found == before.installed and action.verb != "recreate":
        where = differences(before.content or {}, now)
        return "old packages", None if before.content is None else f"files differ: {where[:3]}"
    return "new", None


def _bundle_state(site: Site) -> tuple[str, str | None]:
    path = site.out / "gpuenv-bundle.json"
    if not path.exists():
        return ("empty" if site.out.exists() else "none"), None
    try:
        made = json.loads(path.read_text())
    except ValueError as error:
        return "damaged", f"the manifest cannot be read: {error}"
    return ("complete" if made["complete"] else "marked"), _lies(site, made)


def _lies(site: Site, made: dict) -> str | None:
    """A complete manifest names files that are there with their hashes."""
    import hashlib

    wrong = [
        f["path"] for f in made["files"]
        if made["complete"]
        and hashlib.sha256((site.out / f["path"]).read_bytes()).hexdigest() != f["sha256"]
    ]  # fmt: skip
    return f"called complete, and is not: {wrong[:3]}" if wrong else None


def _overlay_state(site: Site) -> tuple[str, str | None]:
    path = site.folder / "config" / "gpuenv" / "profiles" / "jax.yaml"
    if not path.exists():
        return "none", None
    ran = site.gpuenv("profiles", "check", "--json")
    return "new", None if ran.code == 0 else f"the overlay is invalid: {ran.err[-200:]}"


def next_run(site: Site, action: Action, *, back: bool = False) -> tuple[str | None, Ran]:
    """Run again (`back`: to what was there before) and tell what does not hold then."""
    if action.fails:
        return _unchanged(site, action)
    argv = action.other if back and action.other and action.verb != "remove" else action.argv
    gone = action.verb == "remove" and not site.env.exists() and not site.siblings()
    ran = site.gpuenv(*(site.index.url if a == "INDEX" else a for a in argv))
    wrong = None
    if ran.code == 0:
        site.state = action.other if action.verb == "recreate" else argv
    if gone:  # no run locks this place again, so the lock of the killed one stays: it locks nothing
        lock_file(site.env).unlink(missing_ok=True)
    if ran.code != 0 and not (gone and ran.code == 2 and "does not exist" in ran.err):
        wrong = f"the next run fails ({ran.code}): {ran.err.strip()[-300:]}"
    elif left := _left(site, ran):
        wrong = f"left behind: {left}"
    elif touched := differences(site.around, site.others()):
        wrong = f"touched: {touched[:4]}"
    elif action.verb == "bundle":
        state, wrong = _bundle_state(site)
        wrong = wrong or (None if state == "complete" else f"the bundle is {state}")
    elif action.verb == "update":
        state, wrong = _overlay_state(site)
    elif action.verb == "remove":
        listed = site.folder / "home" / ".conda" / "environments.txt"
        if str(site.env) in (listed.read_text() if listed.exists() else ""):
            wrong = "conda's list still names it"
    else:
        wrong = _wrong_packages(site, action, argv)
    return wrong, ran


def _unchanged(site: Site, action: Action) -> tuple[str | None, Ran]:
    """Verify the old environment and ask for it again, with no index, no channel and no installer's cache."""
    nowhere = "http://127.0.0.1:9"
    proxies = dict.fromkeys(("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), nowhere)
    cut_off = proxies | {"PIP_INDEX_URL": nowhere, "UV_CACHE_DIR": str(site.folder / "cache" / "none")}
    usual = dict(site.gpuenv.env)
    site.gpuenv.env |= cut_off | {"RATTLER_CACHE_DIR": cut_off["UV_CACHE_DIR"]}
    try:
        proved = site.gpuenv("verify", "--quick", "--device", "cpu", "--json")
        ran = site.gpuenv(*action.other, "--json")
    finally:
        site.gpuenv.env = usual
    if ran.code != 0 or ran.json["environment"]["changed"]:
        return (
            f"the old environment is not there without an index ({ran.code}): {ran.err.strip()[-300:]}",
            ran,
        )
    if proved.code not in (0, 8) or proved.json.get("drift") != []:
        return f"verify finds another environment ({proved.code}): {(proved.out + proved.err)[-300:]}", ran
    site.state = action.other
    left, touched = _left(site, ran), differences(site.around, site.others())
    if left or touched:
        return f"left behind: {left}, touched: {touched[:4]}", ran
    now = site.content()
    where = differences(site.before.content or {}, now)
    return f"files differ: {where[:3]}" if where else None, ran


def _left(site: Site, ran: Ran) -> list[str]:
    """What is left after a run. A scratch folder of a killed one goes with the next that needs one itself."""
    swept = "lock:" in ran.err or "bundle:" in ran.err
    return [x for x in site.drafts() if swept or "gpuenv-scratch-" not in x]


def _wrong_packages(site: Site, action: Action, argv: tuple[str, ...]) -> str | None:
    found = site.installed()
    if "python" in found:
        return f"it does not run: {found['python']}"
    wanted = [w for w, before in zip(argv[1:], argv, strict=False) if before == "--with"]
    for want in wanted:
        name, _, version = want.partition("==")
        if name not in found or (version and found[name] != version):
            return f"{want} was asked for, and it holds {name} {found.get(name)}"
    if action.verb == "change" and "bb" not in wanted and "bb" in found:
        return "it still holds bb"
    return None if "jax" in found else f"jax is not in it: {found}"


__all__ = ["HERE", "Action", "Before", "Site", "actions", "after_the_blow", "next_run", "ready", "site"]
