"""diagnose with any text at all: encodings, junk, sizes, and the worst cases for time and memory."""

import random
import re
import sys
import time

import pytest
from diagnosed import causes, findings_of
from hypothesis import given, strategies as st
from known import KNOWN
from programs import run_program
from rows import rows, sampled

from provision.diagnose import lines
from provision.diagnose.lines import BETWEEN, LINES, read_log
from provision.system.redaction import clean

OMP = "OMP: Error #15: Initializing libiomp5md.dll, but found libiomp5md.dll already initialized."


@rows(
    "data",
    [
        OMP.encode("utf-16"),
        OMP.encode("utf-16-le"),
        OMP.encode("utf-16-be"),
        b"\xef\xbb\xbf" + OMP.encode(),
        OMP.replace(" ", "\x1b[31m \x1b[0m").encode(),
        b"\r\n".join([b"a", OMP.encode(), b"b"]),
        b"1%\r2%\r3%\r" + OMP.encode() + b"\r100%\n",
        bytes(range(256)) * 40 + b"\n" + OMP.encode() + b"\n" + bytes(range(256)) * 40,
        b"[rank1]: Traceback\n[rank0]: " + OMP.encode() + b"\n[rank1]: KeyError",
        b"x" * 5000 + b"\n" + OMP.encode(),
        b"started\n" * 3 + f"{OMP}\r\n".encode("utf-16-le") + b"ended\n",
        random.Random(2).randbytes(300_000)
        + b"\n"
        + f"{OMP}\r\n".encode()
        + random.Random(5).randbytes(300_000),
    ],
)
def test_a_message_is_found_in_any_kind_of_log(data):
    assert [f.cause for f in findings_of([("-", [data])], KNOWN, None)] == ["duplicate_openmp_runtime"]
    pieces = [data[i : i + 7] for i in range(0, len(data), 7)]
    assert [f.cause for f in findings_of([("-", pieces)], KNOWN, None)][:1] == ["duplicate_openmp_runtime"]


def test_a_message_that_is_broken_over_two_lines_is_found():
    assert causes("A module that was compiled using", "NumPy 1.x cannot be run in NumPy 2.0.0") == [
        "numpy_abi"
    ]


def test_the_middle_of_a_long_log_is_read_as_utf_16_too_and_each_shape_kept_once():
    """PowerShell's `>>` appends UTF-16 to a log of bytes."""
    text = "quiet\r\n" * 400 + "".join(f"step {n}: CUDA out of memory\r\n" for n in range(3))
    for encoding in ("utf-8", "utf-16-le"):
        kept = lines._Kept("-")
        for number in (1, 500):
            lines._keep_stems(kept, number, text.encode(encoding))
        assert [(x.number, x.text) for x in kept.lines.values()] == [(401, "step 0: CUDA out of memory")]


def test_lines_between_junk_are_found_where_they_are():
    """A log into which a checkpoint was printed: the lines before, in and after it, with their numbers."""
    said = b"\nRuntimeError: CUDA error: invalid device ordinal\n"
    junk = random.Random(4).randbytes(3 << 20)
    data = junk[: 1 << 20] + said + junk[1 << 20 :] + b"\n" * 3
    lines = read_log("-", [data[i : i + 70_001] for i in range(0, len(data), 70_001)])
    [line] = [x for x in lines if "ordinal" in x.text]
    assert line.number == data[: data.index(b"ordinal")].count(b"\n") + 1
    assert line.text == said.decode().strip()


@rows("words", ["ошибка: CUDA error: device-side assert", "错误: CUDA error 内存不足" * 3])
def test_words_of_any_script_are_no_junk(words):
    """Most bytes of such a log are not ASCII; its lines are kept as they are."""
    data = (
        "обучение, шаг: потери уменьшаются 训练步骤\n" * 15_000 + f"{words}\n" + "шаг 训练\n" * 15_000
    ).encode()
    assert words in [x.text for x in read_log("-", [data])]


@rows("place", [0.0, 0.5, 1.0])
def test_a_message_anywhere_in_a_long_log_is_found_with_its_line(place):
    rows = [f"step {i} gpu mem 3.1G loss 0.{i}" for i in range(40_000)]
    at = int(place * len(rows))
    rows.insert(at, "RuntimeError: CUDA error: invalid device ordinal")
    data = "\n".join(rows).encode()
    finding = findings_of([("-", [data[i : i + 65536] for i in range(0, len(data), 65536)])], KNOWN, None)[0]
    assert (finding.cause, finding.evidence[0].line) == ("visible_devices_invalid", at + 1)


@pytest.mark.parametrize(
    "secret",
    sampled(
        [
            "https://me:hunter2x@host/",
            "DB_PASS='aa hunter2x bb'",
            "curl -u me:hunter2x ",
            "password hunter2x ",
        ],
        2,
    ),
)
def test_a_secret_that_begins_before_the_part_of_a_long_line_is_not_shown(secret):
    said = "RuntimeError: CUDA error: invalid device ordinal"
    for filler in range(2000 - len(secret), 2002, 3):
        row = f"{'q' * 5000} {secret}{'y' * filler} {said} {'z' * 3000}\n"
        data = b"start\n" * 50_000 + row.encode() + b"end\n" * 70_000
        texts = [x.text for x in read_log("-", [data])]
        assert [text for text in texts if said in text]
        assert not [text for text in texts if "2x" in clean(text)]


WORST = [
    b"CUDA capability sm_80 " * 40_000,
    b"sm_80, " * 100_000,
    b"driver version: " * 50_000,
    b"could not load libcudnn" * 40_000,
    b"\x1b[0" * 200_000,
    b"\x1b]" * 200_000,
    b"libcudart.so.1.1.1.1.1.1" * 30_000,
    b"/a/a" * 200_000 + b"/libcudnn.so",
    b"torch" + b" " * 800_000 + b"1.8",
    b"jax 1.1.1.1 " * 60_000,
    b"GPU\r" * 200_000,
    (b"a" * 60 + b"key: " + b"v" * 300 + b"\n") * 2_000,
    b"CUDA_VISIBLE_DEVICES=" * 40_000,
    b"undefined symbol: " * 40_000,
    (b"rtx gtx tesla quadro titan rtx " * 20 + b"\n") * 1_200,
]


@rows("data", WORST, ids=lambda d: repr(d[:20]))
def test_no_input_takes_long(data):
    findings_of([("-", [b"x"])], KNOWN, None)  # patterns are compiled once
    started = time.process_time()
    findings_of([("-", [data])], KNOWN, None)
    assert (
        time.process_time() - started < 10
    )  # a tenth of a second; a square of the length would take an hour


PIECES = st.sampled_from(
    [
        *sorted({w for m in KNOWN.messages for s in m.says for w in re.split(r"\W+", s) if w}),
        "CUDA",
        "sm_80",
        "driver: 535.54.03",
        "torch==2.1.0+cu121",
        "gpu: RTX 3090",
        "libcudnn.so.8",
        "\n",
        "\r",
        "\x1b[1m",
        "\x00",
        ":",
        "[[",
    ]
)


@given(st.lists(PIECES, max_size=60).map(" ".join) | st.text(max_size=300))
def test_any_text_is_read_and_each_finding_has_a_fix(words):
    for finding in findings_of([("-", [words.encode("utf-8", "replace")])], KNOWN, None):
        assert finding.evidence and finding.fix


@given(st.binary(max_size=4000), st.integers(1, 50))
def test_any_bytes_are_read_without_an_error(data, size):
    findings_of([("-", [data[i : i + size] for i in range(0, len(data), size)])], KNOWN, None)


@rows(("count", "width"), [(1001, 12), (1501, 50), (2500, 70), (4000, 40), (4000, 90)])
def test_a_log_of_many_short_lines_loses_none_that_says_a_cause(count, width):
    """Its first lines end before the part of the log that is read whole."""
    for at in (0, 999, 1000, count // 2, count - 1):
        lines = [f"step {i}".ljust(width, ".") for i in range(count)]
        lines[at] = f"RuntimeError: CUDA error: invalid device ordinal {at}"
        kept = {x.number: x.text for x in read_log("-", ["\n".join(lines).encode()])}
        assert kept.get(at + 1) == lines[at]
        assert lines[-1] == kept[count]


def test_memory_and_lines_kept_are_bounded():
    generator = random.Random(1)
    block = b"".join(b"cuda error %x gpu cannot open\n" % generator.getrandbits(200) for _ in range(15_000))
    assert len(read_log("-", [block] * 30)) <= 2 * LINES + BETWEEN


def _rows(make, count=20_000):
    return b"".join(make(i) for i in range(count))


BIG = {
    "progress": lambda: _rows(
        lambda i: b"Epoch %d/100 step %d loss: 0.%04d [==>...] - ETA: 12s\n" % (i % 100, i, i % 9999)
    ),
    "junk": lambda: random.Random(3).randbytes(3_000_000),
    "junk and lines": lambda: _rows(
        lambda i: random.Random(i).randbytes(40_000) + b"\nWARNING: CUDA %d\n" % i, 75
    ),
    "bars": lambda: _rows(lambda i: b"\r%3d%%|####    | %d/20000 [00:10<00:20, 99.1it/s]" % (i % 100, i)),
    "colours": lambda: _rows(lambda i: b"\x1b[32mINFO\x1b[0m step %d \x1b[33mloss\x1b[0m 0.%d\n" % (i, i)),
    "one line": lambda: b"TWFuIGlzIGRpc3Rpbmd1aXNoZWQ" * 40_000,
    "utf-16": lambda: _rows(lambda i: f"step {i} loss 0.{i}\r\n".encode("utf-16-le")),
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "megabytes"), [("progress", 20), *((kind, 100) for kind in BIG)])
def test_a_large_log_takes_at_most_20_times_as_long_as_wc(gpuenv, kind, megabytes):
    path = gpuenv.work / "big.log"
    rows = BIG[kind]()
    last = "\nRuntimeError: CUDA error: invalid device ordinal\n"
    path.write_bytes(
        rows * (megabytes * 1_000_000 // len(rows))
        + last.encode("utf-16-le" if kind == "utf-16" else "ascii")
    )
    argv = [sys.executable, "-m", "provision", "diagnose", str(path), "--no-machine"]
    small = gpuenv.work / "small.log"
    small.write_text(last)
    start = cost([*argv[:4], str(small), argv[5]], gpuenv)[0]  # as slow as the machine is now
    allowed = 20 * cost(["wc", "-l", str(path)], gpuenv)[0] + 1 + start
    taken, kilobytes = cost(argv, gpuenv)
    assert kilobytes < 150_000
    assert taken < allowed


def cost(argv, gpuenv):
    """Seconds of processor and kilobytes of memory that a program takes, the best of two: other work on the
    machine is nobody's fault here."""
    measure = "import resource, subprocess, sys\nsubprocess.check_call(sys.argv[1:], stdout=subprocess.DEVNULL)\nused = resource.getrusage(resource.RUSAGE_CHILDREN)\nprint(used.ru_utime + used.ru_stime, used.ru_maxrss)"
    runs = []
    for _ in range(2):
        done = run_program(
            [sys.executable, "-c", measure, *argv], env=gpuenv.env, cwd=gpuenv.work, check=True
        )
        runs.append(tuple(map(float, done.stdout.split())))
    return min(runs)
