"""The exports for Kubernetes: manifests that its schemas accept, and a plugin that speaks as its detector asks."""

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import warnings

import certifi
import export_locks as el
import pytest
import yaml
from programs import run_program
from rows import rows

from provision.errors import UsageError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the packages that it imports
    import kubernetes_validate

CPU = el.of(device="cpu")


def manifests(form, *lock, **subject):
    """The manifests of an export by their kinds, each checked against the schema of Kubernetes."""
    found = list(yaml.safe_load_all(el.text(form, *lock, **subject)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one in found:
            kubernetes_validate.validate(one, desired_version="1.31", strict=True)
    return {one["kind"]: one for one in found}


def test_the_schemas_refuse_what_is_wrong():
    wrong = el.text("job").replace("backoffLimit: 3", "backofLimit: 3")
    with pytest.raises(kubernetes_validate.ValidationError, match="backofLimit"):
        kubernetes_validate.validate(yaml.safe_load(wrong), desired_version="1.31", strict=True)


@rows(("lock", "words", "gpus"), [((), [], True), ((CPU,), ["--device", "cpu"], False)])
def test_a_job_verifies_its_environment_before_it_starts(lock, words, gpus):
    job = manifests("job", *lock)["Job"]
    pod = job["spec"]["template"]["spec"]
    (verify,), (train,) = pod["initContainers"], pod["containers"]
    assert verify["command"] == ["gpuenv", "verify", *words, "--quick", "/opt/env"]
    assert ("nvidia.com/gpu" in verify["resources"]["limits"]) is gpus
    assert verify["resources"] == train["resources"]


@rows("form", ["job", "daemonset"])
def test_pods_have_the_least_rights_a_namespace_resources_and_images_by_digest(form):
    """As the level "restricted" of Kubernetes asks."""
    for one in manifests(form).values():
        if one["kind"] not in ("Job", "DaemonSet"):
            continue
        pod = one["spec"]["template"]["spec"]
        assert one["metadata"]["namespace"] and pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not any("hostPath" in v for v in pod.get("volumes", ()))
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            rights = container["securityContext"]
            assert not rights["allowPrivilegeEscalation"] and rights["capabilities"] == {"drop": ["ALL"]}
            assert container["image"] == "IMAGE" and set(container["resources"]) == {"requests", "limits"}
        assert "s|IMAGE|registry.example.com/train@sha256:...|" in el.text(form)


def test_only_the_container_that_taints_has_a_token_and_it_sees_no_gpu():
    found = manifests("daemonset")
    assert found["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}
    ]
    assert found["ServiceAccount"]["automountServiceAccountToken"] is False
    pod = found["DaemonSet"]["spec"]["template"]["spec"]
    check, taint = pod["containers"]
    assert [m["name"] for m in check["volumeMounts"]] == ["result", "tmp"]
    assert "token" in [m["name"] for m in taint["volumeMounts"]]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in taint["env"]
    assert not any("nvidia.com/gpu" in str(c["resources"]) for c in pod["containers"])


class Api(http.server.BaseHTTPRequestHandler):
    """The API of Kubernetes with one node."""

    def do_GET(self):
        self.server.answer(self, self.server.node)

    def do_PATCH(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        node = self.server.node
        assert body["metadata"]["resourceVersion"] == node["metadata"]["resourceVersion"]
        node["spec"]["taints"] = body["spec"]["taints"]
        self.server.answer(self, node)

    def log_message(self, *words):
        pass


def test_a_node_is_tainted_until_its_check_passes_and_other_taints_stay(tmp_path):
    other = {"key": "maintenance", "effect": "NoSchedule"}
    with http.server.HTTPServer(("127.0.0.1", 0), Api) as server:
        server.node, asked = {"metadata": {"resourceVersion": "7"}, "spec": {"taints": [other]}}, []

        def answer(request, document):
            asked.append((request.path, request.headers["Authorization"]))
            request.send_response(200)
            request.end_headers()
            request.wfile.write(json.dumps(document).encode())

        server.answer = answer
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (tmp_path / "token").write_text("secret")
        shutil.copy(certifi.where(), tmp_path / "ca.crt")
        script = manifests("daemonset")["ConfigMap"]["data"]["taint.py"]
        variables = {
            **os.environ, "NODE": "gpu-07", "API": f"http://127.0.0.1:{server.server_port}", "PAUSE": "0.02",
            "TOKEN": str(tmp_path), "RESULT": str(tmp_path / "now"),
        }  # fmt: skip
        running = subprocess.Popen(
            [sys.executable, "-I", "-c", script], env=variables, stdout=subprocess.DEVNULL
        )
        try:
            for said, value in (
                ("8 driver_library_mismatch: the kernel module", "driver_library_mismatch"),
                ("10 gpu_hardware_fault: The driver does not respond", "gpu_hardware_fault"),
                ("4 ", "gpu_hardware_fault"),
                ("0 no NVIDIA GPU found on this machine", "gpu_hardware_fault"),
                ("0 driver 580.65.06, CUDA 13.0: NVIDIA H100", None),
            ):
                (tmp_path / "new").write_text(said + "\n")
                (tmp_path / "new").rename(tmp_path / "now")
                mine = [{"key": "gpuenv/fault", "value": value, "effect": "NoSchedule"}] if value else []
                until = time.monotonic() + 10
                while server.node["spec"]["taints"] != [other, *mine] and time.monotonic() < until:
                    time.sleep(0.02)
                time.sleep(0.1)  # and nothing else follows
                assert server.node["spec"]["taints"] == [other, *mine], said
        finally:
            running.kill()
            running.wait()
            server.shutdown()
    assert set(asked) == {("/api/v1/nodes/gpu-07", "Bearer secret")}


def test_the_detectors_configuration_names_the_script_beside_it():
    data = manifests("npd")["ConfigMap"]["data"]
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
        ("echo 'gpu_hardware_fault: The driver'; exit 10", 1, "gpu_hardware_fault: The driver"),
        ("echo 'error' >&2; exit 2", 2, "exit code 2 of gpuenv: {env} was not checked"),
        ("exec sleep 100", 2, "exit code 137 of gpuenv: {env} was not checked"),
    ],
)
def test_the_plugin_ends_with_0_1_or_2_and_one_short_line(tmp_path, answer, code, line):
    env = str(tmp_path / "an environment")
    (tmp_path / "gpuenv").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{answer}\n')
    (tmp_path / "gpuenv").chmod(0o755)
    script = manifests("npd", env=env)["ConfigMap"]["data"]["gpuenv-node.sh"]
    script = script.replace("gpuenv=gpuenv\n", f"gpuenv={tmp_path}/gpuenv\n").replace(
        "host=/host\n", "host=\n"
    )
    script = script.replace("seconds=20\n", "seconds=1\n" if "sleep" in answer else "seconds=60\n")
    ran = run_program(["sh", "-c", script], env=os.environ)
    assert ran.returncode == code, ran.stderr
    assert ran.stdout == line.format(env=env)[:79] + "\n"
    called = (tmp_path / "calls").read_text()
    assert called.startswith("verify --quick --node -q --timeout ") and called.endswith(f" {env}\n")


@rows("form", ["npd", "daemonset", "prolog", "healthcheck"])
def test_a_check_of_gpus_is_for_locks_with_cuda(form):
    with pytest.raises(UsageError, match="the lock is for the CPU"):
        el.text(form, CPU)


def test_prolog_and_health_check_run_the_same_lines():
    bodies = [el.text(form).split("# Edit these")[1] for form in ("prolog", "healthcheck")]
    assert bodies[0] == bodies[1]
    assert "HealthCheckProgram=" in el.text("healthcheck") and "Prolog=" in el.text("prolog")


@rows("shell", ["dash", "bash"])
def test_a_prolog_that_can_write_nothing_still_ends_with_0(shell):
    """Slurm would drain the node for any other status."""
    script = el.text("prolog").replace("/run/gpuenv", "/proc/nowhere")
    ran = run_program([shell, "-c", script], check=True)
    assert "was not checked: no response" in ran.stderr


@rows("form", ["prolog", "healthcheck", "taskprolog"])
def test_scripts_for_slurm_are_valid_sh(form):
    run_program(["sh", "-n"], input=el.text(form), check=True)
