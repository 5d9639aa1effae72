"""The door to other programs: real programs, real signals, real deadlines."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rows import rows

from provision.errors import UsageError
from provision.system import process
from provision.system.process import children, gpu

PY = sys.executable


def test_output_and_status_come_back():
    done = process.run([PY, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"])
    assert (done.returncode, done.stdout, done.stderr, done.ok) == (3, "out\n", "err\n", False)
    assert done.signal is None


@rows("seconds", [1e9, float("inf")])
def test_a_deadline_may_lie_beyond_all_clocks(seconds):
    assert process.run([PY, "-c", "pass"], timeout=seconds).ok


def test_a_signal_has_its_name():
    done = process.run([PY, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"])
    assert done.signal == "SIGSEGV"
    assert not done.timed_out


@rows(("number", "name", "end"), [(-signal.SIGKILL, "SIGKILL", None), (-40, "signal 40", 1), (3, None, None)])
def test_every_signal_has_a_name(number, name, end):
    assert children.signal_name(number) == name
    assert end is None or children.end_by_signal(name) == end


def test_a_call_in_a_fork_ends_with_its_answer_its_exception_or_a_signal(capfd):
    def fail(error):
        raise error

    assert children.call(lambda: "answer", 60) == children.Called("answer")
    assert children.call(lambda: os.kill(os.getpid(), signal.SIGKILL), 60).signal == "SIGKILL"
    with pytest.raises(ZeroDivisionError):
        children.call(lambda: fail(ZeroDivisionError()), 60)
    assert "in fail" in capfd.readouterr().err  # where it failed is known only there
    with pytest.raises(UsageError):
        children.call(lambda: fail(UsageError("told")), 60)
    assert capfd.readouterr().err == ""


IN_A_FORK = """
import os, signal
from provision.system import process
process.handle_signals()
os.register_at_fork(after_in_parent=lambda: [os.kill(os.getpid(), signal.SIG), [i for i in range(1000)]])
process.run(["sleep", "600"])
"""


EARLY = """
import os, signal
from provision.system.process import foreground
os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.SIGTERM))
print(foreground.attend(["sleep", "600"], os.environ).signal)
"""


def test_a_signal_before_the_program_runs_is_sent_on():
    assert process.run([PY, "-c", EARLY], timeout=300).stdout == "SIGTERM\n"


def test_a_process_that_ends_while_it_is_looked_at_has_no_context(monkeypatch):
    gone = 1 << 23  # above every limit of numbers
    number = os.open("/dev/null", os.O_RDONLY)
    (entry,) = [e for e in os.scandir("/proc/self/fd") if e.name == str(number)]
    os.close(number)
    assert not gpu._is_device(entry) and not gpu._opens_device(gone) and not gpu._has_context(gone)
    monkeypatch.setattr(os, "getpid", lambda: gone)
    assert gpu._list_family() == set()


def test_descendants_are_found_on_a_kernel_without_lists_of_children(monkeypatch):
    with subprocess.Popen(["sleep", "60"]) as child:
        assert child.pid in gpu._list_family()
        monkeypatch.setattr(gpu, "Path", lambda _: Path("/nonexistent"))
        assert child.pid in gpu._list_family()
        child.kill()


IN_A_CALLBACK = """
import os, signal, sys, time, weakref
from provision.system import process
class Thing: pass
def gone(_):
    os.kill(os.getpid(), signal.SIGNAL)
    [i for i in range(1000)]
process.handle_signals()
thing = Thing()
held = weakref.ref(thing, gone)
del thing
time.sleep(600)
"""


@rows(("name", "code"), [("SIGTERM", process.TERMINATED), ("SIGINT", -signal.SIGINT)])
def test_a_signal_that_comes_where_python_drops_exceptions_is_not_lost(name, code):
    began = time.monotonic()
    done = process.run([PY, "-c", IN_A_CALLBACK.replace("SIGNAL", name)], timeout=600)
    assert done.returncode == code
    assert time.monotonic() - began < 300
    assert "ignored" not in done.stderr


@rows(("name", "code"), [("SIGTERM", process.TERMINATED), ("SIGINT", -signal.SIGINT)])
def test_a_signal_that_comes_while_python_forks_is_not_lost(name, code):
    began = time.monotonic()
    done = process.run([PY, "-c", IN_A_FORK.replace("SIG,", f"{name},").replace("SIG)", f"{name})")])
    assert (done.returncode, time.monotonic() - began < 300) == (code, True)


IN_A_HOOK = """
import os, signal, sys
from provision.system import process
noted = []
def before():
    os.kill(os.getpid(), signal.SIGTERM)
    [i for i in range(1000)]
    noted.append(1)
if "signal" in sys.argv:
    process.handle_signals()
else:
    signal.signal(signal.SIGTERM, lambda *_: 1 / 0)
os.register_at_fork(before=before, after_in_parent=lambda: noted.pop())
process.run(["sleep", "30"], timeout=1)
"""


def test_a_hook_cut_short_by_a_signal_is_silent_and_other_errors_are_shown():
    done = process.run([PY, "-c", IN_A_HOOK, "signal"], timeout=300)
    assert (done.returncode, done.stderr) == (process.TERMINATED, "")
    done = process.run([PY, "-c", IN_A_HOOK, "none"], timeout=300)
    assert "ZeroDivisionError" in done.stderr and "IndexError" in done.stderr


SECOND_SIGNALS = """
import os, signal, time
from provision.system import process
class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        [i for i in range(1000)]
process.handle_signals()
for _ in range(50):
    Last()
time.sleep(600)
"""


def test_signals_in_a_row_that_python_drops_end_without_a_traceback():
    began = time.monotonic()
    done = process.run([PY, "-c", SECOND_SIGNALS], timeout=300)
    assert (done.returncode, done.stderr) == (process.TERMINATED, "")
    assert time.monotonic() - began < 300


MANY_SIGNALS = """
import time
from provision.system import process
class Last:
    def __del__(self):
        [i for i in range(100)]
process.handle_signals()
print("ready", flush=True)
until = time.monotonic() + 60
while time.monotonic() < until:
    Last()
"""


@rows("pause", [0, 0.003, 0.012])
def test_signals_at_every_moment_until_the_end_leave_the_exit_code_of_a_signal(pause):
    """The last ones meet a Python that has removed its handlers. The timer of `unwind` must not ring then."""
    for _ in range(10):
        argv = [PY, "-c", MANY_SIGNALS]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            assert child.stdout.readline() == b"ready\n"
            for _ in range(300):
                child.send_signal(signal.SIGTERM)
                time.sleep(pause)
                if child.poll() is not None:
                    break
            _, err = child.communicate(timeout=50)
        assert (child.returncode in (process.TERMINATED, -signal.SIGTERM), err) == (True, b"")


def test_a_deadline_ends_the_whole_family(tmp_path):
    mark = tmp_path / "number"
    code = (
        "import os, subprocess, time; child = subprocess.Popen(['sleep', '600']);"
        f"open({str(mark) + '-'!r}, 'w').write(str(child.pid)); os.rename({str(mark) + '-'!r}, {str(mark)!r}); time.sleep(600)"
    )

    def when_the_family_is_there():
        while not mark.exists():
            time.sleep(0.01)
        return ""

    began = time.monotonic()
    done = process.run([PY, "-c", code], timeout=0.2, stdin=when_the_family_is_there)
    assert done.timed_out
    assert time.monotonic() - began < 300
    end = time.monotonic() + 300
    while _runs(int(mark.read_text())):
        assert time.monotonic() < end
        time.sleep(0.01)


def _runs(number):
    """Whether a process is there and no zombie, which a container without an init keeps."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_report_has_a_descriptor_of_its_own():
    code = "import os; print('noise'); os.write(int(os.environ['MY_REPORT']), b'{}')"
    done = process.run([PY, "-c", code], report="MY_REPORT")
    assert done.report == b"{}"
    assert done.stdout == "noise\n"


def test_only_the_end_of_a_flood_is_kept():
    code = "import sys\nfor i in range(400000): sys.stdout.write('%09d\\n' % i)"
    done = process.run([PY, "-c", code])
    assert len(done.stdout) == process.KEEP
    assert done.stdout.endswith("000399999\n")


def test_lines_of_stderr_are_handed_on():
    lines = []
    process.run([PY, "-c", "import sys; sys.stderr.write('a\\rb\\nc')"], on_line=lines.append)
    assert lines == ["a", "b", "c"]


def test_stderr_can_be_a_terminal():
    code = "import os, sys; print(os.isatty(2), os.isatty(1), file=sys.stderr); os.write(2, b'x' * 150)"
    lines = []
    done = process.run([PY, "-c", code], terminal=True, on_line=lines.append)
    assert done.ok and [x for x in lines if x] == ["True False", "x" * 150]


def test_input_that_nobody_reads_is_no_error():
    done = process.run([PY, "-c", "pass"], stdin="x" * 10_000_000)
    assert done.ok


def test_a_missing_program_raises():
    with pytest.raises(FileNotFoundError):
        process.run(["/nonexistent/program"])


def test_no_descriptor_is_left_behind():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        process.run([PY, "-c", "pass"], report="R", terminal=True)
        with pytest.raises(FileNotFoundError):
            process.run(["/nonexistent/program"], report="R", terminal=True)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_replace_turns_this_process_into_the_other_program():
    code = "from provision.system import process; process.replace(['sh', '-c', 'echo $X; exit 7'], {'X': 'y', 'PATH': '/bin:/usr/bin'})"
    done = process.run([PY, "-c", code])
    assert (done.returncode, done.stdout) == (7, "y\n")


def test_a_child_is_given_its_stdin_once_there_is_something_to_give():
    """What is given may be worked out while the child runs; the child's own time begins then."""
    waited = []

    def later():
        time.sleep(0.5)
        waited.append(True)
        return "late"

    read = "import sys; sys.stdout.write(sys.stdin.read())"
    done = process.run([sys.executable, "-c", read], stdin=later, timeout=300)
    assert waited and done.ok and done.stdout == "late"


def test_children_of_other_threads_are_ended():
    given = threading.Event()

    def never():
        given.set()
        return ""

    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(process.run, argv, stdin=never)
        assert given.wait(30)
        process.end_children()
        assert asked.result(30).signal == "SIGKILL"


def test_a_signal_that_comes_while_another_thread_starts_a_program_ends_that_program():
    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(process.run, argv, on_start=lambda: children.ENDING.append(signal.SIGTERM))
        try:
            with pytest.raises(SystemExit) as ended:
                asked.result(30)
        finally:
            children.ENDING.clear()
    assert ended.value.code == process.TERMINATED
