@from='$(GPUENV_FROM)'; case "$$from" in *://*) ;; */*) test -e "$${from%%\[*}" ;; *) false ;; esac || { echo "gpuenv is not on PATH, and GPUENV_FROM='$$from' is neither an address nor an existing path: run make GPUENV_FROM=ADDRESS with the address or path of a wheel or checkout" >&2; exit 1; }
(trap '' INT; python3 -m venv .gpuenv-tool)
@echo '*' > .gpuenv-tool/.gitignore
.gpuenv-tool/bin/pip install --quiet --disable-pip-version-check --no-deps '$(GPUENV_FROM)'
.gpuenv-tool/bin/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r .gpuenv-tool/lib/python3*/site-packages/provision/release/requirements$(if $(findstring [conda],$(GPUENV_FROM)),-conda).txt
