# Activates the conda environment @plain@. `deactivate` undoes it.
if ( $?_gpuenv_old_path ) then
    source "$_gpuenv_leave"
endif
set _gpuenv_leave = @prefix@/bin/deactivate.csh
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
setenv PATH @prefix@/bin:"$PATH"
setenv CONDA_PREFIX @prefix@
setenv CONDA_DEFAULT_ENV @prefix@
unsetenv PYTHONHOME
alias deactivate 'source "$_gpuenv_leave"'
set _gpuenv_folder = @prefix@/etc/conda/activate.d
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
