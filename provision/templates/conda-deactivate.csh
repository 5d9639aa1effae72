# Deactivates the conda environment @plain@.
set _gpuenv_folder = @prefix@/etc/conda/deactivate.d
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
