# >>> gpuenv >>> Where gpuenv is not on PATH, make env installs it from this address, wheel or folder.@warning@
GPUENV_FROM ?= @source@
GPUENV ?= $(shell command -v gpuenv >/dev/null && echo gpuenv || echo .gpuenv-tool/bin/gpuenv)
.PHONY: @targets@
@rules@
@targets@: $(filter .gpuenv-tool/%,$(GPUENV))
.gpuenv-tool/bin/gpuenv: ; @$(if $(shell f='$(GPUENV_FROM)'; case "$$f" in (*://*) echo y;; (*/*) test -e "$${f%%\[*}" && echo y;; esac),,$(error gpuenv is not on PATH, and GPUENV_FROM='$(GPUENV_FROM)' is no address, wheel or folder here: run make $(MAKECMDGOALS) GPUENV_FROM=ADDRESS)) \
  (trap '' INT; python3 -m venv .gpuenv-tool) && echo '*' > .gpuenv-tool/.gitignore \
  && .gpuenv-tool/bin/pip install -q --no-deps '$(GPUENV_FROM)' && .gpuenv-tool/bin/pip install -q --require-hashes --only-binary :all: \
  -r .gpuenv-tool/lib/python3*/site-packages/provision/release/requirements$(if $(findstring [conda],$(GPUENV_FROM)),-conda).txt || { rm -rf .gpuenv-tool; exit 1; }
