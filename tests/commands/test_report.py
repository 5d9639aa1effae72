"""`gpuenv report`: what helps is in it, and nothing that says whose it is."""

import json
import os
import re
import socket
import sys
from pathlib import Path

import pytest
from environment_facts import ok, refused
from rows import rows, sampled

from provision import report
from provision.index import uv
from provision.model import (
    Driver,
    Evidence,
    FrameworkVerdict,
    Gpu,
    HardwareDevice,
    LibraryFile,
    Machine,
    StageResult,
    Target,
    Verdict,
)
from provision.report import PersonalData, ReportFacts, anonymize_text

JANE = PersonalData(
    homes=("/home/jane", "/data/homes/jane"), users=("jane", "Jane Doe"), hosts=("gpubox7.lab.example.org",)
)
UUID = "GPU-3f2a9c04-1111-2222-3333-444455556666"
SECRETS = {
    "password": "hunter2-very-secret",
    "token": "ghp_0123456789abcdefghijABCDEFGHIJ",
    "query": "sig-SgVkXp2s5v8yB",
    "mail": "jane.doe@example.org",
    "key": "a8Kd92LmQzX0vB7nYt3RwE5uP1cH6gJ4",
    "wandb": "0f1e2d3c4b5a69788796a5b4c3d2e1f001234567",
    "uuid": "3f2a9c04-1111-2222-3333-444455556666",
    "serial": "1652922001234",
    "host": "nexus.corp.example.com",
    "repository": "team-blackbird",
}


@rows(
    ("text", "shown"),
    [
        ("/home/jane/x:/data/homes/jane/y", "~/x:~/y"),
        ("/home/janet/x /Users/bob/y C:\\Users\\Bob\\z", "/home/USER/x /Users/USER/y C:\\Users\\USER\\z"),
        ("/mnt/scratch/jane/env jane_project JANE", "/mnt/scratch/USER/env USER_project USER"),
        ("janeiro", "janeiro"),
        ("gpubox7 gpubox7.lab.example.org:22", "HOST HOST:22"),
        ("https://u:p@nexus.corp.example.com:8443/repository/team/simple?sig=1", "https://HOST/.../simple"),
        ("https://download.pytorch.org/whl/cu126", "https://download.pytorch.org/whl/cu126"),
        ("https://tok@conda.anaconda.org/t/tk-1-2/chan", "https://conda.anaconda.org/chan"),
        (uv.own_index().replace("://", "://user:p%40ss@"), uv.own_index()),
        (uv.own_index().replace("://", "://Test.").upper(), uv.own_index().replace("://", "://Test.").upper()),
        ("https://pythonacme.org/team/secret/simple", "https://HOST/.../simple"),
        ("http://127.0.0.1:8080/simple/", "http://127.0.0.1:8080/simple/"),
        (f"{UUID} x {UUID} GPU-99999999-0000-0000-0000-000000000000", "(UUID 1) x (UUID 1) (UUID 2)"),
        ("CUDA_VISIBLE_DEVICES=GPU-3f2a9c04", "CUDA_VISIBLE_DEVICES=(UUID 1)"),
        ("GPU-accelerated GPU-0 MIG-capable", "GPU-accelerated GPU-0 MIG-capable"),
        ("Serial Number : 1652922001234", "Serial Number : ***"),
        ("HF_TOKEN=abc123 and password: 'x y'", "HF_TOKEN=*** and password: '***'"),
        ('{"api_key": "abc"}', '{"api_key": "***"}'),
        ("Authorization: Bearer abcdef012345", "Authorization: ***"),
        ("curl --token abc --password=xyz", "curl --token *** --password=***"),
        ("tokenizers==0.20.1 author=x", "tokenizers==0.20.1 author=x"),
        ("PYTORCH_X=a8Kd92LmQzX0vB7nYt3RwE5uP1cH6gJ4", "PYTORCH_X=***"),
        ("file:///opt/wheels/a.whl", "file:///opt/wheels/a.whl"),
        ("(https://nexus.corp.example.com/a/b): no", "(https://HOST/.../b): no"),
        ("mail jane.doe@example.org now", "mail MAIL now"),
        ("cuRAND 10.3.9.90, cuDNN 9.10.2.21, driver 580.65.06", "cuRAND 10.3.9.90, cuDNN 9.10.2.21, driver 580.65.06"),
        ("connect to 10.20.30.40:3128", "connect to (ADDRESS):3128"),
        ("00:1a:2b:3c:4d:5e at 0000:17:00.0", "(MAC) at 0000:17:00.0"),
        ("undefined symbol: _ZN3c104cuda20CUDACachingAllocator9allocatorE", None),
        ("cudnnGetConvolutionForwardAlgorithm_v7 CUDNN_STATUS_NOT_INITIALIZED", None),
        ("sha256 " + "9f86d081884c7d65" * 4, None),
        ("torch-2.14.1+cu126-cp312-cp312-manylinux_2_28_x86_64.whl", None),
        ("/usr/lib/x86_64-linux-gnu/libcudnn_engines_precompiled.so.9.10.2", None),
        ("XLA_FLAGS=--xla_gpu_enable_triton_gemm=false", None),
    ],
)  # fmt: skip
def test_each_rule_hides_its_kind_of_personal_data(text, shown):
    assert anonymize_text(text, JANE)[0] == (text if shown is None else shown)


def test_names_that_are_words_of_the_report_do_not_ruin_it():
    whose = PersonalData(
        homes=("/root", "/"), users=("root", "torch", "ab"), hosts=("gpu", "cuda.example.org")
    )
    text = "torch 2.14.1 root cause CUDA GPU /root/x /home/torch/y /nfs/ab/z AB"
    assert (
        anonymize_text(text, whose)[0] == "torch 2.14.1 root cause CUDA GPU ~/x /home/USER/y /nfs/USER/z AB"
    )


def test_a_private_key_is_removed_completely():
    pem = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\naC1rZXk\n-----END OPENSSH PRIVATE KEY-----"
    assert anonymize_text(f"a\n{pem}\nb", JANE)[0] == "a\n***\nb"


def test_hidden_text_stays_as_it_is():
    """What has been hidden once is not found again: the text is stable."""
    text = " ".join(f"{k}={v}" for k, v in SECRETS.items()) + f" /home/jane gpubox7 {UUID}"
    once, counts = anonymize_text(text, JANE)
    assert anonymize_text(once, JANE)[0] == once and sum(counts.values()) >= 8


def test_hostile_values_stay_inside_their_code_block():
    machine = Machine(target=Target(platform="linux-x86_64"), environment={"TF_X": "```\n# @all\x1b[31m #1"})
    text = report.write_report(
        report.ReportFacts(gpuenv="1", python="3.12", machine=machine, when="now"), PersonalData()
    ).text
    assert "TF_X=''' # @all #1" in text
    assert text.count("```") == 2 * text.count("### ")


def planted(gpuenv):
    """An environment, variables, pip.conf and a home, full of what must not be seen."""
    s = SECRETS
    home = gpuenv.folder / "homes" / "jane-doe-7"
    work = home / "thesis"
    mark = work / ".venv" / ".gpuenv"
    mark.mkdir(parents=True)
    url = f"https://jane-doe-7:{s['password']}@{s['host']}/repository/{s['repository']}/simple?t={s['query']}"
    build = {"framework": "torch", "version": "2.14.1", "cuda": "12.6", "index": url, "requirements": [],
             "cudnn": "9.10.2.21"}  # fmt: skip
    target = {"platform": "linux-x86_64", "driver": "580.65.06", "gpus": [{"capability": "9.0"}]}
    reason = {"code": "driver_too_old", "text": f"asked {url}"}
    plan = {
        "builds": [build], "python": "3.12", "platform": "linux-x86_64", "manager": "venv", "device": "cuda",
        "target": target, "notes": [f"read {url}", f"in {home}/x"],
        "rejected": [{"framework": "torch", "version": "2.15.0", "cuda": "13.0", "index": url, "reasons": [reason]}],
    }  # fmt: skip
    (mark / "plan.json").write_text(json.dumps(plan))
    evidence = [
        {"text": f"LD_LIBRARY_PATH={home}/lib on {socket.gethostname()}", "source": f"{home}/log"},
        {"text": f"WANDB_API_KEY={s['wandb']} Authorization: Bearer {s['key']}"},
        {"text": f"{s['mail']} {s['token']} GPU-{s['uuid']} Serial Number: {s['serial']}"},
        {"text": f"{s['key']} {s['wandb']}"},
    ]
    stages = [
        {
            "stage": "cudnn",
            "status": "fail",
            "detail": f"cannot load {home}/libcudnn.so.9",
            "evidence": evidence,
        }
    ]
    verdict = {"env": str(work), "python": str(work), "verdict": "fails", "stages": stages}
    (mark / "verdict.json").write_text(json.dumps({"verdict": verdict, "under": {}}))
    packages = "".join(
        f'[[packages]]\nname = "{n}"\nversion = "1.0"\nindex = "{url}"\n'
        for n in ("torch", "nvidia-cudnn-cu13")
    )
    (mark / "pylock.toml").write_text(f'lock-version = "1.0"\ncreated-by = "{url}"\n{packages}')
    (home / "pip.conf").write_text(f"[global]\nextra-index-url = {url}\n")
    gpuenv.env |= {
        "HOME": str(home), "USER": "jane-doe-7", "PIP_CONFIG_FILE": str(home / "pip.conf"), "PIP_INDEX_URL": url,
        "UV_INDEX_URL": url, "TORCH_HOME": f"{home}/torch", "TF_PRIVATE_TOKEN": s["password"],
        "XLA_FLAGS": f"--xla_dump_to={url}", "CUDA_VISIBLE_DEVICES": f"GPU-{s['uuid']}",
        "LD_LIBRARY_PATH": f"{home}/lib:/scratch/jane-doe-7/lib", "PYTORCH_CUDA_ALLOC_CONF": s["key"],
        # conda-lock, once imported here, puts libraries of its own onto sys.path, an old packaging among them
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p and "_vendor" not in p),
    }  # fmt: skip
    gpuenv.work = work
    return home


@pytest.mark.parametrize("words", sampled([(), (".venv",), ("--json",)], 2))
def test_no_planted_personal_data_is_in_the_report(gpuenv, words):
    home = planted(gpuenv)
    ran = ok(gpuenv("report", *words))
    seen = (ran.out + ran.err).lower()
    for kind, secret in {**SECRETS, "home": str(home), "user": "jane-doe-7"}.items():
        assert secret.lower() not in seen, kind
    host = socket.gethostname()
    assert not re.search(rf"(?<![a-z0-9]){re.escape(host.lower())}(?![a-z0-9])", seen)
    for word in ("torch 2.14.1", "9.10.2.21", "cudnn", "fails", "~/thesis/.venv", "580.65.06", "2.15.0",
                 "ld_library_path=~/lib:/scratch/user/lib", "https://host/.../simple"):  # fmt: skip
        assert word in seen, word
    if "--json" in words:
        assert set(ran.json) == {"schema", "gpuenv", "text", "hidden"}
        assert ran.json["schema"] == "gpuenv.report/1"
        assert ran.json["hidden"]["credentials"] > 2 and ran.json["hidden"]["UUIDs"] >= 2


def test_a_damaged_environment_is_reported_as_such(gpuenv):
    planted(gpuenv)
    (gpuenv.work / ".venv" / ".gpuenv" / "verdict.json").write_text("{")
    ran = gpuenv("report")
    assert ran.code == 0 and "### Could not be read" in ran.out and "verdict.json" in ran.out
    assert SECRETS["password"] not in ran.out


def test_a_machine_with_gpus_and_a_verdict_on_them_are_in_the_report():
    """No machine of the tests has one."""
    gpu = Gpu(index=0, name="H200", capability="9.0", memory_mib=9, uuid=UUID, mig=("1g.18gb",))
    board = HardwareDevice(vendor="nvidia", address="0000:19:00.0", device="0x2335")
    driver = Driver(library="580.1", cuda="13.0", source="nvml", libcuda="/home/jane/lib/libcuda.so.1")
    outside = LibraryFile(soname="libcudnn.so.9", path="/home/jane/libcudnn.so.9", inside=False)
    inside = LibraryFile(soname="libcublas.so.13", path="/env/libcublas.so.13", inside=True)
    frameworks = (
        FrameworkVerdict(
            name="torch", version="2.9.0", cuda="13.0", cudnn_built="9.1", libraries=(outside, inside)
        ),
        FrameworkVerdict(name="jax", version="0.7"),
    )
    long = StageResult(
        stage="driver",
        status="fail",
        detail="no",
        evidence=tuple(Evidence(f"line {i}", "stderr") for i in range(15)),
    )
    facts = ReportFacts(
        gpuenv="1", python="3.12", when="now", env="/env",
        machine=Machine(target=Target(platform="linux-x86_64"), driver=driver, gpus=(gpu,), hardware=(board,)),
        verdict=Verdict(env="/env", python="p", verdict="fails", stages=(long,), frameworks=frameworks),
    )  # fmt: skip
    text = report.write_report(facts, JANE).text
    for line in (
        "driver    580.1, kernel module unknown, supports CUDA 13.0, read from nvml",
        "libcuda   ~/lib/libcuda.so.1",
        "GPU 0     H200, capability 9.0, 9 MiB, (UUID 1), MIG 1g.18gb",
        "hardware  nvidia 0x2335 at 0000:19:00.0",
        "torch 2.9.0: CUDA 13.0, built for cuDNN 9.1, loaded cuDNN none",
        "  from outside the environment: libcudnn.so.9  ~/libcudnn.so.9",
        "      > and 3 more",
    ):
        assert f"{line}\n" in text, text
    assert "jax 0.7" not in text and "libcublas" not in text and "line 12" not in text


def test_report_works_without_an_environment(gpuenv):
    gpuenv.env |= {
        "UV_DEFAULT_INDEX": "https://me:s3cret@own.example/simple",
        "UV_INDEX": "https://b.example/s",
    }
    ran = gpuenv("report")
    assert ran.code == 0 and ran.out.startswith("gpuenv ") and "### Machine" in ran.out
    assert ".venv is missing" in ran.out and "own.example" not in ran.out
    assert "an index from the configuration" in ran.out and "1 more from the configuration" in ran.out


def test_report_accepts_an_environment_of_another_tool_and_refuses_none(gpuenv):
    assert "not made by gpuenv" in ok(gpuenv("report", Path(sys.prefix))).out
    assert "nowhere" in refused(gpuenv("report", "nowhere", "--json"), 2).json["error"]["message"]
