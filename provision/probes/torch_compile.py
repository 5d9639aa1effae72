"""The check `compile`: runs torch.compile of a small function, and reports what its compilers need.

The caches of torch and Triton are empty folders, so that the compilers really run. A failure is also printed,
as its user would see it.
"""

import shutil
import sysconfig
import traceback


def needs(device):
    """Return what the compilers need: programs of which one must exist, and the folder of Python.h."""
    c = [os.environ["CC"]] if os.environ.get("CC") else ["gcc", "clang"]  # as Triton looks for it
    cxx = [os.environ.get("CXX") or "g++"]  # as torch looks for it, on the CPU
    scheme = "posix_prefix" if os.name == "posix" else None
    include = sysconfig.get_path("include", scheme) if scheme else sysconfig.get_path("include")
    programs = c if device == "cuda" else cxx
    return {
        "compilers": programs,
        "compiler": next((p for p in (shutil.which(name.split()[0]) for name in programs) if p), None),
        "include": include,
        "headers": os.path.isfile(os.path.join(include, "Python.h")),
    }


def function(torch, x):
    return torch.nn.functional.gelu(x * 2 + 1).sum(dim=-1)


def main():
    begin("checks", "importing torch")
    import torch

    device = "cuda" if ASKED["device"] != "cpu" and torch.cuda.is_available() else "cpu"
    tell("needs", device=device, python="%d.%d" % sys.version_info[:2], **needs(device))
    begin("checks", "compiling a function for %s" % device)
    x = torch.linspace(-2, 2, 64).reshape(8, 8).to(device)
    found = torch.compile(lambda x: function(torch, x))(x)
    error = float((found - function(torch, x)).abs().max())
    tell("compiled", device=device, max_error=error, ok=error < 1e-3)
    finish()


try:
    main()
except Exception:
    traceback.print_exc()
    _flush()
    os._exit(1)
