# >>> gpuenv >>> installed from GPUENV_FROM (an address, a wheel or a checkout) where it is not on PATH
GPUENV_FROM ?= @source@
GPUENV ?= $(shell command -v gpuenv >/dev/null && echo gpuenv || echo .gpuenv-tool/bin/gpuenv)
.PHONY: @targets@
@rules@
@targets@: $(filter .gpuenv-tool/%,$(GPUENV))
.gpuenv-tool/bin/gpuenv: ; @$(if $(findstring /,$(GPUENV_FROM)),,$(error gpuenv is not on PATH, and GPUENV_FROM='$(GPUENV_FROM)' is no address or path: run make GPUENV_FROM=ADDRESS)) \
  (trap '' INT; python3 -m venv .gpuenv-tool) && echo '*' > .gpuenv-tool/.gitignore \
  && .gpuenv-tool/bin/pip install -q --no-deps '$(GPUENV_FROM)' && .gpuenv-tool/bin/pip install -q --require-hashes --only-binary :all: \
  -r .gpuenv-tool/lib/python3*/site-packages/provision/release/requirements$(if $(findstring [conda],$(GPUENV_FROM)),-conda).txt || { rm -rf .gpuenv-tool; exit 1; }
