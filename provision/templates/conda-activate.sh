# Activates the conda environment @plain@. `deactivate` undoes it.
# shellcheck disable=SC2218  # it is that of the environment that is active
if [ -n "${_GPUENV_OLD_PATH:-}${VIRTUAL_ENV:-}" ] && command -v deactivate >/dev/null 2>&1; then deactivate; fi
_gpuenv_source () {
    if [ -n "${ZSH_VERSION:-}" ]; then setopt local_options no_nomatch; fi
    for _gpuenv_file in @prefix@/etc/conda/"$1".d/*.sh; do
        # shellcheck disable=SC1090
        if [ -r "$_gpuenv_file" ]; then . "$_gpuenv_file"; fi
    done
    unset _gpuenv_file
}
deactivate () {
    _gpuenv_source deactivate
    PATH="$_GPUENV_OLD_PATH"; export PATH
    if [ -n "${_GPUENV_OLD_PREFIX:-}" ]; then CONDA_PREFIX="$_GPUENV_OLD_PREFIX"; else unset CONDA_PREFIX; fi
    if [ -n "${_GPUENV_OLD_NAME:-}" ]; then CONDA_DEFAULT_ENV="$_GPUENV_OLD_NAME"; else unset CONDA_DEFAULT_ENV; fi
    if [ -n "${_GPUENV_OLD_PYTHONHOME:-}" ]; then PYTHONHOME="$_GPUENV_OLD_PYTHONHOME"; export PYTHONHOME; fi
    if [ -n "${_GPUENV_OLD_PS1:-}" ]; then PS1="$_GPUENV_OLD_PS1"; fi
    unset _GPUENV_OLD_PATH _GPUENV_OLD_PREFIX _GPUENV_OLD_NAME _GPUENV_OLD_PYTHONHOME _GPUENV_OLD_PS1
    unset -f deactivate _gpuenv_source
    hash -r 2>/dev/null || :
}
_GPUENV_OLD_PATH="$PATH"
_GPUENV_OLD_PREFIX="${CONDA_PREFIX:-}"
_GPUENV_OLD_NAME="${CONDA_DEFAULT_ENV:-}"
_GPUENV_OLD_PYTHONHOME="${PYTHONHOME:-}"
PATH=@prefix@/bin:"$PATH"; export PATH
CONDA_PREFIX=@prefix@; export CONDA_PREFIX
CONDA_DEFAULT_ENV=@prefix@; export CONDA_DEFAULT_ENV
unset PYTHONHOME
if [ -n "${PS1:-}" ]; then _GPUENV_OLD_PS1="$PS1"; PS1="(@plain@) $PS1"; fi
hash -r 2>/dev/null || :
_gpuenv_source activate
