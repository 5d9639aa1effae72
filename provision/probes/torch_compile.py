"""The check `compile`, and an operation of --deep: torch.compile of a small function.

The caches of torch and Triton are empty folders, so that the compilers really run. A failure is also printed,
as its user would see it.
"""

import sysconfig
import traceback


def main():
    for variable in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        os.environ[variable] = os.path.join(os.getcwd(), variable)
    begin("operations", "importing torch")
    import torch

    device = "cuda" if ASKED["device"] != "cpu" and torch.cuda.is_available() else "cpu"
    include = sysconfig.get_path("include", "posix_prefix")
    tell("needs", device=device, python="%d.%d" % sys.version_info[:2], include=include)
    begin("operations", "compiling a function for %s" % device)
    x = torch.linspace(-2, 2, 64).reshape(8, 8).to(device)

    def function(x):
        return torch.nn.functional.gelu(x * 2 + 1).sum(dim=-1)

    error = float((torch.compile(function)(x) - function(x)).abs().max())
    tell("operation", case="compile", error=error, tolerance=1e-3, ok=error < 1e-3)
    finish()


try:
    main()
except Exception as error:
    traceback.print_exc()
    tell_failure("operations", error)
    _flush()
    os._exit(1)
