"""Write activation scripts and conda's history, and register an environment with conda."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..environment.place import not_writable
from ..errors import BuildError
from ..model import LockedPackage
from ..system import process, untrusted
from ..system.files import open_part, write_file

# Sources the scripts of packages and prints the variables. The output of the scripts goes to stderr.
_ACTIVATED = 'for file in "$1"/etc/conda/activate.d/*.sh; do . "$file"; done >&2; exec env -0'


def write_scripts(prefix: Path, packages: Sequence[LockedPackage], specs: Sequence[str]) -> None:
    """Write activate scripts, and conda-meta/history with the requested specs. Raises BuildError."""
    try:
        (prefix / "bin").mkdir(exist_ok=True)
        for name, text in SCRIPTS.items():
            path = prefix / "bin" / name
            if not path.exists():  # a package may provide the script
                plain = re.sub(r"[^\w.+-]", "_", prefix.name)  # the shell interprets a prompt
                script = text.format(prefix=shlex.quote(str(prefix)), plain=plain)
                write_file(path, script, root=prefix)
    except OSError as error:
        raise not_writable(prefix, error) from error
    record_history(prefix, (), packages, specs)


def record_history(
    prefix: Path, out: Sequence[LockedPackage], into: Sequence[LockedPackage], specs: Sequence[str]
) -> None:
    """Write removed and added packages into conda's history. Raises BuildError.

    `conda install` then knows the requested specs, and `conda list --revisions` shows the change.
    """
    rows = [f"==> {time.strftime('%Y-%m-%d %H:%M:%S')} <==", "# cmd: gpuenv create"]
    rows += sorted([*(f"-{_name_in_history(p)}" for p in out), *(f"+{_name_in_history(p)}" for p in into)])
    rows.append(f"# update specs: {list(specs)!r}")
    try:
        history = prefix / "conda-meta" / "history"
        with open_part(history, root=prefix, append=True) as file:
            file.write(("\n".join(rows) + "\n").encode())
    except OSError as error:
        raise not_writable(prefix, error) from error


def _name_in_history(package: LockedPackage) -> str:
    """Return a package as in conda's history: "conda-forge/linux-64::numpy-2.0.1-py311h1_0"."""
    channel, subdir, file = package.url.rsplit("/", 2)
    stem = file.removesuffix(".conda").removesuffix(".tar.bz2")
    return f"{channel.rsplit('/', 1)[-1]}/{subdir}::{stem}"


def activate(prefix: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables after the activate.d scripts of packages, as `conda run` does.

    Raises BuildError if a script fails.
    """
    if not any((prefix / "etc" / "conda" / "activate.d").glob("*.sh")):
        return dict(environ)
    shell = next(
        (s for s in ("/bin/bash", "/usr/bin/bash") if Path(s).exists()), "/bin/sh"
    )  # not the one on PATH
    done = process.run([shell, "-c", _ACTIVATED, shell, str(prefix)], env=environ, timeout=60)
    if not done.ok:
        raise BuildError(f"a script in {prefix}/etc/conda/activate.d fails", log=done.stderr)
    variables = dict(row.partition("=")[::2] for row in done.stdout.split("\0") if "=" in row)
    for name in ("_", "SHLVL", "PWD", "OLDPWD"):  # variables of the shell
        variables.pop(name, None)
        variables |= {name: environ[name]} if name in environ else {}
    return variables


# --- the list of environments --------------------------------------------------------------------


def register(prefix: Path) -> None:
    """Add the environment to ~/.conda/environments.txt, which conda, VS Code and Jupyter read. Raises BuildError."""
    prefixes, path = _read_list()
    if str(prefix) not in prefixes:
        _list(path, [*prefixes, str(prefix)])


def unregister(prefix: Path) -> None:
    """Remove the environment from ~/.conda/environments.txt. Raises BuildError."""
    prefixes, path = _read_list()
    if str(prefix) in prefixes:
        _list(path, [x for x in prefixes if x != str(prefix)])


def _read_list() -> tuple[list[str], Path]:
    path = Path(process.environ().get("HOME") or Path.home()) / ".conda" / "environments.txt"
    try:
        return (untrusted.read_strictly(path).splitlines() if path.exists() else []), path
    except (OSError, UnicodeDecodeError) as error:
        raise BuildError(f"{path} cannot be read: {error}") from error


def _list(path: Path, prefixes: Sequence[str]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        home = path.parent.parent  # .conda may be a link to another folder of the user
        write_file(path, "".join(f"{p}\n" for p in prefixes), root=home)
    except OSError as error:
        raise not_writable(path.parent, error) from error


# conda activates with a shell function. These scripts do the same without conda: PATH, CONDA_PREFIX, and the scripts
# of packages in etc/conda/activate.d. They first deactivate an environment that a script of this kind activated, and
# restore the variables of an outer conda environment.
_SH = """\
# Activates the conda environment {plain}. `deactivate` undoes it.
if [ -n "${{_GPUENV_OLD_PATH:-}}${{VIRTUAL_ENV:-}}" ] && command -v deactivate >/dev/null 2>&1; then deactivate; fi
_gpuenv_source () {{
    if [ -n "${{ZSH_VERSION:-}}" ]; then setopt local_options no_nomatch; fi
    for _gpuenv_file in {prefix}/etc/conda/"$1".d/*.sh; do
        if [ -r "$_gpuenv_file" ]; then . "$_gpuenv_file"; fi
    done
    unset _gpuenv_file
}}
deactivate () {{
    _gpuenv_source deactivate
    PATH="$_GPUENV_OLD_PATH"; export PATH
    if [ -n "${{_GPUENV_OLD_PREFIX:-}}" ]; then CONDA_PREFIX="$_GPUENV_OLD_PREFIX"; else unset CONDA_PREFIX; fi
    if [ -n "${{_GPUENV_OLD_NAME:-}}" ]; then CONDA_DEFAULT_ENV="$_GPUENV_OLD_NAME"; else unset CONDA_DEFAULT_ENV; fi
    if [ -n "${{_GPUENV_OLD_PYTHONHOME:-}}" ]; then PYTHONHOME="$_GPUENV_OLD_PYTHONHOME"; export PYTHONHOME; fi
    if [ -n "${{_GPUENV_OLD_PS1:-}}" ]; then PS1="$_GPUENV_OLD_PS1"; fi
    unset _GPUENV_OLD_PATH _GPUENV_OLD_PREFIX _GPUENV_OLD_NAME _GPUENV_OLD_PYTHONHOME _GPUENV_OLD_PS1
    unset -f deactivate _gpuenv_source
    hash -r 2>/dev/null || :
}}
_GPUENV_OLD_PATH="$PATH"
_GPUENV_OLD_PREFIX="${{CONDA_PREFIX:-}}"
_GPUENV_OLD_NAME="${{CONDA_DEFAULT_ENV:-}}"
_GPUENV_OLD_PYTHONHOME="${{PYTHONHOME:-}}"
PATH={prefix}/bin:"$PATH"; export PATH
CONDA_PREFIX={prefix}; export CONDA_PREFIX
CONDA_DEFAULT_ENV={prefix}; export CONDA_DEFAULT_ENV
unset PYTHONHOME
if [ -n "${{PS1:-}}" ]; then _GPUENV_OLD_PS1="$PS1"; PS1="({plain}) $PS1"; fi
hash -r 2>/dev/null || :
_gpuenv_source activate
"""
_FISH = """\
# Activates the conda environment {plain}. `deactivate` undoes it.
if functions -q deactivate; and test -n "$_GPUENV_OLD_PATH$VIRTUAL_ENV"
    deactivate
end
set -g _GPUENV_OLD_PATH $PATH
set -g _GPUENV_OLD_PREFIX $CONDA_PREFIX
set -g _GPUENV_OLD_NAME $CONDA_DEFAULT_ENV
set -g _GPUENV_OLD_PYTHONHOME $PYTHONHOME
set -gx PATH {prefix}/bin $PATH
set -gx CONDA_PREFIX {prefix}
set -gx CONDA_DEFAULT_ENV {prefix}
set -e PYTHONHOME
for _gpuenv_file in {prefix}/etc/conda/activate.d/*.fish
    source $_gpuenv_file
end
function deactivate
    for _gpuenv_file in {prefix}/etc/conda/deactivate.d/*.fish
        source $_gpuenv_file
    end
    set -gx PATH $_GPUENV_OLD_PATH
    set -e CONDA_PREFIX
    set -e CONDA_DEFAULT_ENV
    if test -n "$_GPUENV_OLD_PREFIX"
        set -gx CONDA_PREFIX $_GPUENV_OLD_PREFIX
    end
    if test -n "$_GPUENV_OLD_NAME"
        set -gx CONDA_DEFAULT_ENV $_GPUENV_OLD_NAME
    end
    if test -n "$_GPUENV_OLD_PYTHONHOME"
        set -gx PYTHONHOME $_GPUENV_OLD_PYTHONHOME
    end
    set -e _GPUENV_OLD_PATH _GPUENV_OLD_PREFIX _GPUENV_OLD_NAME _GPUENV_OLD_PYTHONHOME
    functions -e deactivate
end
"""
# csh has no functions, so deactivation is a separate file. Shell variables mark the activated shell. csh expands a
# whole line before it evaluates a condition in it.
_SOURCED_CSH = """\
set _gpuenv_folder = {prefix}/etc/conda/VERB.d
if ( -d "$_gpuenv_folder" ) then
    set nonomatch
    pushd "$_gpuenv_folder" >& /dev/null
    set _gpuenv_files = ( *.csh )
    popd >& /dev/null
    foreach _gpuenv_file ( $_gpuenv_files:q )
        if ( -r "$_gpuenv_folder/$_gpuenv_file" ) source "$_gpuenv_folder/$_gpuenv_file"
    end
    unset nonomatch _gpuenv_file _gpuenv_files
endif
"""
_CSH = """\
# Activates the conda environment {plain}. `deactivate` undoes it.
if ( $?_gpuenv_old_path ) then
    source "$_gpuenv_leave"
endif
set _gpuenv_leave = {prefix}/bin/deactivate.csh
set _gpuenv_old_path = "$PATH"
set _gpuenv_old_prefix = ""
set _gpuenv_old_name = ""
set _gpuenv_old_pythonhome = ""
if ( $?CONDA_PREFIX ) then
    set _gpuenv_old_prefix = "$CONDA_PREFIX"
endif
if ( $?CONDA_DEFAULT_ENV ) then
    set _gpuenv_old_name = "$CONDA_DEFAULT_ENV"
endif
if ( $?PYTHONHOME ) then
    set _gpuenv_old_pythonhome = "$PYTHONHOME"
endif
setenv PATH {prefix}/bin:"$PATH"
setenv CONDA_PREFIX {prefix}
setenv CONDA_DEFAULT_ENV {prefix}
unsetenv PYTHONHOME
alias deactivate 'source "$_gpuenv_leave"'
"""
_CSH += _SOURCED_CSH.replace("VERB", "activate") + "unset _gpuenv_folder\n"
_LEAVE_CSH = "# Deactivates the conda environment {plain}.\n" + _SOURCED_CSH.replace("VERB", "deactivate")
_LEAVE_CSH += """\
setenv PATH "$_gpuenv_old_path"
unsetenv CONDA_PREFIX
unsetenv CONDA_DEFAULT_ENV
if ( "$_gpuenv_old_prefix" != "" ) setenv CONDA_PREFIX "$_gpuenv_old_prefix"
if ( "$_gpuenv_old_name" != "" ) setenv CONDA_DEFAULT_ENV "$_gpuenv_old_name"
if ( "$_gpuenv_old_pythonhome" != "" ) setenv PYTHONHOME "$_gpuenv_old_pythonhome"
unset _gpuenv_folder _gpuenv_old_path _gpuenv_old_prefix _gpuenv_old_name _gpuenv_old_pythonhome _gpuenv_leave
unalias deactivate
"""
SCRIPTS = {"activate": _SH, "activate.fish": _FISH, "activate.csh": _CSH, "deactivate.csh": _LEAVE_CSH}
