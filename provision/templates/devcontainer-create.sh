python3 -m venv ~/.gpuenv
@if wheel@
cp @sh:wheel@ ~/.gpuenv/
@end@
{ [ -n "$GPUENV_FROM" ] || GPUENV_FROM=@sh:gpuenv@; }
~/.gpuenv/bin/pip install --disable-pip-version-check --no-deps "$GPUENV_FROM"
~/.gpuenv/bin/pip install --disable-pip-version-check --require-hashes --only-binary :all: -r ~/.gpuenv/lib/python3*/site-packages/provision/release/@released@
mkdir -p ~/.local/bin
ln -sf ~/.gpuenv/bin/gpuenv ~/.local/bin/gpuenv
@if conda_cuda@
CONDA_OVERRIDE_CUDA=@sh:conda_cuda@ ~/.gpuenv/bin/gpuenv @sh:create@
@end@
@if not conda_cuda@
~/.gpuenv/bin/gpuenv @sh:create@
@end@
