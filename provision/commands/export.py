"""`gpuenv export`: a lock in the forms that other tools read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..model import Emit, Event, Exported, drop_event
from ..model.option import REQUIRED, argument, group, option
from ..request.options import Choices
from .shared_options import allow_md5, force


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The options of `export`. Without `env` it is .venv, or ./pylock.toml where that is missing."""

    env: Path | None = argument(None, help="Path of the environment.", show_default=".venv")
    form: str = option(
        REQUIRED, "--format", metavar="FORMAT", complete="formats",
        help="requirements, pylock, environment.yml, conda-lock, dockerfile, apptainer, pixi, devcontainer, "
        "github, sbatch or cyclonedx.",
    )  # fmt: skip
    lock: Path | None = option(None, help="A lock file in place of the environment's own.")
    output: Path | None = option(None, "--output", "-o", help="The file; standard output without it.")
    gpuenv_from: str | None = option(
        None, metavar="ADDRESS",
        help="The address that images and workflows install gpuenv from, such as git+https://... "
        "The default is a wheel written beside the export.",
    )  # fmt: skip
    force: bool = force()
    allow_md5: bool = allow_md5()
    choices: Choices = group(Choices, "platform", "profiles", "cache_dir")


def export(options: ExportOptions, emit: Emit = drop_event) -> Exported:
    """Return the lock of ENV, of a lock file, or of ./pylock.toml where ENV is missing, in another tool's form."""
    from .. import export as stage
    from ..request import facts
    from ..system.output_file import is_stdout, is_stream, refuse_to_replace, signed
    from . import exporting
    from .gpuenv_from import source_of

    form, output, choices = options.form, options.output, options.choices
    stage.known(form)
    if output and is_stdout(output):
        output = None
    if output:
        refuse_to_replace(output, force=options.force)
    source = exporting.source(options.env, options.lock, choices)
    exporting.assert_hashed(source, allow_md5=options.allow_md5)
    folder = _folder(form, output)
    installed, drift = exporting.installed_parts(source) if form == "cyclonedx" else (None, [])
    wheel = exporting.wheel_for(form, options.gpuenv_from, folder)
    to_file = output is not None and not is_stream(output)
    if wheel and to_file:
        wheel.refuse_to_replace(force=options.force)
    subject = stage.Subject(
        lock=source.lock, lock_file=exporting.shown_lock(source.file, folder), images=facts.known(choices).images,
        lock_text=exporting.lock_text(source) if form in ("pylock", "conda-lock") else "",
        env=str(source.env), folder=str(folder), project=(folder / "gpuenv.yaml").exists(), installed=installed,
        gpuenv=source_of(options.gpuenv_from, wheel),
    )  # fmt: skip
    text = stage.render(form, subject)
    _warn(emit, [
        wheel.remark() if wheel and not to_file else None,
        exporting.missing_lock(form, source, subject, folder) if options.lock is None else None,
        *drift,
        *stage.warnings(form, subject),
    ])  # fmt: skip
    if form not in exporting.WITHOUT_COMMENTS:
        text = signed(text, "//" if form == "devcontainer" else "#")
    if wheel and to_file and wheel.write():
        emit(Event(kind="note", stage="export", text=f"{wheel.path.name}: written beside it"))
    if output:
        exporting.write(output, text, beside=form in exporting.WITHOUT_COMMENTS)
    if output and (step := stage.NEXT.get(form)):
        emit(Event(kind="next", stage="export", text=step.format(output)))
    return Exported(format=form, path=str(output) if output else None, text=text)


def _folder(form: str, output: Path | None) -> Path:
    """Return the folder that the paths of an export start from. Raises UsageError where the output's is missing."""
    beside = output.absolute().parent if output else Path.cwd()
    if not beside.is_dir():
        raise UsageError(f"--output {output}: there is no folder {beside}")
    # A devcontainer and a workflow run in the project's folder, wherever their own file is.
    return Path.cwd() if form in ("devcontainer", "github") else beside


def _warn(emit: Emit, texts: list[str | None]) -> None:
    for text in filter(None, texts):
        emit(Event(kind="warning", stage="export", text=text))
