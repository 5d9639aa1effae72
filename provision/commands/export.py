"""`gpuenv export`: a lock in the forms that other tools read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..model import Emit, Event, Exported, drop_event
from ..model.option import REQUIRED, argument, group, option
from ..request.options import Choices


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
    force: bool = option(False, help="Replace files that gpuenv did not write, or that were edited since.")
    allow_md5: bool = option(False, help="conda: take locks that carry md5 alone.")
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
    beside = output.absolute().parent if output else Path.cwd()
    if not beside.is_dir():
        raise UsageError(f"--output {output}: there is no folder {beside}")
    # What runs in the project's folder, wherever its own file lies.
    folder = Path.cwd() if form in ("devcontainer", "github") else beside
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
    missing = exporting.missing_lock(form, source, subject, folder) if options.lock is None else None
    remark = wheel.remark() if wheel and not to_file else None
    for told in [*filter(None, (remark, missing)), *drift, *stage.warnings(form, subject)]:
        emit(Event(kind="warning", stage="export", text=told))
    if form not in exporting.WITHOUT_COMMENTS:
        text = signed(text, "//" if form == "devcontainer" else "#")
    if wheel and to_file and wheel.write():
        emit(Event(kind="note", stage="export", text=f"{wheel.path.name}: written beside it"))
    if output:
        exporting.write(output, text, beside=form in exporting.WITHOUT_COMMENTS)
    if output and (step := stage.NEXT.get(form)):
        emit(Event(kind="next", stage="export", text=step.format(output)))
    return Exported(format=form, path=str(output) if output else None, text=text)
