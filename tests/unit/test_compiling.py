"""Modules are compiled while wheels are fetched, as Python itself compiles them; a run that ends early leaves nothing."""

import importlib.util
import json
import marshal
import os
import py_compile
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rows import rows

from provision.errors import BuildError
from provision.model import LockedPackage
from provision.wheels import bytecode_cache, compile_bytecode

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
PROGRAM = Path(compile_bytecode.__file__).parents[1] / "probes" / "compile_bytecode.py"
ASK = (
    "--framework", "jax", "--device", "cpu", "--python", HERE, "--no-verify", "--with", "aa", "--with", "bb",
)  # fmt: skip
# What is small and what is worth a second start of the installer, on the scale of wheels made for tests.
CREATE = """
import sys
from provision import cli
from provision.wheels import compile_bytecode
compile_bytecode._SMALL, compile_bytecode._WORTH = 900_000, 900_000
sys.exit(cli.run(["create", *sys.argv[1:]]))
"""


def source(lines):
    return "".join(
        f"def f{i}(x, y=({i}, 'a')):\n    return [x + {i} for z in y if z]\n" for i in range(lines)
    )


@pytest.fixture
def begun(gpuenv, index):
    """A `create` that has compiled some of the small wheels' modules and waits for a large wheel."""
    index.tells_sizes = True
    index.add_plan(gpuenv("resolve", "--json", *ASK[:-5]).json)
    index.add("aa", "1.0", also={f"aa/m{i}.py": source(40) for i in range(300)})
    index.add("bb", "1.0", content="#" * 1_000_000, also={"bb/m.py": "x = 1\n"})
    index.faults["bb-1.0-py3-none-any.whl"] = "stalled"
    gpuenv.env |= {"PIP_INDEX_URL": index.url, "UV_COMPILE_BYTECODE": "1"}
    child = subprocess.Popen(
        [sys.executable, "-c", CREATE, *ASK], env=gpuenv.env, cwd=gpuenv.work,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert index.stalled.wait(300)
        until(lambda: compiled_ahead(gpuenv))
        yield child
    finally:
        index.released.set()
        child.kill()
        child.communicate(timeout=300)


def compiled_ahead(gpuenv):
    return [*gpuenv.work.glob(".*/lib/*/site-packages/aa/__pycache__/*.pyc")]


def until(there, seconds=300):
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end
        time.sleep(0.01)


def at_work(folder, program=""):
    """The nice values of processes on whose command line a folder is named, and a program."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = os.fsdecode((process / "cmdline").read_bytes())
            nice = int((process / "stat").read_text().rpartition(")")[2].split()[16])
        except OSError:
            continue  # it ended meanwhile
        if str(folder) in line and program in line:
            found.add(nice)
    return found


def test_what_is_compiled_ahead_takes_no_time_from_others(begun, gpuenv):
    assert at_work(gpuenv.work, "compile_bytecode.py") == {19}


@pytest.mark.parametrize("compiled", [1, 301], ids=["while it compiles", "when it has compiled"])
def test_small_wheels_are_compiled_while_a_large_one_is_fetched(begun, gpuenv, index, compiled):
    until(lambda: len(compiled_ahead(gpuenv)) >= compiled, 300)
    index.faults.clear()
    index.released.set()
    _, err = begun.communicate(timeout=300)
    assert begun.returncode == 0, err
    (site,) = (gpuenv.work / ".venv").glob("lib/*/site-packages")
    modules = [p for p in site.rglob("*.py") if p.parent != site]  # virtualenv puts one there
    lacking = [p for p in modules if not py_compile_name(p).exists()]
    assert len(modules) > 100 and not lacking and not [*site.rglob("*.new")]
    (count,) = [int(line.split()[2]) for line in err.splitlines() if "compiling" in line]
    assert count <= len(modules) - compiled
    shelf = gpuenv.folder / "cache/gpuenv/compiled"
    assert not [*shelf.glob("*/.*")]
    kept = next(p for p in shelf.glob("*/*/index.json") if "aa/m0.py" in p.read_text())
    assert len(json.loads(kept.read_text())) == 301 and None not in json.loads(kept.read_text()).values()
    second = gpuenv("create", "second", *ASK)
    assert second.code == 0 and "compiling" not in second.err, "all of it was kept"


def py_compile_name(path):
    return path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_while_it_compiles_leaves_no_process_and_no_draft(begun, gpuenv, number):
    begun.send_signal(number)
    _, err = begun.communicate(timeout=300)
    assert begun.returncode in (130, 143), err
    until(lambda: not at_work(gpuenv.work))
    assert not [*gpuenv.work.iterdir()]
    assert not [p for p in (gpuenv.folder / "cache/gpuenv").rglob("*") if p.suffix == ".pyc"]


def test_a_run_that_is_killed_while_it_compiles_leaves_no_process(begun, gpuenv):
    assert at_work(gpuenv.work, "compile_bytecode.py")
    begun.kill()
    until(lambda: not at_work(gpuenv.work))


def test_a_wheel_that_is_refused_ends_what_is_compiled_beside_it(begun, gpuenv, index):
    index.add("bb", "1.0", content="import os  # not what was locked\n")
    index.released.set()
    _, err = begun.communicate(timeout=300)
    assert begun.returncode == 7 and "bb" in err, err
    assert not at_work(gpuenv.work) and not [*gpuenv.work.iterdir()]


def run(jobs, *words):
    return subprocess.run(
        [sys.executable, "-I", "-S", PROGRAM, *words], input=json.dumps(jobs), capture_output=True, text=True, check=False,
        start_new_session=True,  # the word `idle` slows down the whole session
    )  # fmt: skip


@pytest.mark.parametrize("words", [(), ("idle",)])
def test_what_is_compiled_is_what_python_compiles(tmp_path, words):
    texts = [*Path(os.__file__).parent.glob("*.py")][:40]
    files = [tmp_path / p.name for p in texts]
    for file, text in zip(files, texts, strict=True):
        file.write_bytes(text.read_bytes())
        file.chmod(0o444)
    jobs = [(str(p), str(tmp_path / "a" / f"{p.name}c"), str(tmp_path / "b" / f"{p.name}c")) for p in files]
    done = run(jobs, *words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for file, (_, ours, kept) in zip(files, jobs, strict=True):
        mine, theirs = Path(ours).read_bytes(), Path(py_compile.compile(str(file))).read_bytes()
        assert mine[:16] == theirs[:16] and marshal.loads(mine[16:]) == marshal.loads(theirs[16:])
        assert Path(ours).stat().st_mode == py_compile_name(file).stat().st_mode
        assert Path(kept).read_bytes() == mine and not Path(kept).samefile(ours)


def test_what_lies_in_the_way_is_replaced_and_never_written_through(tmp_path):
    (tmp_path / "m.py").write_text("x = 1\n")
    (tmp_path / "elsewhere").write_text("theirs\n")
    for name in ("m.pyc", "m.pyc.new"):
        os.link(tmp_path / "elsewhere", tmp_path / name)
    assert run([(str(tmp_path / "m.py"), str(tmp_path / "m.pyc"), "")]).returncode == 0
    assert (tmp_path / "elsewhere").read_text() == "theirs\n"
    assert (tmp_path / "m.pyc").read_bytes()[:4] == importlib.util.MAGIC_NUMBER
    assert not (tmp_path / "m.pyc.new").exists()


def test_what_cannot_be_compiled_is_passed_over(tmp_path):
    texts = {
        "template": "{{ x }",
        "nulls": "x = 1\0",
        "deep": "x = " + "(" * 5000,
        "coded": "# coding: nothing\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "good.py").write_text("x = 1\n")
    (tmp_path / "file").write_text("where a folder would have to be\n")
    jobs = [(str(tmp_path / f"{n}.py"), str(tmp_path / "c" / n), "") for n in (*texts, "missing", "good")]
    jobs.append((str(tmp_path / "good.py"), str(tmp_path / "file" / "good"), ""))
    done = run(jobs)
    assert (done.returncode, done.stderr) == (0, "")
    assert [p.name for p in (tmp_path / "c").iterdir()] == ["good"]


def test_a_full_disk_is_reported(tmp_path):
    (tmp_path / "m.py").write_text(source(2000))
    limit = "import resource, runpy; resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000)); import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)"
    job = json.dumps([(str(tmp_path / "m.py"), str(tmp_path / "m.pyc"), "")])
    program = f"{limit}; runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", program], input=job, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and done.stderr.startswith("[Errno 27] File too large"), done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["m.py"]


def test_an_unexpected_error_fails_with_its_traceback():
    done = run([["no job"]])
    assert done.returncode == 1 and "Traceback" in done.stderr and "one(job)" in done.stderr


def test_modules_that_cannot_be_written_fail_the_environment(tmp_path):
    with pytest.raises(BuildError, match="could not be compiled") as caught:
        bytecode_cache.compile_jobs([("/dev/null", "/proc/no/such", "")], Path(sys.executable))
    assert "/proc/no" in (caught.value.log or "")


def sized(*sizes):
    return tuple(LockedPackage(name=f"p{n}", version="1", url="", sha256="", size=n) for n in sizes)


@rows(
    ("sizes", "first"),
    [
        ((5_000_000, 900_000_000, 2_000_000), (5_000_000, 2_000_000)),
        ((5_000_000, 90_000_000), (5_000_000, 90_000_000)),
        ((900_000_000, 80_000_000), (900_000_000, 80_000_000)),
        ((None, 900_000_000, 1), (1,)),
        ((None, 5), (None, 5)),
    ],
)
def test_small_wheels_are_fetched_first_where_another_is_large(sizes, first):
    begun, rest = compile_bytecode.split_small_packages(sized(*sizes))
    assert tuple(p.size for p in begun) == first
    assert {*begun, *rest} == set(sized(*sizes)) and not set(begun) & set(rest)
