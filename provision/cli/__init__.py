"""The command line: options in, stages in their order, values to show. Thin."""

from __future__ import annotations

import copy
import importlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from .. import __version__, show
from ..errors import GpuenvError, UsageError
from ..request import options as o
from ..system import process
from . import completing, exit_codes, system_errors

app = typer.Typer(
    name="gpuenv",
    help="GPU Python environments that match the driver, the GPUs and cuDNN, and are proved.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# What typer and the click inside it raise for a wrong command line, wherever that click lives.
_WRONG_USAGE: type[Exception] = typer.BadParameter.__mro__[1]
_DEFAULT_ENV = Path(".venv")
# The commands that are not in this file, and the modules that hold them: only the one that is asked for
# is imported, since each brings stages of its own.
_OTHERS = {
    "diagnose": "troubleshoot", "run": "running", "list": "listing", "remove": "listing", "report": "reporting",
    "init": "initializing", "add": "adding", "repair": "repairing", "export": "exporting", "bundle": "bundling",
    "profiles": "knowledge",
}  # fmt: skip
_HERE = ("create", "verify", "detect", "resolve", "lock")


def split(argv: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Our own words, and the command after the first `--` where ours is `run` (None without one)."""
    argv = list(argv)
    if argv[:1] != ["run"] or "--" not in argv:
        return argv, None
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


def _word(argv: list[str]) -> str:
    """The command that a command line asks for."""
    return next((a for a in argv if not a.startswith("-")), "")


def _complete(argv: list[str]) -> None:
    """Add the command that a command line asks for; all of them for help, completion and wrong words."""
    word = _word(argv)
    if word in _HERE:
        return
    modules = [_OTHERS[word]] if word in _OTHERS else list(dict.fromkeys(_OTHERS.values()))
    for name in modules:
        importlib.import_module(f".{name}", __name__).register(app)


def _asked(argv: list[str]) -> typer.Typer:
    """The app with the command alone that is asked for: typer takes as long to prepare each as to run one."""
    word = next((a for a in argv if not a.startswith("-")), "")
    if word not in _HERE:
        return app
    one = copy.copy(app)
    one.registered_commands = [
        c for c in app.registered_commands if c.callback and c.callback.__name__ == word
    ]
    return one


def run(argv: Sequence[str]) -> int:
    """Run a command line and return its exit code; every failure is shown here."""
    process.hide_credentials()
    ours, command = split(argv)
    screen = show.Screen(json="--json" in ours, environ=process.environ())
    try:
        return _run(screen, ours, command)
    except Exception as error:  # noqa: BLE001  # the last line of defence: show it as ours
        if (refused := system_errors.explain(error)) is None:
            show.bug(screen, __version__)
            return 1
        show.error(screen, refused)
        return refused.code


def _run(screen: show.Screen, ours: list[str], command: list[str] | None) -> int:
    _complete(ours)
    _end_with_signals()
    if _word(ours) != "run":  # what a program of the user's leaves running is the user's
        process.adopt_orphans()
    if process.borrowed_rights():
        show.error(
            screen, UsageError("gpuenv was started with another user's rights (setuid): it does nothing")
        )
        return UsageError.code
    told = process.settle_home(cache="--cache-dir" not in ours) if command is None else None
    if (versions := completing.version_in_bash(screen.environ)) is not None:
        screen.line("\n".join(versions))
        return 0
    if told and "_GPUENV_COMPLETE" not in screen.environ:
        screen.say(f"note: {told}")
    try:
        code = typer.main.get_command(_asked(ours)).main(
            ours, prog_name="gpuenv", standalone_mode=False, obj=command
        )
    except GpuenvError as error:
        system_errors.add_limits(error)
        if error.log and not error.findings:
            from . import troubleshoot

            error.findings = troubleshoot.of_log(error.log, error.device)
        if isinstance(error, UsageError) and error.hint is None:
            error.hint = f"gpuenv {word} --help lists what there is" if (word := _word(ours)) else None
        show.error(screen, error)
        return error.code
    except _WRONG_USAGE as error:
        if type(error).__name__ == "NoArgsIsHelpError" and not screen.json:
            screen.say(str(error), always=True)  # nothing was typed: what there is
        else:
            show.error(screen, _usage(error))
        return UsageError.code
    except (KeyboardInterrupt, typer.Abort):
        return _stopped(screen, 130, "interrupted")
    except SystemExit as error:
        if error.code in (process.TERMINATED, process.HUNG_UP) and screen.json:
            _stopped(screen, int(error.code), "terminated")
        raise
    if code == 130 and command is None:  # typer makes an exit code of an interrupt
        return _stopped(screen, 130, "interrupted")
    return code if isinstance(code, int) else 0


def _end_with_signals() -> None:
    """Let signals unwind this run. Those that are to be ignored (nohup, a shell's background job) stay so."""
    signal.signal(signal.SIGTERM, process.unwind)
    sys.unraisablehook = process.unraised
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, process.unwind)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, process.unwind)


def _stopped(screen: show.Screen, code: int, word: str) -> int:
    """Say what a run leaves that a signal ended: a line, or the one document of `--json`."""
    from ..commands import interrupted

    left = interrupted.left()
    if screen.json:
        error = GpuenvError(f"{word}; {left.text}", hint=left.hint)
        error.code = code
        show.error(screen, error)
    else:
        screen.say(f"{word}; {left.text}\nhint: {left.hint}", always=True)
    return code


def _usage(error: Exception) -> UsageError:
    message = getattr(error, "format_message", lambda: str(error))()
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "gpuenv"
    return UsageError(message, hint=f"{command} --help lists what there is")


def _screen(given: dict[str, Any]) -> show.Screen:
    return show.Screen(
        json=given["json"], quiet=given["quiet"], verbose=given["verbose"], environ=process.environ()
    )


def _finish(screen: show.Screen, value: Any, *, explain: bool = False, **how: bool) -> int:
    """Show a command's value and return its exit code."""
    show.result(screen, value, explain=explain)
    return exit_codes.of(value, **how)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"gpuenv {__version__}\n")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", "-V", callback=_version, is_eager=True, help="The version."
    ),
) -> None:
    """GPU Python environments that match the driver, the GPUs and cuDNN, and are proved."""


@app.command()
def create(
    context: typer.Context,
    env: o.Env = _DEFAULT_ENV,
    framework: o.Frameworks = None,
    with_: o.With = None,
    requirement: o.Requirements = None,
    project: o.ProjectDir = None,
    extra: o.Extras = None,
    group: o.Groups = None,
    locked: bool = typer.Option(
        False, "--locked", help="Install exactly the lock; stop where it is missing or not what is asked for."
    ),
    frozen: bool = typer.Option(False, "--frozen", help="Install exactly the lock, unchecked."),
    lock: Path | None = typer.Option(None, "--lock", help="The lock to install."),
    bundle: o.BundleDir = None,
    allow_md5: o.AllowMd5 = False,
    recreate: bool = typer.Option(False, "--recreate", help="Build anew; the old one stays until then."),
    verify: bool | None = typer.Option(None, "--verify/--no-verify", help="Verify again / not at all."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Show the plan, build nothing."),
    kernel: bool = typer.Option(False, "--kernel", help="Also a Jupyter kernel that runs its Python."),
    target: o.TargetFile = None,
    driver: o.Driver = None,
    driver_os: o.DriverOs = None,
    gpu: o.GpuNames = None,
    gpus: o.GpuIndexes = None,
    platform: o.Platform = None,
    glibc: o.Glibc = None,
    python: o.PythonVersion = None,
    cuda: o.Cuda = None,
    index: o.Index = "auto",
    manager: o.ManagerName = "venv",
    channel: o.Channels = None,
    device: o.DeviceName = "auto",
    find_links: o.FindLinks = None,
    offline: o.Offline = False,
    pre: o.Pre = False,
    no_build: o.NoBuild = False,
    only_binary: o.OnlyBinary = None,
    exclude_newer: o.ExcludeNewer = None,
    exclude_newer_except: o.ExcludeNewerExcept = None,
    profiles: o.ProfileDirs = None,
    cache_dir: o.CacheDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Build an environment that fits this machine, and prove it."""
    from ..commands import up_to_date as standing
    from ..request import made_with

    given = locals()
    if locked and frozen:
        raise UsageError("--locked and --frozen exclude each other", hint="--frozen takes the lock unchecked")
    given_lock = bool(locked or frozen or lock or bundle)
    choices = made_with.of_create(env, o.choices(given), o.said(context), lock=given_lock, recreate=recreate)
    screen = _screen(given)
    plainly = not (given_lock or recreate or verify is not None or dry_run or kernel)
    if plainly and (there := standing.told(show.emitter(screen), env, choices, brief=not json)) is not None:
        return _finish(screen, there)
    from ..commands import creating, kernels

    if bundle:
        from ..commands import bundled

        choices, lock = bundled.opened(bundle, choices, lock)
    how = creating.How(
        locked=locked, frozen=frozen, lock_file=lock, allow_md5=allow_md5, recreate=recreate, verify=verify,
        dry_run=dry_run,
    )  # fmt: skip
    return _finish(screen, kernels.create_with(show.emitter(screen), env, choices, how, wanted=kernel))


@app.command()
def verify(
    env: o.Env = _DEFAULT_ENV,
    quick: bool = typer.Option(
        False,
        "--quick",
        help="Driver, runtime, libraries and cuDNN only; on the CPU the frameworks are imported.",
    ),
    deep: bool = typer.Option(False, "--deep", help="Every case, dtype and hash."),
    strict: bool = typer.Option(False, "--strict", help="Warnings fail."),
    locked: bool = typer.Option(False, "--locked", help="Drift fails: what is not as its lock has it."),
    device: str | None = typer.Option(None, "--device", help="cuda:N, all or cpu."),
    framework: list[str] | None = typer.Option(None, "--framework", "-f", help="Only this one; repeatable."),
    timeout: float = typer.Option(300.0, "--timeout", help="Seconds for each child process."),
    report: Path | None = typer.Option(None, "--report", help="Also write the verdict as one HTML page."),
    force: o.Force = False,
    profiles: o.ProfileDirs = None,
    cache_dir: o.CacheDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """The verdict on any environment: a venv, a conda prefix, or a python executable."""
    from ..commands import proving
    from ..system.output_file import refuse_to_replace

    given = locals()
    options = {
        "quick": quick, "deep": deep, "strict": strict, "locked": locked, "device": _device_word(device),
        "frameworks": _framework_words(framework), "timeout": timeout,
    }  # fmt: skip
    choices = o.Choices(profiles=list(profiles or []), cache_dir=cache_dir)
    if report:
        refuse_to_replace(report, force=force)
    screen = _screen(given)
    verdict = proving.show_verdict(show.emitter(screen), env, choices, options, report)
    return _finish(screen, verdict, strict=strict, asked_cpu=device == "cpu")


def _device_word(device: str | None) -> str | None:
    if device is None or device in ("cpu", "all", "cuda"):
        return None if device == "cuda" else device
    if device.startswith("cuda:") and device[5:].isdigit():
        return device
    raise UsageError(f"--device {device}: expected cpu, all or cuda:N")


def _framework_words(framework: list[str] | None) -> tuple[str, ...]:
    from ..model import FRAMEWORKS

    for name in framework or []:
        if name not in FRAMEWORKS:
            raise UsageError(f"unknown framework {name!r}: gpuenv knows {', '.join(FRAMEWORKS)}")
    return tuple(framework or ())


@app.command()
def detect(json: o.Json = False, quiet: o.Quiet = False, verbose: o.Verbose = False) -> int:
    """This machine: driver, GPUs, Pythons, CUDA and cuDNN files."""
    from .. import detect as stage

    given = locals()
    machine = stage.detect()
    show.result(_screen(given), machine)
    return 0


@app.command()
def resolve(
    framework: o.Frameworks = None,
    with_: o.With = None,
    requirement: o.Requirements = None,
    project: o.ProjectDir = None,
    extra: o.Extras = None,
    group: o.Groups = None,
    explain: bool = typer.Option(False, "--explain", help="Every build and what speaks against it."),
    target: o.TargetFile = None,
    driver: o.Driver = None,
    driver_os: o.DriverOs = None,
    gpu: o.GpuNames = None,
    gpus: o.GpuIndexes = None,
    platform: o.Platform = None,
    glibc: o.Glibc = None,
    python: o.PythonVersion = None,
    cuda: o.Cuda = None,
    index: o.Index = "auto",
    manager: o.ManagerName = "venv",
    channel: o.Channels = None,
    device: o.DeviceName = "auto",
    find_links: o.FindLinks = None,
    offline: o.Offline = False,
    pre: o.Pre = False,
    no_build: o.NoBuild = False,
    only_binary: o.OnlyBinary = None,
    profiles: o.ProfileDirs = None,
    cache_dir: o.CacheDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """The builds that fit, and why nothing newer does. Builds nothing."""
    from ..commands import planning

    given = locals()
    screen = _screen(given)
    plan = planning.show_plan(show.emitter(screen), o.choices(given), explain=explain, stepping=True)
    return _finish(screen, plan, explain=explain)


@app.command()
def lock(
    framework: o.Frameworks = None,
    with_: o.With = None,
    requirement: o.Requirements = None,
    project: o.ProjectDir = None,
    extra: o.Extras = None,
    group: o.Groups = None,
    output: Path | None = typer.Option(
        None, "--output", "-o", help="The lock file; pylock.toml, or conda-lock.yml with --manager conda."
    ),
    check: bool = typer.Option(False, "--check", help="Say whether the lock still holds; write nothing."),
    force: o.Force = False,
    upgrade: bool = typer.Option(
        False, "--upgrade", "-U", help="Newer versions of all packages, or of those named after it."
    ),
    packages: list[str] | None = typer.Argument(None, metavar="[PKG]...", hidden=True),
    target: o.TargetFile = None,
    driver: o.Driver = None,
    driver_os: o.DriverOs = None,
    gpu: o.GpuNames = None,
    gpus: o.GpuIndexes = None,
    platform: o.Platform = None,
    glibc: o.Glibc = None,
    python: o.PythonVersion = None,
    cuda: o.Cuda = None,
    index: o.Index = "auto",
    manager: o.ManagerName = "venv",
    channel: o.Channels = None,
    device: o.DeviceName = "auto",
    find_links: o.FindLinks = None,
    offline: o.Offline = False,
    pre: o.Pre = False,
    no_build: o.NoBuild = False,
    only_binary: o.OnlyBinary = None,
    exclude_newer: o.ExcludeNewer = None,
    exclude_newer_except: o.ExcludeNewerExcept = None,
    profiles: o.ProfileDirs = None,
    cache_dir: o.CacheDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """The exact files, with hashes and the hardware they are for, without building."""
    from ..commands import locking
    from ..system.output_file import is_stdout

    given = locals()
    moved = locking.upgrade_of(upgrade, packages or [])
    screen = _screen(given)
    if output and is_stdout(output):
        screen.out = screen.err  # standard output is the lock's
    made = locking.make_lock(
        show.emitter(screen), o.choices(given), check=check, output=output, upgrade=moved, force=force
    )
    return _finish(screen, made)
