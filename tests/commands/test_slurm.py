"""The exports for Slurm under a real slurmctld and slurmd: what drains a node, and what fails only a job."""

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import export_locks as el
import pytest
import slurm_cluster
from programs import run_program
from verify_stub import ALL_LIBRARIES, healthy, make_environment

from driver_stub import H200, SCENARIOS, build, gpu, spec

BUSY = spec(driver="580.159.04", cuda=13000, gpus=[f"{H200}|mode=3"], cuda_error=46)
FULL = gpu("NVIDIA H200", "9.0", 143771, "GPU-8c2c2c9a-7d41-4a1e-b3f5-0a9b8c7d6e5f", free_mib=300)
FORMS = ("prolog", "healthcheck", "taskprolog")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """An administrator's folder: an environment of root's, gpuenv on top of a driver made of C, and the scripts."""
    slurm_cluster.require()
    return Site(tmp_path_factory.mktemp("site"))


class Site:
    def __init__(self, folder):
        self.folder, self.env = folder, make_environment(folder / "env", ALL_LIBRARIES)
        self.driver, self.calls = build(folder / "driver"), folder / "calls"
        self.set_driver(healthy())
        self.write("gpuenv", f"""#!/bin/sh
echo "$@" >> {self.calls}
export LD_LIBRARY_PATH={self.driver} GPUENV_STUB={folder}/spec
exec {sys.executable} -m provision "$@"
""")  # fmt: skip
        self.scripts = {form: self.export(form) for form in FORMS}

    def set_driver(self, text):
        """What the driver answers from now on."""
        (self.folder / "spec").write_text(text)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def export(self, form):
        """A script as an administrator edits it: where gpuenv is, and with time for a machine that is busy."""
        text = el.text(form, env=str(self.env))
        edited = text.replace("gpuenv=gpuenv\n", f"gpuenv={self.folder}/gpuenv\n")
        edited = edited.replace("seconds=20\n", "seconds=90\n").replace("share=10\n", "share=0\n")
        assert str(self.folder) in edited and "seconds=20" not in edited and "share=10" not in edited
        return self.write(form, edited)

    def called(self):
        """The calls of gpuenv since the last question."""
        found = self.calls.read_text().splitlines() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        return found


@pytest.fixture(scope="module")
def cluster(site):
    options = ("Prolog", "HealthCheckProgram", "TaskProlog")
    with slurm_cluster.Cluster(dict(zip(options, site.scripts.values(), strict=True))) as running:
        for script in site.scripts.values():
            script.write_text(script.read_text().replace("PATH=/usr", f"PATH={running.bin}:/usr"))
        yield running


@pytest.fixture(scope="module", autouse=True)
def silent(site, cluster):
    """How the prolog ends whose gpuenv does not answer, and its seconds. It waits while other tests run."""
    folder = site.folder / "silent"
    folder.mkdir()
    for name, text in (
        ("gpuenv", "#!/bin/sh\nexec sleep 600\n"),
        ("prolog", site.scripts["prolog"].read_text().replace("seconds=90\n", "seconds=4\n")
                   .replace(f"gpuenv={site.folder}/gpuenv\n", f"gpuenv={folder}/gpuenv\n")),
    ):  # fmt: skip
        script = site.write(f"silent/{name}", text)
    assert f"gpuenv={folder}/gpuenv\n" in text and "seconds=4\n" in text

    def run():
        start = time.monotonic()
        ran = run_program([script], env={**cluster.environ, "SLURMD_NODENAME": "n1"})
        return ran, time.monotonic() - start

    with ThreadPoolExecutor() as pool:
        yield pool.submit(run)


@pytest.fixture
def good(site, cluster):
    """The cluster with a driver that works."""
    site.set_driver(healthy())
    for node in slurm_cluster.NODES:
        if "DRAIN" in cluster.node(node)["State"]:
            cluster.resume(node)
    site.called()
    return cluster


def test_a_good_node_runs_the_job(site, good):
    ran = good.run("srun", "-w", "n1", "echo", "ran")
    assert ran.stdout == "ran\n" and ran.returncode == 0, ran.stderr
    assert [c for c in site.called() if "--node" in c and c.endswith(f" {site.env}")]
    assert good.node("n1")["State"] == "IDLE", good.node("n1")
    assert "Reason" not in good.node("n1")


def test_a_fault_of_the_driver_drains_the_node_and_names_the_cause(site, good):
    site.set_driver(SCENARIOS["mismatch"])
    ran = good.run("srun", "-w", "n2", "echo", "ran")
    assert "ran" not in ran.stdout, ran
    assert "DRAIN" in good.node("n2")["State"]
    assert good.node("n2")["Reason"].startswith("gpuenv: driver_library_mismatch [root@")
    assert good.node("n1")["State"] == "IDLE"


@pytest.fixture
def impatient(site):
    """The scripts nearly as they are exported: with their own limit, and shared results."""
    kept = {form: path.read_text() for form, path in site.scripts.items()}
    for result in Path("/run/gpuenv").iterdir():  # of the tests before
        result.unlink()
    for form, path in site.scripts.items():
        path.write_text(kept[form].replace("seconds=90\n", "seconds=20\n").replace("share=0\n", "share=5\n"))
    yield
    for form, path in site.scripts.items():
        path.write_text(kept[form])


def test_a_burst_on_a_driver_that_hangs_costs_one_check_and_is_requeued_and_the_repaired_node_is_resumed(
    site, good, impatient, tmp_path
):
    site.set_driver(SCENARIOS["cuinit-hangs"])
    tmp_path.chmod(0o755)
    ran, start = tmp_path / "ran", time.monotonic()
    job = ("--array=1-20", "--output=/dev/null", "--wrap", f"echo >> {ran}")
    assert good.run("sbatch", "-w", "n1", *job).returncode == 0
    good.wait_for("n1", lambda state: "DRAIN" in state)
    reason = good.node("n1")["Reason"]
    assert reason.startswith("gpuenv: gpu_hardware_fault [root@") and time.monotonic() - start < 60
    assert not ran.exists() and len(site.called()) == 1, "one check, and no job ran on the node"
    jobs = [j for j in good.run("scontrol", "-o", "show", "job").stdout.splitlines() if " Restarts=1 " in j]
    assert len(jobs) == 20 and all("JobState=PENDING" in job and "Held" not in job for job in jobs), jobs
    good.run("scancel", "--user=root")
    # An operator keeps the node, and the health check respects that.
    site.set_driver(healthy())
    good.run("scontrol", "update", "NodeName=n1", "Reason=gpuenv: gpu_hardware_fault, card ordered")
    time.sleep(5)  # the shared result of the burst is too old then
    for words, state in ((None, "DRAIN"), ("gpuenv: gpu_hardware_fault", "IDLE")):
        if words:
            good.run("scontrol", "update", "NodeName=n1", f"Reason={words}")
            with good.health_checks():
                good.wait_for("n1", lambda found: "DRAIN" not in found)
        else:
            check = [site.scripts["healthcheck"]]
            subprocess.run(
                check, check=True, env={**good.environ, "SLURMD_NODENAME": "n1"}, capture_output=True
            )
        assert state in good.node("n1")["State"]


def test_a_damaged_cudnn_of_root_drains_the_node(site, good):
    cudnn = next(site.env.glob("lib/python*/site-packages/nvidia/cudnn/lib/libcudnn_ops.so.9"))
    whole = cudnn.read_bytes()
    cudnn.write_bytes(whole[:-1])
    try:
        good.run("srun", "-w", "n2", "true")
    finally:
        cudnn.write_bytes(whole)
    assert good.node("n2")["Reason"].startswith("gpuenv: package_files_damaged [root@")


def test_a_node_that_drains_keeps_its_reason(site, good):
    good.run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=new fan")
    site.set_driver(SCENARIOS["mismatch"])
    script = run_program([site.scripts["prolog"]], env={**good.environ, "SLURMD_NODENAME": "n2"})
    assert script.returncode == 1 and "driver_library_mismatch" in script.stderr
    assert good.node("n2")["Reason"].startswith("new fan")


@pytest.mark.parametrize("what", [spec(driver="580.159.04", cuda=13000, gpus=[FULL], cudnn_create=4), BUSY])
def test_a_full_or_busy_gpu_drains_nothing_and_fails_the_job_that_meets_it(site, good, what):
    site.set_driver(what)
    ran = good.run("srun", "-w", "n1", "echo", "ran", GPUENV_ENV=str(site.env))
    assert "ran" not in ran.stdout and ran.returncode == 1
    assert "gpuenv:   gpu_memory_exhausted" in ran.stdout or "gpuenv:   gpu_busy_exclusive" in ran.stdout
    assert good.last_job()["JobState"] == "FAILED"
    assert good.node("n1")["State"] == "IDLE"


@pytest.fixture
def broken(site, tmp_path):
    """A user's environment with a libcudnn that is cut short."""
    env = Path(shutil.copytree(site.env, tmp_path / "env", symlinks=True))
    cudnn = next(env.glob("lib/python*/site-packages/nvidia/cudnn/lib/libcudnn.so.9"))
    cudnn.write_bytes(cudnn.read_bytes()[:5000])
    return env


def test_a_users_broken_environment_fails_only_the_job(site, good, broken):
    ran = good.run("srun", "-w", "n1", "echo", "ran", GPUENV_ENV=str(broken))
    assert "ran" not in ran.stdout and ran.returncode == 1
    assert "gpuenv:   package_files_damaged" in ran.stdout
    assert good.last_job()["JobState"] == "FAILED" and good.last_job()["Reason"] == "NonZeroExitCode"
    assert good.node("n1")["State"] == "IDLE"
    assert good.run("srun", "-w", "n1", "echo", "ran").stdout == "ran\n", "other jobs run there"


def test_the_other_tasks_of_a_step_end_with_it(good, broken):
    start = time.monotonic()
    ran = good.run("srun", "-w", "n1", "-n", "2", "sleep", "100", GPUENV_ENV=str(broken))
    assert ran.returncode != 0 and time.monotonic() - start < 90
    assert good.node("n1")["State"] == "IDLE"


def test_only_environments_that_are_meant_are_examined_for_a_job(site, good, tmp_path):
    own = tmp_path / "own"
    (own / ".gpuenv").mkdir(parents=True)
    other = tmp_path / "other"
    other.mkdir()
    jobs = (("n1", 1, {}), ("n2", 1, {"VIRTUAL_ENV": str(other)}), ("n2", 0, {"VIRTUAL_ENV": str(own)}))
    with ThreadPoolExecutor() as pool:
        ended = [pool.submit(good.run, "srun", "-w", node, f"--gres=gpu:{gres}", "echo", "ran", **more)
                 for node, gres, more in jobs]  # fmt: skip
    for ran in (e.result() for e in ended):
        assert ran.stdout == "ran\n", ran.stderr
    calls = site.called()
    assert len(calls) == 3 and all("--node" in c for c in calls), calls
    good.run("srun", "-w", "n1", "--gres=gpu:1", "true", VIRTUAL_ENV=str(own))
    assert f"verify --quick -q {own}" in site.called()


def test_the_health_check_drains_idle_nodes(site, good):
    site.set_driver(SCENARIOS["cuinit-crashes"])
    with good.health_checks():
        good.wait_for("n2", lambda state: "DRAIN" in state)
    assert good.node("n2")["Reason"].startswith("gpuenv: driver [root@")


@pytest.mark.parametrize("form", ["prolog", "healthcheck"])
def test_what_another_user_can_change_is_not_run_by_root(site, good, form):
    python = site.env / "bin" / "python-of-a-user"
    python.write_text("#!/bin/sh\n")
    os.chown(python, 65534, 65534)
    site.set_driver(SCENARIOS["mismatch"])
    try:
        script = run_program([site.scripts[form]], env={**good.environ, "SLURMD_NODENAME": "n1"})
    finally:
        python.unlink()
    assert script.returncode == 0
    assert f"{site.env} was not checked: gpuenv exited with code 2" in script.stderr
    assert good.node("n1")["State"] == "IDLE"


def test_a_check_that_does_not_answer_ends_in_five_seconds_and_drains_nothing(good, silent):
    ran, seconds = silent.result()
    assert ran.returncode == 0 and "no response within" in ran.stderr
    assert seconds < 5
    assert good.node("n1")["State"] == "IDLE"


def test_a_gpuenv_that_is_missing_drains_nothing(site, good, tmp_path):
    script = tmp_path / "prolog"
    script.write_text(el.text("prolog", env=str(site.env)))
    ran = run_program(["sh", script], env={**good.environ, "SLURMD_NODENAME": "n1"})
    assert ran.returncode == 0 and "gpuenv exited with code 127" in ran.stderr
    assert good.node("n1")["State"] == "IDLE"
