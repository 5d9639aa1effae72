"""Creating environments from indexes that fail, refuse or have other files."""
# ruff: noqa: F811  # fixtures are imported by their names

import hashlib
import json
import shutil

import pytest
from environment_facts import ok, refused
from torch_project import HERE, torch  # noqa: F401


def test_a_wheel_with_another_hash_is_refused_and_nothing_stays(torch, gpuenv, index):
    assert torch(verb="lock").code == 0
    lock = gpuenv.work / "pylock.toml"
    lock.write_text(lock.read_text().replace('device = "cuda"', 'device = "cpu"'))
    shutil.rmtree(gpuenv.env["UV_CACHE_DIR"])
    file = next(iter(index.wheels["nvidia-cudnn-cu13"]))
    index.faults[file] = "tampered"
    ran = refused(gpuenv("create", "--locked", "--no-verify", "--json"), 7)
    assert ran.json["schema"] == "gpuenv.error/1"
    assert "nvidia-cudnn-cu13" in ran.json["error"]["message"] and "hash" in ran.json["error"]["message"]
    assert sorted(p.name for p in gpuenv.work.iterdir()) == ["pylock.toml"]


def test_an_index_that_refuses_connections_is_named_without_its_password(torch, gpuenv):
    gpuenv.env["PIP_INDEX_URL"] = "http://user:secret@127.0.0.1:9/simple"
    ran = refused(torch("--json"), 9)
    assert "127.0.0.1:9" in ran.json["error"]["message"]
    assert "secret" not in ran.out + ran.err
    assert not list(gpuenv.work.iterdir())


@pytest.mark.parametrize(("status", "code"), [("403", 9), ("404", 6), ("500", 9)])
def test_an_index_that_fails_names_the_package(torch, gpuenv, index, status, code):
    index.faults["/simple/nvidia-cudnn-cu13/"] = status
    assert "nvidia-cudnn-cu13" in json.dumps(refused(torch("--json"), code).json["error"])
    assert not list(gpuenv.work.iterdir())


def test_two_cudnn_packages_are_refused(torch, index):
    name, file = "torch", next(iter(index.wheels["torch"]))
    requires = tuple(r for r in torch.plan["builds"][0]["requirements"][1:] if "===" not in r)
    index.add(name, file.split("-")[1], (*requires, "nvidia-cudnn-cu12"))
    index.add("nvidia-cudnn-cu12", "9.10.2.21")
    ran = refused(torch("--json"), 6)
    assert "nvidia-cudnn-cu12" in ran.json["error"]["message"] and "two" in ran.json["error"]["message"]


def test_a_cpu_wheel_never_answers_for_a_cuda_plan(torch, tmp_path):
    """A +cpu wheel of the same version in find-links is not taken, though `==` would take it."""
    from loopback import wheel_bytes

    version = torch.plan["builds"][0]["version"]
    links = tmp_path / "links"
    links.mkdir()
    (links / f"torch-{version}+cpu-py3-none-any.whl").write_bytes(wheel_bytes("torch", f"{version}+cpu"))
    ran = ok(torch("--json", "--find-links", links, verb="lock"))
    assert [p["version"] for p in ran.json["packages"] if p["name"] == "torch"] == [version]


TURING = ("--driver", "550.54.15", "--gpu", "7.5", "--python", HERE)


def test_auto_leaves_out_a_pytorch_index_that_does_not_answer_and_says_so(gpuenv, index):
    """For this target the newest build is on the PyTorch index; the default index has an older one."""
    ask = ("--framework", "torch", *TURING, "--json")
    first = gpuenv("resolve", *ask).json
    assert first["builds"][0]["index"] == "pytorch"
    index.add_plan(gpuenv("resolve", *ask, "--index", "pypi").json)
    gpuenv.env |= {
        "PIP_INDEX_URL": index.url,
        "GPUENV_INDEX_PYTORCH": "http://127.0.0.1:9/whl",
    }
    ran = ok(gpuenv("lock", *ask))
    assert "127.0.0.1:9" in ran.err and "continuing without this index" in " ".join(ran.err.split())
    build = ran.json["plan"]["builds"][0]
    assert build["index"] == "pypi" and build["version"] < first["builds"][0]["version"]
    told = [r for r in ran.json["plan"]["rejected"] if r["index"] == "pytorch"]
    assert told and {x["code"] for r in told for x in r["reasons"]} >= {"index_unreachable"}


def test_a_named_index_that_does_not_answer_is_exit_9(gpuenv, index):
    gpuenv.env |= {
        "PIP_INDEX_URL": index.url,
        "GPUENV_INDEX_PYTORCH": "http://127.0.0.1:9/whl",
    }
    index.add("pip", "26.0")
    ran = gpuenv("create", "--framework", "torch", *TURING, "--index", "pytorch", "--no-verify", "--json")
    assert ran.code == 9 and "127.0.0.1:9" in ran.json["error"]["message"]
    assert not list(gpuenv.work.iterdir())


def test_torch_from_the_pytorch_index_is_never_looked_for_on_another(gpuenv, index):
    """Both indexes hold the very version; the one the plan chose is asked, nvidia's come from the other."""
    from loopback import Index, serving

    ask = ("--framework", "torch", *TURING, "--json")
    plan = gpuenv("resolve", *ask).json
    version = plan["builds"][0]["requirements"][0].removeprefix("torch===")
    index.add_plan(plan)
    with serving(Index()) as other:
        other.add("torch", version, content="# the one that was meant\n")
        other.prefix = "/whl/" + version.partition("+")[2]
        gpuenv.env |= {
            "PIP_INDEX_URL": index.url,
            "GPUENV_INDEX_PYTORCH": other.url.replace("/simple", "/whl"),
        }
        ran = ok(gpuenv("lock", *ask))
    (locked,) = (p for p in ran.json["packages"] if p["name"] == "torch")
    (meant,) = other.wheels["torch"].values()
    assert "/whl/" in locked["index"] and locked["sha256"] == hashlib.sha256(meant).hexdigest()
