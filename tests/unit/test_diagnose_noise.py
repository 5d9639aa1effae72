"""diagnose: the whole of a log, with what terminals, containers, schedulers and notebooks add to it."""

import log_noise
import pytest
from diagnosed import causes, found
from known import KNOWN
from log_noise import HARMLESS, KINDS, wrapped
from rows import rows, sampled

from provision.diagnose.lines import read_log, unwrap

EXAMPLES = [(r.name, r.example) for r in KNOWN.failures] + [(r.name, r.says[0]) for r in KNOWN.catalogue]


def said(text):
    return [f.cause for f in found(*text.splitlines())]


@pytest.mark.parametrize("seed", sampled(range(4), 4))
def test_noise_changes_the_first_cause_of_two_in_a_hundred_at_most(seed):
    examples = EXAMPLES[seed::4]
    plain = [said(text)[:1] for _, text in examples]
    noisy = [said(wrapped(text, seed * 1000 + i))[:1] for i, (_, text) in enumerate(examples)]
    changed = [name for (name, _), a, b in zip(examples, plain, noisy, strict=True) if a != b]
    assert len(changed) <= 0.02 * len(examples), changed


@rows("line", HARMLESS)
def test_a_line_that_is_always_printed_says_nothing(line):
    assert causes(line) == []
    assert causes(*HARMLESS[:6], line, "Training finished, accuracy 0.98") == []


@pytest.mark.parametrize(
    ("raised", "cause"),
    [
        ("ValueError: bad batch size", None),
        ("ModuleNotFoundError: No module named 'foo'", "python_package_missing"),
        ("ImportError: libgomp.so.1: cannot open shared object file: No such file or directory", "system_library_missing"),
    ],
)  # fmt: skip
def test_a_library_of_which_a_program_only_warned_is_not_what_ended_it(raised, cause):
    warned = "Warning: no optional backend: libgomp.so.1: cannot open shared object file: No such file or directory"
    trace = ("Traceback (most recent call last):", '  File "train.py", line 10, in <module>', "    main()")
    found = causes(warned, "step 1 loss 0.3", *trace, raised)
    assert found[:1] == ([cause] if cause else [])


@rows("kind", KINDS)
def test_prefixes_of_log_wrappers_are_removed(kind):
    lines = [
        "Traceback (most recent call last):",
        'File "train.py", line 3, in <module>',
        "A module that was compiled using",
        "NumPy 1.x cannot be run in NumPy 2.0.0",
    ]
    generator = log_noise.random.Random(7)
    assert "numpy_abi" in causes(*KINDS[kind](lines, generator))


def bare(*lines):
    return [line.text for line in unwrap(read_log("-", ["\n".join(lines).encode()]))]


def test_evidence_keeps_the_number_of_its_line():
    log = ["0: step 1", "3: OMP: Error #15: Initializing libiomp5.so", "0: step 2", "3: ended"]
    finding = found(*log)[0]
    assert (finding.evidence[0].line, finding.evidence[0].text) == (
        2,
        "OMP: Error #15: Initializing libiomp5.so",
    )


def test_two_wrappers_around_each_other_are_taken_off():
    lines = [f"2024-05-01T10:00:0{i}.000000001Z [rank0]: line {i}" for i in range(5)]
    assert bare(*lines) == [f"line {i}" for i in range(5)]


@rows(
    "lines",
    [
        ("1: one", "two words", "three", "four"),
        ("| GPU | Name |", "| 0 | T4 |", "| 1 | T4 |"),
        ("error: a", "b", "c"),
        ('{"log": 3}', "{x}", '{"a": "b"}'),
        ("ERROR: only", "two"),
        (
            "2024-05-01 10:00:00.000001: E tensorflow/a.cc:1] x",
            "2024-05-01 10:00:00.000002: W tensorflow/b.cc:2] y",
            "z",
        ),
    ],
)
def test_a_prefix_that_few_lines_have_is_the_program_s_own(lines):
    assert bare(*lines) == list(lines)
