"""The exports for Kubernetes: manifests that its schemas accept, and a plugin that speaks as its detector asks."""

import json
import os
import subprocess
import warnings

import export_locks as el
import pytest
import yaml
from rows import rows

from provision.errors import UsageError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the packages that it imports
    import kubernetes_validate

CPU = el.of(device="cpu")


def manifest(form, **subject):
    """The manifest of an export, checked against the schema of Kubernetes."""
    found = yaml.safe_load(el.text(form, **subject))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kubernetes_validate.validate(found, desired_version="1.31", strict=True)
    return found


def test_the_schemas_refuse_what_is_wrong():
    wrong = el.text("job").replace("backoffLimit: 0", "backofLimit: 0")
    with pytest.raises(kubernetes_validate.ValidationError, match="backofLimit"):
        kubernetes_validate.validate(yaml.safe_load(wrong), desired_version="1.31", strict=True)


@rows("env", ["/opt/env", "/opt/a \"b\" 'c' $HOME `id`: {d} # e"])
def test_a_job_verifies_the_environment_of_one_node(env):
    pod = manifest("job", env=env)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"][:2] == ["chroot", "/host"] and container["command"][-3:] == [
        "gpuenv",
        "verify",
        env,
    ]
    assert pod["nodeSelector"] == {"kubernetes.io/hostname": "NODE_NAME"} and pod["restartPolicy"] == "Never"
    assert pod["volumes"] == [{"name": "host", "hostPath": {"path": "/", "type": "Directory"}}]
    assert container["securityContext"] == {"privileged": True}


def test_a_job_for_the_cpu_verifies_the_cpu():
    text = el.text("job", CPU)
    (container,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
    assert container["command"][-4:-1] == ["verify", "--device", "cpu"]


def test_the_detectors_configuration_names_the_script_beside_it():
    data = manifest("npd")["data"]
    config = json.loads(data["gpuenv-node.json"])
    (rule,) = config["rules"]
    (condition,) = config["conditions"]
    assert config["plugin"] == "custom" and rule["type"] == "permanent"
    assert rule["path"].rpartition("/")[2] in data and rule["condition"] == condition["type"]
    assert int(rule["timeout"].rstrip("s")) < int(config["pluginConfig"]["timeout"].rstrip("s"))
    assert int(config["pluginConfig"]["max_output_length"]) == 80


@pytest.mark.parametrize(
    ("answer", "code", "line"),
    [
        (
            "echo 'driver 580, CUDA 13.0: NVIDIA H200 (9.0)'; exit 0",
            0,
            "driver 580, CUDA 13.0: NVIDIA H200 (9.0)",
        ),
        (
            "echo 'driver_library_mismatch: The kernel module'; exit 8",
            1,
            "driver_library_mismatch: The kernel module",
        ),
        ("echo 'error' >&2; exit 2", 2, "exit code 2 of gpuenv: {env} was not checked"),
        ("exec sleep 100", 2, "exit code 137 of gpuenv: {env} was not checked"),
    ],
)
def test_the_plugin_ends_with_0_1_or_2_and_one_short_line(tmp_path, answer, code, line):
    env = str(tmp_path / "an environment")
    (tmp_path / "gpuenv").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{answer}\n')
    (tmp_path / "gpuenv").chmod(0o755)
    script = manifest("npd", env=env)["data"]["gpuenv-node.sh"]
    script = script.replace("gpuenv=gpuenv\n", f"gpuenv={tmp_path}/gpuenv\n").replace(
        "host=/host\n", "host=\n"
    )
    script = script.replace("seconds=4\n", "seconds=1\n" if "sleep" in answer else "seconds=60\n")
    ran = subprocess.run(["sh", "-c", script], env=os.environ, capture_output=True, text=True, check=False)
    assert ran.returncode == code, ran.stderr
    assert ran.stdout == line.format(env=env)[:79] + "\n"
    called = (tmp_path / "calls").read_text()
    assert called.startswith("verify --quick --node -q --timeout ") and called.endswith(f" {env}\n")


@rows("form", ["npd", "prolog", "healthcheck"])
def test_a_check_of_gpus_is_for_locks_with_cuda(form):
    with pytest.raises(UsageError, match="the lock is for the CPU"):
        el.text(form, CPU)


def test_prolog_and_health_check_run_the_same_lines():
    bodies = [el.text(form).split("# Edit these")[1] for form in ("prolog", "healthcheck")]
    assert bodies[0] == bodies[1]
    assert "HealthCheckProgram=" in el.text("healthcheck") and "Prolog=" in el.text("prolog")


@rows("form", ["prolog", "healthcheck", "taskprolog"])
def test_scripts_for_slurm_are_valid_sh(form):
    done = subprocess.run(["sh", "-n"], input=el.text(form), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
