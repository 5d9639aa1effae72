"""The probes as programs: their syntax, what they import, how they report, and the grading itself."""

import ast
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from programs import run_program
from rows import rows

from provision.system import process
from provision.system.probes import join_sources, parse_records
from provision.verify import probe

FOLDER = Path(__file__).parents[2] / "provision" / "probes"
PROBES = sorted(FOLDER.glob("*.py"))
FRAMEWORKS = {"torch", "tensorflow", "jax", "jaxlib", "onnxruntime", "numpy"}


@rows("path", PROBES, ids=lambda p: p.stem)
def test_a_probe_is_python_3_8_and_imports_only_the_library_and_frameworks(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module.split(".")[0])
    assert names <= sys.stdlib_module_names | FRAMEWORKS


def test_probes_are_never_imported_and_come_with_the_package():
    assert not (FOLDER / "__init__.py").exists()
    assert "def tell(" in join_sources("report")
    assert join_sources("report", "framework").count('"""Begins every probe') == 1


LOADED = {
    "libcublas.so.12": (
        "int cublasGetProperty(int which, int *n) { *n = 12 - which; return 0; }",
        "12.11.10",
    ),
    "libcublasLt.so.12": ("int cublasLtGetProperty(int which, int *n) { return 1; }", None),
    "libcublas.so.11": ("int other;", None),
    "libnvrtc.so.12": ("int nvrtcVersion(int *a, int *b) { *a = 12; *b = 9; return 0; }", "12.9"),
    "libnvJitLink.so.12": ("int nvJitLinkVersion(int *a, int *b) { return 1; }", None),
    "libcudart.so.12": ("int cudaRuntimeGetVersion(int *n) { *n = 12080; return 0; }", "12.8"),
    "libcudnn.so.8": ("unsigned long cudnnGetVersion(void) { return 8907; }", "8.9.7"),
    "libcudnn_graph.so.9": ("unsigned long cudnnGetVersion(void) { return 91002; }", "9.10.2"),
    "libcudnn_ops.so.9": ("int other;", None),
}


def test_a_loaded_library_tells_its_version(tmp_path):
    for name, (code, _) in LOADED.items():
        argv = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", tmp_path / name]
        subprocess.run(argv, input=code, text=True, check=True)
    program = join_sources("report") + (
        "\nimport ctypes, glob\nkept = [ctypes.CDLL(path) for path in glob.glob(ASKED['folder'] + '/lib*')]\n"
        "tell('loaded', files=libraries())\n"
    )
    asked = json.dumps({"folder": str(tmp_path), "pattern": "^lib(cu|nv)"})
    done = run_program(
        [sys.executable, "-c", program, asked], env={**os.environ, "GPUENV_REPORT": "1"}, check=True
    )
    told = {Path(path).name: version for path, version in json.loads(done.stdout)["files"]}
    assert told == {name: version for name, (_, version) in LOADED.items()}


@functools.cache
def pythons():
    """Every Python from 3.8 on at hand, the newest and the oldest at least where there are several."""
    found = {sys.executable: sys.version_info[:2]}
    homes = [*Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python"), *map(Path, filter(None, [
        shutil.which(f"python3.{n}") for n in range(8, 20)]))]  # fmt: skip
    for path in homes:
        done = run_program([path, "-c", "import sys; print(*sys.version_info[:2])"])
        if done.returncode == 0:
            found[str(path)] = tuple(map(int, done.stdout.split()))
    best = {v: p for p, v in found.items() if v >= (3, 8)}
    return [best[v] for v in sorted(best)]


def test_probes_run_on_every_python():
    """Where and low level, on a machine whose libcuda, if any, is hidden by an empty file."""
    request = {"frameworks": ["torch", "json"]}
    for python in pythons():
        report = probe.run_probe(
            python, ("report", "python_search_paths"), request, environ=process.environ(), timeout=30
        )
        assert report.death is None, (python, report.finished.stderr)
        where = report.last("where")
        assert where["frameworks"]["json"]["origin"].endswith("json/__init__.py"), python
        assert where["sites"], python


def test_the_low_level_probe_reports_a_driver_that_does_not_load(tmp_path):
    (tmp_path / "libcuda.so.1").touch()
    request = {"libcudart": ["libcudart.so.12"], "libcudnn": None, "helpers": [], "ordinal": None,
             "low_memory_mib": 1, "pattern": "cuda"}  # fmt: skip
    environ = {**process.environ(), "LD_LIBRARY_PATH": str(tmp_path)}
    for python in pythons():
        told = probe.run_probe(
            python,
            ("report", "devices", "gpu"),
            request,
            environ=environ,
            timeout=30,
            options=("-I", "-S", "-B"),
            later_input=dict,
        )
        assert told.death is None, told.finished.stderr
        (only,) = told.all("stage")
        assert only["stage"] == "driver"
        assert only["failed"]["call"] == "dlopen libcuda.so.1"
        assert "file too short" in only["failed"]["text"]


def run_text(text, timeout=300.0, stdin=None):
    """Run a probe made of the shared head and some text, as `probe.run` does."""
    report = join_sources("report")
    finished = process.run(
        [sys.executable, "-c", report + text], timeout=timeout, stdin=stdin, report="GPUENV_REPORT"
    )
    return probe.ProbeReport(records=parse_records(finished.report), finished=finished, seconds=timeout)


def test_a_report_from_before_a_crash_is_kept():
    told = run_text("begin('cudnn', 'doing x')\ntell('a', n=1)\nos.kill(os.getpid(), 7)\n")
    assert told.last("a")["n"] == 1
    assert told.death == f"the process was ended by {signal.Signals(7).name} while doing x"
    assert told.stage == "cudnn"


def test_a_report_from_before_a_hang_is_kept(tmp_path):
    begun = tmp_path / "begun"

    def when_it_waits():  # the time runs from then
        while not begun.exists():
            time.sleep(0.01)
        return ""

    text = f"begin('driver', 'waiting')\nopen({str(begun)!r}, 'w').close()\ntime.sleep(600)\n"
    told = run_text(text, timeout=0.5, stdin=when_it_waits)
    assert told.death == "no answer within 0.5 s while waiting"


def test_a_grandchild_does_not_hold_the_report_open():
    text = "import subprocess\nsubprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\ntell('a')\n"
    told = run_text(text)
    assert told.death is None
    assert told.last("a")["at"] < 300


def test_a_torn_last_line_is_left_out_and_noise_on_stdout_is_no_report():
    told = run_text(
        'print(\'{"kind": "a"}\')\ntell(\'b\')\nos.write(_FD, b\'{"kind": "c\')\nos.kill(os.getpid(), 9)\n'
    )
    assert [r["kind"] for r in told.records] == ["b"]


def test_paths_that_are_no_utf_8_survive():
    told = run_text("tell('p', path=os.fsdecode(b'/x/\\xff'))\n")
    assert os.fsencode(told.last("p")["path"]) == b"/x/\xff"


@rows(("error", "kinds"), [("Unserved", {"unserved"}), ("NotImplementedError", {"failed"})])
def test_only_the_probe_says_that_a_framework_lacks_something(error, kinds):
    """A broken build raises NotImplementedError itself: "Could not run 'aten::...' with arguments from the 'CUDA' backend"."""
    stub = f"""
def import_stub():
    begin("framework", "importing stub")
    wait_for_turn()

def prepare_stub(framework):
    def convolve(*job):
        raise {error}("not here")
    return {{"convolve": convolve, "array": lambda flat, shape, dtype: flat, "zeros": list}}

ASKED.update(framework="stub", device="cpu", cases=["conv2d"], pattern="^$")
"""
    told = run_text(join_sources("operations") + stub + join_sources("framework"))
    assert {r["kind"] for r in told.records} & {"unserved", "failed"} == kinds


def test_a_framework_without_products_and_attention_ends_well_on_a_gpu():
    """TensorFlow and ONNX Runtime have no attention of their own."""
    stub = """
def import_stub():
    return None

def prepare_stub(framework):
    return {"types": lambda: [["float32", "bfloat16"]]}

ASKED.update(framework="stub", device="auto", ordinals=[0], cases=[], products=["matmul"], attentions=["causal_64"], pattern="^$")
"""
    told = run_text(join_sources("operations") + stub + join_sources("framework"))
    assert told.last("done") is not None
    assert told.death is None, told.finished.stderr


@rows(
    ("deep", "jobs"),
    [(False, ["a bfloat16", "b float16"]), (True, ["a float16", "a bfloat16", "b float16", "b bfloat16"])],
)
def test_each_backend_of_attention_is_tried_beside_the_default_and_told(deep, jobs):
    stub = f"""
def import_stub():
    return None

def prepare_stub(framework):
    return {{"types": lambda: [["float32", "float16", "bfloat16"]], "backends": lambda index: ["A", "B", "C"],
            "attend": attention, "array": None, "zeros": None}}

def attention(device, asked, backend):
    if backend == "A":
        raise Unserved("no kernel")
    if backend == "B":
        raise RuntimeError("broken")
    return asked

def sweep(stage, index, jobs, run, *_):
    for name, dtype in run(index, jobs):
        tell("job", stage=stage, text=name + " " + dtype)

ASKED.update(framework="stub", device="auto", ordinals=[0], cases=[], attentions=["a", "b"], deep={deep}, pattern="^$")
"""
    told = run_text(join_sources("operations") + stub + join_sources("framework"))
    assert told.death is None, told.finished.stderr
    assert [r["text"] for r in told.all("job") if r["stage"] == "attention"] == jobs
    after = {}
    for r in told.records:
        if r["kind"] == "backend":
            after[r["backend"]] = []
        elif after:
            after[[*after][-1]].append(r.get("text") or r.get("reason"))
    assert after["A"] == ["no kernel"] and after["B"][0].endswith("broken")
    assert after["C"][0] == "causal_64 bfloat16"


# --- grading, in the probes' own text; arrays are what slices, @ and reshape need, in plain Python


class Array:
    """As much of an array as the reference uses, row-major lists of floats, independent of NumPy."""

    def __init__(self, data, shape):
        self.data, self.shape = data, tuple(shape)

    def __getitem__(self, key):
        return Array([self.data[i] for i in self._where(key)[0]], self._where(key)[1])

    def __setitem__(self, key, value):
        where, shape = self._where(key)
        assert tuple(shape) == value.shape
        for i, v in zip(where, value.data, strict=True):
            self.data[i] = v

    def _where(self, key):
        key = key if isinstance(key, tuple) else (key,)
        if Ellipsis in key:
            at = key.index(Ellipsis)
            key = key[:at] + (slice(None),) * (len(self.shape) - len(key) + 1) + key[at + 1 :]
        key += (slice(None),) * (len(self.shape) - len(key))
        where, shape = [0], []
        for k, n in zip(key, self.shape, strict=True):
            steps = [k] if isinstance(k, int) else range(n)[k]
            shape += [] if isinstance(k, int) else [len(steps)]
            where = [i * n + s for i in where for s in steps]
        return where, shape

    @property
    def T(self):  # noqa: N802 - the name that arrays have
        r, c = self.shape
        return Array([self.data[i * c + j] for j in range(c) for i in range(r)], (c, r))

    def reshape(self, *shape):
        rest = len(self.data)
        for n in shape:
            rest //= n if n > 0 else 1
        return Array(self.data, [n if n > 0 else rest for n in shape])

    def __matmul__(self, other):
        k, n = other.shape
        rows = [self.data[i : i + k] for i in range(0, len(self.data), k)]
        columns = [other.data[j::n] for j in range(n)]
        data = [sum(a * b for a, b in zip(r, c, strict=True)) for r in rows for c in columns]
        return Array(data, (*self.shape[:-1], n))

    def _each(self, other, op):
        values = other.data if isinstance(other, Array) else [other] * len(self.data)
        return Array([op(a, b) for a, b in zip(self.data, values, strict=True)], self.shape)

    def __add__(self, other):
        return self._each(other, lambda a, b: a + b)

    def __sub__(self, other):
        return self._each(other, lambda a, b: a - b)

    def __mul__(self, other):
        return self._each(other, lambda a, b: a * b)

    def __abs__(self):
        return Array([abs(v) for v in self.data], self.shape)

    def sum(self):
        return sum(self.data)

    def max(self):
        return max(self.data)


def zeros(shape):
    size = 1
    for n in shape:
        size *= n
    return Array([0.0] * size, shape)


@pytest.fixture(scope="module")
def grade():
    names = {"ASKED": {}, "tell": lambda *a, **k: None, "begin": lambda *a, **k: None}
    exec(compile(join_sources("operations"), "operations.py", "exec"), names)
    return names


SMALL = {
    "plain": {"size": (4, 5), "kernel": (3, 2), "stride": (2, 1), "padding": (1, 1), "cin": 2, "cout": 3, "batch": 2},
    "grouped": {
        "size": (5,), "kernel": (3,), "stride": (2,), "padding": (1,), "cin": 4, "cout": 6, "batch": 2, "groups": 2,
    },
    "transposed": {
        "size": (3, 2), "kernel": (3, 3), "stride": (2, 2), "padding": (1, 1), "cin": 2, "cout": 3, "batch": 1,
        "transposed": True,
    },
}  # fmt: skip


def by_definition(case, x, w, shape):
    """The forward convolution written out element by element, from its definition alone."""
    import itertools

    y, groups = zeros(shape), case.get("groups", 1)
    ci, co = case["cin"] // groups, case["cout"] // groups
    for n, *rest in itertools.product(*map(range, x.shape[:-1])):
        for offset in itertools.product(*map(range, case["kernel"])):
            for i, o in itertools.product(range(case["cin"]), range(case["cout"])):
                if case.get("transposed"):
                    at = [
                        p * s + k - q
                        for p, s, k, q in zip(rest, case["stride"], offset, case["padding"], strict=True)
                    ]
                    weight = (*offset, o, i)
                else:
                    steps = [
                        (p - k + q, s)
                        for p, k, q, s in zip(rest, offset, case["padding"], case["stride"], strict=True)
                    ]
                    if i // ci != o // co or any(d % s for d, s in steps):
                        continue
                    at = [d // s for d, s in steps]
                    weight = (*offset, i % ci, o)
                if all(0 <= a < m for a, m in zip(at, shape[1:-1], strict=True)):
                    place = y._where((n, *at, o))[0][0]
                    y.data[place] += x[(n, *rest, i)].data[0] * w[weight].data[0]
    return y


def drawn(shape, seed):
    import random

    source, made = random.Random(seed), zeros(shape)
    made.data = [source.uniform(-1, 1) for _ in made.data]
    return made


@pytest.mark.parametrize("name", SMALL)
def test_the_reference_convolution_agrees_with_the_definition(grade, name):
    """Forward by the definition; the gradients by what defines them: <gy, conv(dx, w)> = <gx, dx>."""
    case = SMALL[name]
    sx, sw, sy = grade["shapes"](case)
    x, w, gy = drawn(sx, 1), drawn(sw, 2), drawn(sy, 3)
    y, gx, gw = grade["reference"](case, x, w, gy, zeros)
    assert max(abs(y - by_definition(case, x, w, sy)).data) < 1e-12
    dx, dw = drawn(sx, 4), drawn(sw, 5)
    assert (gy * by_definition(case, dx, w, sy)).sum() == pytest.approx((gx * dx).sum(), abs=1e-10)
    assert (gy * by_definition(case, x, dw, sy)).sum() == pytest.approx((gw * dw).sum(), abs=1e-10)


def test_inputs_are_fixed_and_never_zero(grade):
    for name in grade["CASES"]:
        sizes = grade["shapes"](grade["CASES"][name])
        first, second = grade["draw"](name, sizes), grade["draw"](name, sizes)
        assert first == second
        assert all(v and -1 <= v < 1 for flat in first for v in flat)


def test_the_grade_rejects_one_wrong_element_and_nan(grade):
    """A single wrong element among 50,000 fails in every precision; no not-a-number passes."""
    error, tolerance = grade["error_of"], {d: t for d, (t, _) in grade["TOLERANCES"].items()}
    right = drawn((50_000,), 6)
    assert error(right, right) == 0

    def planted(value):
        made = Array(list(right.data), right.shape)
        made.data[31_415] = value
        return error(made, right)

    assert all(planted(right.data[31_415] + 0.5) > t for t in tolerance.values())
    assert planted(right.data[31_415] + 0.001) > tolerance["float32"]
    for nothing in (float("nan"), float("inf"), -float("inf")):
        assert planted(nothing) is None
    assert error(right.reshape(100, 500), right) is None
    tf32 = Array([v * (1 + 3e-4 * (-1) ** i) for i, v in enumerate(right.data)], right.shape)
    assert tolerance["float32"] < error(tf32, right) < tolerance["tf32"]


def test_every_tolerance_has_its_reason(grade):
    assert all(len(reason) > 30 for _, reason in grade["TOLERANCES"].values())


def test_the_low_level_probe_s_own_convolution_is_the_definition(grade):
    """Stage 4 compares with integers; held against the grading probe's reference."""
    text = join_sources("gpu")
    names = {"os": os, "sys": sys, "ASKED": {}}
    exec(compile(text, "cudnn.py", "exec"), names)
    c, h, wd, k = 3, 4, 5, 2
    x = [(i * 7 + 3) % 11 - 5 for i in range(c * h * wd)]
    w = [(i * 5 + 1) % 7 - 3 for i in range(k * c * 9)]
    case = {
        "size": (h, wd),
        "kernel": (3, 3),
        "stride": (1, 1),
        "padding": (1, 1),
        "cin": c,
        "cout": k,
        "batch": 1,
    }
    last = Array(
        [float(x[(ch * h + i) * wd + j]) for i in range(h) for j in range(wd) for ch in range(c)],
        (1, h, wd, c),
    )
    kernel = Array(
        [
            float(w[((o * c + ch) * 3 + a) * 3 + b])
            for a in range(3)
            for b in range(3)
            for ch in range(c)
            for o in range(k)
        ],
        (3, 3, c, k),
    )
    y = by_definition(case, last, kernel, (1, h, wd, k))
    want = [y[(0, i, j, o)].data[0] for o in range(k) for i in range(h) for j in range(wd)]
    assert names["_expected"](x, w, (c, h, wd, k)) == want


def test_json_lines_are_ascii():
    told = run_text("tell('p', text='\\u00e4\\U0001f600')\n")
    assert told.last("p")["text"] == "ä😀"
    assert json.dumps(told.last("p")).isascii()


def functions(name, **given):
    """The functions of a probe, with what its head gives them."""
    names = {"os": os, "sys": sys, "ASKED": {}, **given}
    exec(compile(join_sources(name), f"{name}.py", "exec"), names)
    return names


def test_a_long_message_keeps_its_end_and_no_part_of_a_word():
    """A word that was cut may be the rest of a secret, which is known by its beginning."""
    told = run_text("tell_failure('x', ValueError('token=' + 'a' * 300 + ' and ' + 'word ' * 900))\n")
    text = told.last("failed")["text"]
    assert text.endswith("word word") and 3000 < len(text) <= 4000 and set(text.split()) == {"word"}
    told = run_text("tell_failure('x', ValueError('a' * 3900 + 'secret' + 'b' * 500 + ' end'))\n")
    assert told.last("failed")["text"] == "end"


def test_device_files_that_are_no_devices_of_the_driver_are_named(tmp_path):
    """As a sandbox shows them, that binds other files in their place. What other names stand for is not known."""
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-modeset"):
        (tmp_path / name).touch()
    (tmp_path / "nvidia-caps").mkdir()
    (tmp_path / "nvidia1").symlink_to("gone")
    (tmp_path / "nvidia2").symlink_to("/dev/null")
    probe_of_gpu = functions("gpu")
    probe_of_gpu["glob"] = SimpleNamespace(glob=lambda p: [str(x) for x in tmp_path.glob(Path(p).name)])
    probe_of_gpu["_major_of"] = lambda _name: 511
    found = {Path(f["path"]).name: f["problem"] for f in probe_of_gpu["device_files"]()}
    another = "another device stands in its place"
    assert found == {
        "nvidia0": another, "nvidia1": "No such file or directory", "nvidia2": another, "nvidiactl": another,
        "nvidia-uvm": another, "nvidia-modeset": None,
    }  # fmt: skip


def test_a_process_that_ended_or_is_of_another_user_has_no_framework():
    who = functions("gpu")["_who"]
    assert who(2**22 + 1) == (None, None)
    name, framework = who(os.getpid())
    assert (name, framework) == (Path("/proc/self/comm").read_text().strip(), None)


def test_a_mask_lets_each_position_look_at_itself(grade):
    for name, case in grade["ATTENTIONS"].items():
        mask = grade["attention_mask"](name)
        assert len(mask) == case["length"] and all(row[i] for i, row in enumerate(mask))
        later = any(any(row[i + 1 :]) for i, row in enumerate(mask))
        assert later == bool(case.get("masked")), name
        assert not all(map(all, mask))


def test_a_framework_that_another_module_stands_for_is_a_problem_and_no_crash():
    spoiled = (
        "import sys, types\nsys.modules['jax'] = types.ModuleType('jax')\nASKED['frameworks'] = ['jax']\n"
    )
    where = run_text(spoiled + join_sources("python_search_paths")).last("where")
    assert where["frameworks"]["jax"]["error"].startswith("ValueError: jax.__spec__")


def test_children_of_peers_that_fail_or_are_killed_are_told(tmp_path):
    told = run_text(
        join_sources("peers").partition("if __name__")[0].partition("\nmain(")[0]
        + """
def refused(): raise OSError("no such library")
def killed(): os.kill(os.getpid(), 9)
tell("ends", ends=list(run_children([refused, killed, lambda: None], 30.0)))
finish()
"""
    )
    assert told.last("failed")["call"] == "no such library"
    assert told.last("ends")["ends"] == ["failed", "ended by SIGKILL", None]
