"""The scripts that enter a conda environment from a shell that knows no conda."""

from __future__ import annotations

# Conda activates through its own shell function; these do the same for a shell that knows no conda: PATH,
# CONDA_PREFIX, and the scripts that packages bring (etc/conda/activate.d). Another environment that is active
# is left first where it was entered so; the variables of an outer conda come back.
_SH = """\
# Enters the conda environment {plain}; `deactivate` leaves it.
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
# Enters the conda environment {plain}; `deactivate` leaves it.
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
# csh has no functions: what leaves is a file of its own. Its variables that are none of the environment's tell
# the shell that entered. It expands a whole line before it looks at the condition in it.
_CSH = """\
# Enters the conda environment {plain}; `deactivate` leaves it.
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
set _gpuenv_folder = {prefix}/etc/conda/activate.d
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
unset _gpuenv_folder
"""
_LEAVE_CSH = """\
# Leaves the conda environment {plain}.
set _gpuenv_folder = {prefix}/etc/conda/deactivate.d
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
