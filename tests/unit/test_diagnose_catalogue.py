"""The catalogue of the programs' own messages: each leads to its cause, and no rule quotes a single thread."""

import dataclasses
import re

from diagnosed import causes, found
from known import KNOWN
from packaging.version import Version
from rows import rows

from provision.diagnose.rules import find_mistakes
from provision.model import CatalogueMessage

SLOTS = {"#": "12", "{v}": "3.7", "{w}": "name", "...": " x "}
SPELLINGS = [(row, says) for row in KNOWN.catalogue for says in row.says]


def printed(pattern):
    """A pattern as a program prints it."""
    for slot, value in SLOTS.items():
        pattern = pattern.replace(slot, value)
    return pattern


@rows(("row", "says"), SPELLINGS, ids=lambda x: x if isinstance(x, str) else x.name)
def test_a_catalogue_message_has_its_cause_among_the_first_three(row, says):
    first = causes(printed(says))[:3]
    assert row.causes[0] in first, first


@rows("row", [r for r in KNOWN.catalogue if r.code], ids=lambda r: r.name)
@rows(
    "form",
    ["cudaGetDeviceCount() returned {}", "CUDA error {}", "cuInit failed: {}", "CUDA error code={}(unnamed)"],
)
def test_an_error_by_its_number_has_its_cause_among_the_first_three(row, form):
    first = causes(form.format(row.code))[:3]
    assert row.causes[0] in first, first


@rows(
    "line",
    [
        "cuda memory: 2 MiB used",
        "CUDA device 3: no errors",
        "epoch 3, cuda failures: 0",
        "cudaMalloc took 35 ms",
        "CUDA error rate 0.02",
        "0 CUDA errors in 100 runs",
    ],
)
def test_a_number_beside_cuda_is_no_error(line):
    assert causes(line) == []


def test_a_rule_comes_before_the_catalogue():
    """The row of the stub names one cause; what the text says of it is said by a rule, with certainty."""
    first = found("RuntimeError: CUDA error: CUDA driver is a stub library")[0]
    assert (first.cause, first.confidence) == ("cuda_stub_library_loaded", "certain")


def test_a_message_that_only_the_catalogue_has_is_a_candidate():
    first = found("pynvml.NVMLError_CorruptedInforom: Corrupted infoROM")[0]
    assert (first.cause, first.confidence) == ("gpu_hardware_fault", "likely")
    assert first.evidence[0].line == 1


def test_a_wrong_row_of_the_catalogue_is_named():
    row = CatalogueMessage(name="n", program="p", says=("..",), causes=("x",), releases="1", source="s")
    assert len(find_mistakes(dataclasses.replace(KNOWN, catalogue=(row,)))) == 2


def find_problem(releases, absent):
    """What is wrong with the releases of a row: a moving name, or an absent release within the range."""
    if re.search(r"\b(?:main|master|latest)\b", releases):
        return "`releases` names a branch"
    if absent and releases == "unknown":
        return "`releases` must name a release with it"
    having = [Version(v) for v in re.findall(r"\d+(?:\.\d+)+(?:-\d+)?", releases)] if absent else []
    within = [a for a in absent if not having or min(having) <= Version(a) <= max(having)]
    return f"`absent` names {within[0]!r}, which is one of `releases`" if within else None


def test_the_releases_of_our_rows_were_read():
    assert [r.name for r in KNOWN.catalogue if find_problem(r.releases, r.absent)] == []


def test_most_rows_of_frameworks_have_bounds():
    """A row without a release says so; where its neighbours were read, they are named."""
    rows = [r for r in KNOWN.catalogue if r.program in ("PyTorch", "TensorFlow", "JAX", "NCCL")]
    assert sum(r.releases == "unknown" for r in rows) < 5
    assert sum(bool(r.absent) for r in rows) > len(rows) / 2


def test_each_row_names_its_program_releases_and_source():
    for row in KNOWN.catalogue:
        assert row.program and row.releases and row.source, row
    assert {"CUDA", "cuDNN", "NCCL", "PyTorch", "TensorFlow", "JAX", "ONNX Runtime", "glibc", "pip", "kubelet", "WSL",
            "NVIDIA Container Toolkit", "slurmstepd"} <= {r.program for r in KNOWN.catalogue}  # fmt: skip


def test_the_numbers_are_searched_in_bounded_time():
    assert not causes(("cudaa" * 700 + " ") * 50)


# --- no rule is of one thread -------------------------------------------------------------------

OF_ONE_THREAD = (
    (
        re.compile(r"/(?:home|users|root|mnt|media|scratch|data|tmp)/(?!ipython-input)\w", re.IGNORECASE),
        "a path of one machine",
    ),
    (re.compile(r"[a-z]:\\users\\\w+\\", re.IGNORECASE), "a path of one machine"),
    (re.compile(r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b"), "an address"),
    (re.compile(r"\b(?:pid|line|thread|block|rank|step|epoch)[ =:]\d", re.IGNORECASE), "a number of one run"),
    (re.compile(r"\.(?:cc|cpp|cu|h|py|c):\d"), "a line of one release's source"),
    (re.compile(r"0x[0-9a-f]{3,}", re.IGNORECASE), "an address in memory"),
    (re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d"), "a time"),
    (re.compile(r"(?<![\w.-])\d{5,}(?![\w.])"), "a number of one run"),
    (re.compile(r"\d+(?:\.\d+)? ?(?:[kmg]i?b\b|bytes)", re.IGNORECASE), "a size of one run"),
    (re.compile(r"\d{1,3}\.\d{2,3}\.\d{2}\b"), "a driver of one machine"),
)
PATTERNS = [(m.name, s) for m in KNOWN.messages for s in m.says] + [
    (r.name, s) for r in (*KNOWN.failures, *KNOWN.catalogue) for s in r.says
]


def test_no_pattern_quotes_a_single_thread():
    quoted = [
        f"{name}: {says!r} has {what}"
        for name, says in PATTERNS
        for form, what in OF_ONE_THREAD
        if form.search(says)
    ]
    assert quoted == []


@rows(
    "says",
    [
        "/home/ann/venv fails",
        "C:\\Users\\ann\\x failed",
        "cuda_dnn.cc:439 failed",
        "failed at 0x7f12ab",
        "pid 4711 failed",
    ],
)
def test_what_a_single_thread_says_is_recognised(says):
    assert any(form.search(says) for form, _ in OF_ONE_THREAD)


def test_no_rule_depends_on_one_exact_build():
    """A rule may want a range of releases; an exact one only where that release itself is the known fault."""
    exact = {r.name for r in KNOWN.failures for w in r.wants if "==" in w and "*" not in w}
    assert exact <= {r.name for r in KNOWN.failures if r.cause == "framework_bug_upgrade"}
