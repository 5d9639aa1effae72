# Activates the conda environment @plain@. `deactivate` undoes it.
if functions -q deactivate; and test -n "$_GPUENV_OLD_PATH$VIRTUAL_ENV"
    deactivate
end
set -g _GPUENV_OLD_PATH $PATH
set -g _GPUENV_OLD_PREFIX $CONDA_PREFIX
set -g _GPUENV_OLD_NAME $CONDA_DEFAULT_ENV
set -g _GPUENV_OLD_PYTHONHOME $PYTHONHOME
set -gx PATH @prefix@/bin $PATH
set -gx CONDA_PREFIX @prefix@
set -gx CONDA_DEFAULT_ENV @prefix@
set -e PYTHONHOME
for _gpuenv_file in @prefix@/etc/conda/activate.d/*.fish
    source $_gpuenv_file
end
function deactivate
    for _gpuenv_file in @prefix@/etc/conda/deactivate.d/*.fish
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
