"""The capabilities that PyTorch 2.11 and newer list for a GPU that they do not support."""

from diagnosed import causes, found
from rows import rows

UNSUPPORTED = """torch/cuda/__init__.py:435: UserWarning:
    Found GPU0 {} which is of compute capability (CC) {}.
    The following list shows the CCs this version of PyTorch was built for and the hardware CCs it supports:
    - 7.5 which supports hardware CC >=7.5,<8.0
    - 8.0 which supports hardware CC >=8.0,<9.0
    - 10.0 which supports hardware CC >=10.0,<11.0"""


@rows(
    ("board", "capability", "cause"),
    [
        ("Tesla V100-SXM2-16GB", "7.0", "arch_dropped_too_old"),
        ("NVIDIA GeForce RTX 5090", "12.0", "arch_not_in_wheel_too_new"),
    ],
)
def test_the_list_of_new_releases_of_torch_decides(board, capability, cause):
    """PyTorch 2.11 and newer name each capability on a line of its own."""
    first = found(*UNSUPPORTED.format(board, capability).splitlines())[0]
    assert (first.cause, first.confidence) == (cause, "certain")
    assert "7.5 8.0 10.0" in first.title


@rows(
    "line",
    [
        "Your installed torch==2.12.0+cu130 does not include kernels for this GPU.",
        "No published PyTorch CUDA builds for release 2.12.0 support this GPU.",
    ],
)
def test_one_line_of_that_list_leaves_two_causes(line):
    assert set(causes(line)[:2]) == {"arch_dropped_too_old", "arch_not_in_wheel_too_new"}
