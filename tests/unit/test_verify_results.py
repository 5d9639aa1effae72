"""Stage 7 on GPU runs as they were told: what was mapped and what cuDNN logged, held against verdicts.

The log lines are those of the real cuDNN 9.19."""

from rows import rows
from verify_stub import fresh_state

from provision.environment.distributions import RecordRow
from provision.export.pages import verdict_page
from provision.model import FrameworkVerdict, LibraryFile, Lock, LockedPackage, Plan, Target, Verdict
from provision.system.process import Finished
from provision.verify import results
from provision.verify.libraries import LibraryPackage
from provision.verify.probe import ProbeReport

SITE = "/env/lib/python3.12/site-packages/nvidia/cudnn/lib"
CUDNN = LibraryPackage(
    name="nvidia-cudnn-cu13",
    version="9.19.0.56",
    files=(RecordRow(f"{SITE}/libcudnn.so.9", None, 1),),
)
STAGE = "gpuenv: convolution\n"
CREATED = "\nI! CuDNN (v91900 56) function cudnnCreate() called:\ni!     handle: location=host;\n"
EXECUTED = (
    "\nI! CuDNN (v91900 56) function cudnnBackendExecute() called:\ni!     handle: type=cudnnHandle_t;\n"
)
MAPPED = [[f"{SITE}/libcudnn.so.9", "9.19.0"], [f"{SITE}/libcudnn_graph.so.9", "9.19.0"]]


def judge(files, log=CREATED + EXECUTED, lock=None, families=("libcudnn",), **framework):
    done = Finished(returncode=0, stdout="", stderr="", timed_out=False, signal=None, report=b"")
    records = ({"kind": "framework", **framework}, {"kind": "mapped", "files": files})
    report = ProbeReport(records=records, finished=done, seconds=1.0, log=STAGE + log)
    one = results.Results(
        fresh_state(files=[f"/env/{name}.so.9" for name in families], lock=lock), "torch", report
    )
    one.libraries = results.list_mapped(report, ["/env"], {f.path: CUDNN for f in CUDNN.files})
    return one.judge_loaded()


def locked(version):
    target = Target(platform="linux-x86_64")
    plan = Plan(
        builds=(), python="3.12", platform="linux-x86_64", manager="venv", device="cuda", target=target
    )
    package = LockedPackage(name="nvidia-cudnn-cu13", version=version, url="file:///x.whl")
    return Lock(manager="venv", target=target, plan=plan, packages=(package,))


def test_the_environments_cudnn_called_passes():
    judged = judge(MAPPED, lock=locked("9.19.0.56"))
    assert judged.status == "pass"
    assert judged.evidence[0].text == "1 calls of cudnnBackendExecute, executed by cuDNN 9.19.0.56"


@rows(
    ("log", "framework", "why"),
    [
        (CREATED, {"cudnn_enabled": False}, "torch.backends.cudnn.enabled is False"),
        (CREATED, {}, "contains no compute calls"),
        ("", {}, "contains no compute calls"),
    ],
)
def test_cudnn_mapped_but_not_called_is_a_warning_with_the_reason(log, framework, why):
    judged = judge(MAPPED, log, **framework)
    assert judged.status == "warn"
    assert why in judged.detail


OTHER = "/usr/lib/x86_64-linux-gnu/libcudnn_cnn.so.9.14.0"


@rows(
    ("files", "families", "status", "foreign", "says"),
    [
        ([], ("libcudnn",), "warn", None, ""),
        ([*MAPPED, [OTHER, None]], ("libcudnn",), "fail", (OTHER,), "libcudnn_cnn.so.9.14.0 9.14.0 was loaded from /usr/"),
        # the system's cuDNN, where the environment brings none
        ([["/usr/lib/libcudnn.so.9", "9.14.0"]], (), "warn", (), ""),
        ([*MAPPED, ["/env/lib/libcudnn_ops.so.9", None]], ("libcudnn",), "fail", None, "Two copies"),
    ],
)  # fmt: skip
def test_cudnn_from_elsewhere_twice_or_not_at_all_is_told(files, families, status, foreign, says):
    judged = judge(files, families=families)
    assert judged.status == status and says in judged.detail
    assert foreign is None or judged.foreign == foreign


def test_no_library_of_the_family_is_named():
    assert "no libcudnn was loaded" in judge([[f"{SITE}/libcublas.so.13", None]], "").detail


def test_another_version_than_the_locks_fails_on_three_parts():
    assert judge(MAPPED, lock=locked("9.19.0.99")).status == "pass"
    judged = judge(MAPPED, lock=locked("9.20.0.48"))
    assert judged.status == "fail"
    assert "9.20.0.48" in judged.detail


def test_another_family_from_elsewhere_is_a_warning():
    judged = judge([*MAPPED, ["/usr/local/cuda/lib64/libcublas.so.13", "13.1.0"]], families=("libcublas",))
    assert judged.status == "warn"
    assert judged.finding.cause == "nvidia_lib_symbol_mismatch"


def test_what_cudnn_logged_as_the_reason_is_evidence():
    log = (
        "e!         Error: CUDNN_STATUS_NOT_INITIALIZED; Reason: cudaGetDeviceCount(&count) != cudaSuccess\n"
    )
    done = Finished(returncode=0, stdout="", stderr="", timed_out=False, signal=None, report=b"")
    (only,) = ProbeReport(records=(), finished=done, seconds=1.0, log=log * 3).complaints()
    assert "cudaGetDeviceCount(&count) != cudaSuccess" in only.text


COMPUTED = [f"{SITE}/libcudnn.so.9", f"{SITE}/libcudnn_graph.so.9", f"{SITE}/libcublas.so.12"]
AFTERWARDS = [*MAPPED, [f"{SITE}/libcublas.so.12", None], [f"{SITE}/libcudnn_adv.so.9", None]]


def ran(log, device, *, computed=COMPUTED):
    """Whether each library ran: cuDNN and cuBLAS are mapped by the import, the graph library by the convolution and
    the last by the question for versions."""
    done = Finished(returncode=0, stdout="", stderr="", timed_out=False, signal=None, report=b"")
    records = [
        {"kind": "mapped", "files": [[COMPUTED[0], None], [COMPUTED[2], None]]},
        *([{"kind": "computed", "files": computed}] if computed else []),
        {"kind": "mapped", "files": AFTERWARDS},
    ]
    report = ProbeReport(records=tuple(records), finished=done, seconds=1.0, log=STAGE + log)
    return {x.soname: x.ran for x in results.list_mapped(report, ["/env"], {}, device)}


def test_only_libraries_with_proof_count_as_run():
    assert ran(EXECUTED, "cuda") == {
        "libcudnn.so.9": True, "libcudnn_graph.so.9": True, "libcublas.so.12": None, "libcudnn_adv.so.9": False,
    }  # fmt: skip
    assert ran(CREATED, "cuda")["libcudnn.so.9"] is False
    assert set(ran(EXECUTED, "cpu").values()) == {False}
    assert set(ran(EXECUTED, "cuda", computed=None).values()) == {None}


def test_the_report_lists_under_libraries_that_ran_only_those():
    def shown(device):
        flags = ran(EXECUTED, device)
        libraries = tuple(LibraryFile(soname=s, path=f"/{s}", ran=flag) for s, flag in flags.items())
        framework = FrameworkVerdict(name="torch", libraries=libraries)
        return verdict_page(Verdict(env="/env", python="/p", verdict="cpu", frameworks=(framework,)), "now")

    html = shown("cuda")
    first, _, rest = html.partition("Libraries that were used</h3>")[2].partition("<h3>")
    assert ("libcudnn_graph.so.9" in first, "libcublas.so.12" in first, "libcudnn_adv.so.9" in first) == (
        True, False, False,
    )  # fmt: skip
    assert "with no evidence of use" in rest and "libcublas.so.12" in rest and "libcudnn_adv.so.9" in rest
    html = shown("cpu")
    assert "Libraries that were used" not in html and "libcudnn.so.9" in html


def unserved(stage, case, dtype="bfloat16"):
    return {"kind": "unserved", "stage": stage, "case": case, "dtype": dtype, "reason": "no kernel"}


def test_what_was_not_checked_is_evidence_of_its_own_stage():
    graded = {"device": 0, "case": "x", "dtype": "float32", "which": "forward", "error": 0.0, "tolerance": 1.0,
              "reason": "exact", "ok": True}  # fmt: skip
    left, backend = (
        unserved("convolution", "conv2d_grouped", "float32"),
        unserved("attention", "CUDNN_ATTENTION"),
    )
    stages = ("convolution", "matmul", "attention")
    done = Finished(returncode=0, stdout="", stderr="", timed_out=False, signal=None, report=b"")
    records = (*({"kind": stage, **graded} for stage in stages), left, backend)
    report = ProbeReport(records=records, finished=done, seconds=1.0)
    one = results.Results(fresh_state(), "torch", report)
    shown = {s: one._judge_graded(s).evidence for s in stages}
    named = {s: [e.text for e in evidence if e.source == "not checked"] for s, evidence in shown.items()}
    assert named == {
        "convolution": ["conv2d_grouped float32: no kernel"], "matmul": [], "attention": ["CUDNN_ATTENTION bfloat16: no kernel"],
    }  # fmt: skip


def test_the_further_operations_of_deep_are_judged_by_name():
    def report(*records, returncode=0, signal=None):
        done = Finished(
            returncode=returncode, stdout="", stderr="", timed_out=False, signal=signal, report=b""
        )
        return ProbeReport(records=records, finished=done, seconds=1.0)

    right = report({"kind": "operation", "case": "fft", "error": 1e-6, "tolerance": 1e-4, "ok": True})
    wrong = report({"kind": "operation", "case": "solve", "error": 0.5, "tolerance": 1e-3, "ok": False})
    refused = report(
        {"kind": "failed", "stage": "operations", "error": "RuntimeError", "text": "no compiler"}
    )
    left = report(unserved("operations", "fp8"))
    died = report(
        {"kind": "begin", "stage": "operations", "doing": "running rnn"}, returncode=-11, signal="SIGSEGV"
    )
    good = results.judge_extras({"fft": right, "fp8": left})
    assert (good.status, good.detail) == ("pass", "correct: fft")
    assert [e.text for e in good.evidence] == ["fp8: no kernel"]
    assert results.judge_extras({"fft": right, "compile": refused}).status == "warn"
    bad = results.judge_extras({"fft": right, "solve": wrong, "rnn": died, "sparse": report()})
    assert bad.status == "fail"
    said = {e.source: e.text for e in bad.evidence}
    assert said.keys() == {"solve", "rnn", "sparse"} and said["solve"] == "off by 0.5, at most 0.001"
    assert "SIGSEGV while running rnn" in said["rnn"] and "before the result" in said["sparse"]


def grade(stage, *, ok=True, error=0.0, dtype="float32", device=0):
    return {"kind": stage, "device": device, "case": "x", "dtype": dtype, "which": "forward", "error": error,
            "tolerance": 1e-3, "reason": "exact", "ok": ok}  # fmt: skip


def report_of(*records, log="", signal=None, stderr=""):
    done = Finished(
        returncode=-11 if signal else 0, stdout="", stderr=stderr, timed_out=False, signal=signal, report=b""
    )
    return ProbeReport(records=records, finished=done, seconds=1.0, log=log)


SEEN = {"kind": "framework", "version": "2.12.0", "cuda": "13.0", "cudnn": 91900, "file": "/env/torch.py",
        "devices": [{"index": 0, "name": "H100", "capability": "9.0", "uuid": None}]}  # fmt: skip


def outcome_of(*records, log="", name="torch", device="cuda", signal=None):
    run = fresh_state(device, files=["/env/libcudnn.so.9"])
    return results.Results(run, name, report_of(SEEN, *records, log=log, signal=signal)).judge()


@rows(("device", "error", "shown"), [("cuda", 0.5, "off by 0.5"), ("cpu", None, "not a number")])
def test_one_wrong_number_fails_and_makes_the_verdict_wrong(device, error, shown):
    index = 0 if device == "cuda" else -1
    bad = grade("convolution", ok=False, error=error, dtype="tf32", device=index)
    records = (grade("convolution", device=index), bad)
    outcome = outcome_of(*records, grade("matmul"), device=device)
    judged = outcome.stages["convolution"]
    assert (judged.status, outcome.wrong) == ("fail", True)
    assert judged.detail == f"1 of 2 results are wrong; first: x tf32 forward: {shown}, at most 0.001"
    assert judged.finding.cause == "framework_bug_upgrade"
    assert ("several GPUs" in judged.finding.fix) == (device == "cuda")
    assert [outcome.stages[s].status for s in ("matmul", "attention", "loaded")] == ["skip"] * 3


def test_products_name_the_calls_of_cublas_that_were_logged():
    log = "gpuenv: matmul\nI! cuBLAS (v13.1.0) function cublasStatus_t cublasSgemm_v2(\n[x][cublasLt][1][Trace][cublasLtMatmul]\n"
    judged = outcome_of(grade("convolution"), grade("matmul"), log=log).stages["matmul"]
    assert judged.detail.endswith("cuBLAS was called 2 times")
    assert judged.evidence[0].text == "cublasLtMatmul, cublasSgemm_v2"


BEGUN = {"kind": "begin", "stage": "attention_backend", "doing": "running CUDNN"}
FAILED = {"kind": "failed", "stage": "attention_backend", "error": "RuntimeError", "text": "CUDNN_STATUS"}


def backend(name, *records):
    return ({"kind": "backend", "device": 0, "backend": name}, *records)


@rows(
    ("ok", "records", "signal", "status", "words"),
    [
        (True, backend("MATH", grade("attention_backend")), None, "pass", "by FLASH"),
        (True, backend("CUDNN", FAILED), None, "warn", "CUDNN_STATUS"),
        (True, backend("CUDNN", grade("attention_backend", ok=False, error=2.0)), None, "warn", "off by 2"),
        (True, backend("CUDNN", unserved("attention", "CUDNN")), None, "pass", "by FLASH"),
        (True, (*backend("CUDNN", FAILED), *backend("CUDNN", unserved("attention", "CUDNN"))), None, "warn", "CUDNN_STATUS"),  # of two GPUs
        (False, backend("MATH", grade("attention_backend")), None, "fail", "SDPBackend.MATH"),
        (False, backend("CUDNN", FAILED), None, "fail", None),
        (False, backend("CUDNN", unserved("attention", "CUDNN")), None, "fail", None),
    ],
)  # fmt: skip
def test_each_backend_of_attention_is_judged_and_a_working_one_named(ok, records, signal, status, words):
    attention = grade("attention", ok=ok, error=0.0 if ok else 1.0)
    by = {"kind": "attention_by", "case": "x", "backend": "FLASH"}
    outcome = outcome_of(grade("convolution"), grade("matmul"), attention, by, *records)
    judged = outcome.stages["attention"]
    assert judged.status == status
    if status == "fail":
        assert (words or "Use the next older or newer release") in judged.finding.fix
    else:
        assert words in " ".join([judged.detail, *(e.text for e in judged.evidence)])


def test_a_backend_that_ends_the_process_is_named_with_the_signal():
    report = report_of(*backend("CUDNN", BEGUN), signal="SIGSEGV")
    assert results._list_backends(report) == {"CUDNN": report.death}


@rows(
    ("saw", "status", "cause"),
    [(SEEN | {"cuda": None}, "fail", "cpu_only_build"), (None, "fail", None), (SEEN, "pass", None)],
)
def test_a_framework_that_is_no_gpu_build_or_says_nothing_fails(saw, status, cause):
    judged = results.Results(fresh_state(), "torch", report_of(*filter(None, [saw]))).judge_import()
    assert (judged.status, judged.finding and judged.finding.cause) == (status, cause)
