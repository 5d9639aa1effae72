"""Wheel variants: chosen by gpuenv for every GPU of the target, locked by address and hash, and installed."""

import base64
import hashlib
import json
import re
import sys

import pytest
import tomllib
from bundle_site import add_own
from environment_facts import installed, ok, refused
from framework_envs import venv
from packaging.pylock import Pylock
from programs import run_program
from rows import sampled
from torch_project import HERE
from variants import TRIAL, add_real, add_variants, nvidia, table

from provision.index.uv import program

V100_H100 = ("--gpu", "7.0", "--gpu", "9.0")


H100 = {
    "UV_PREVIEW_FEATURES": "wheel-variants",
    "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION": "13.0",
    "NV_VARIANT_PROVIDER_FORCE_SM_ARCH": "9.0",
}


def uv(gpuenv, *words, forced=H100):
    """Run uv with its preview of variants, as for a machine with an H100."""
    env = {**gpuenv.env, "UV_NO_CONFIG": "1", **forced}
    return run_program([program(), *words], env=env, cwd=gpuenv.work)


@pytest.fixture
def torch(gpuenv, index):
    """`gpuenv VERB` for torch on the index on loopback, which has variants of a torch that no row knows."""
    index.add("pip", "26.0")
    add_variants(index, "torch", "2.99.0")
    gpuenv.env["PIP_INDEX_URL"] = index.url

    def run(verb, *more):
        return gpuenv(verb, "--framework", "torch", "--python", HERE, "--index", "pypi", *more)

    return run


def chosen_by_uv(gpuenv, index, cuda, capability):
    """The wheel of demo that uv chooses for a driver and the best GPU."""
    forced = {
        **H100,
        **dict(zip(list(H100)[1:], (cuda, capability), strict=True)),
        "RUST_LOG": "uv_resolver=debug",
    }
    words = ("pip", "compile", "requirements.txt", "--index-url", index.url, "--python", sys.executable)
    done = uv(gpuenv, *words, forced=forced)
    return re.search(r"\((demo-\S+)\)", done.stderr)[1]


def locked(gpuenv, path="pylock.toml"):
    """The file of each package in the lock, and its digest. The lock is valid by PEP 751."""
    document = tomllib.loads((gpuenv.work / path).read_text())
    Pylock.from_dict(document)
    wheels = {p["name"]: p["wheels"][0] for p in document["packages"]}
    return {n: (w["url"].rpartition("/")[2], w["hashes"]["sha256"]) for n, w in wheels.items()}


@pytest.mark.parametrize(
    ("target", "label", "forced", "of_uv"),
    [
        (("--driver", "580.65.06", "--gpu", "9.0"), "cu130", ("13.0", "9.0"), "cu130"),
        (
            ("--driver", "580.65.06", *V100_H100),
            "cu126",
            ("13.0", "9.0"),
            "cu130",
        ),  # without kernels for the V100
        (
            ("--driver", "550.54.15", "--gpu", "9.0"),
            "cu126",
            ("12.4", "9.0"),
            "null",
        ),  # minor-version compatibility
        (("--device", "cpu"), "null", ("0.0", "9.0"), "null"),
    ],
)
def test_the_variant_fits_every_gpu_of_the_target(torch, gpuenv, index, target, label, forced, of_uv):
    """uv speaks of one GPU, the one with the highest capability."""
    add_variants(index, "demo", "1.0")
    (gpuenv.work / "requirements.txt").write_text("torch\ndemo\n")
    ok(torch("lock", "-r", "requirements.txt", *target))
    found = locked(gpuenv)
    for name, version in (("torch", "2.99.0"), ("demo", "1.0")):
        file = f"{name}-{version}-py3-none-any-{label}.whl"
        assert found[name] == (file, hashlib.sha256(index.wheels[name][file]).hexdigest())
    assert chosen_by_uv(gpuenv, index, *forced) == f"demo-1.0-py3-none-any-{of_uv}.whl"


@pytest.mark.parametrize("by", ["--index", "UV_INDEX"])
def test_the_variants_of_the_pytorch_index_are_an_index_of_their_own(gpuenv, index, by):
    add_variants(index, "torch", "2.99.0")
    index.add("pip", "26.0")
    index.prefix = "/whl/test/variant"
    url = index.url.replace("/simple", index.prefix)
    gpuenv.env |= {"GPUENV_INDEX_PYTORCH": index.url.replace("/simple", "/whl")}
    ask = ("lock", "--framework", "torch>=2.98", "--python", HERE, "--driver", "580.65.06", "--gpu", "9.0")
    if by == "--index":
        ran = gpuenv(*ask, by, url)
    else:
        gpuenv.env[by] = url
        ran = gpuenv(*ask)
    assert ran.code == 0, ran.err
    assert locked(gpuenv)["torch"][0] == "torch-2.99.0-py3-none-any-cu130.whl"


def test_a_variant_for_the_cpu_is_refused_with_the_reasons_against_each(torch, gpuenv, index):
    """uv takes the null variant on this machine, without a word."""
    add_variants(index, "torch", "2.98.0", {"cu128": nvidia("12.8", "90_real", "120_real"), "null": {}})
    add_variants(index, "demo", "1.0")
    index.add("demo", "0.9")
    (gpuenv.work / "requirements.txt").write_text("torch\ndemo\n")
    target = ("--driver", "570.86.10", "--gpu", "12.0", "-r", "requirements.txt")
    plan = torch("resolve", *target, "--json").json
    assert [(b["version"], b["cuda"]) for b in plan["builds"]] == [("2.98.0", "12.8")]
    newest = {
        r["cuda"]: [x["code"] for x in r["reasons"]] for r in plan["rejected"] if r["version"] == "2.99.0"
    }
    assert newest == {
        "12.6": ["gpu_too_new"],
        "13.0": ["driver_too_old"],
        None: ["platform_unsupported"],
    }
    ran = ok(torch("lock", *target))
    told = " ".join(ran.err.split())
    assert re.search(r"variant of demo 1\.0 fits: cu126: no kernels [^;]*12\.0;", told)
    assert "cu130: CUDA 13 needs driver 580.65.06" in told and "null: is a CPU build" in told
    assert locked(gpuenv)["demo"][0] == "demo-0.9-py3-none-any.whl"
    assert chosen_by_uv(gpuenv, index, "12.8", "12.0") == "demo-1.0-py3-none-any-null.whl"
    del index.wheels["demo"]["demo-0.9-py3-none-any.whl"]
    assert "null: is a CPU build" in " ".join(refused(torch("lock", *target, "--upgrade"), 6).err.split())


def test_uv_cannot_lock_variants_and_installs_those_that_are_locked(torch, gpuenv, index):
    (gpuenv.work / "torch.in").write_text("torch\n")
    compiled = (
        "pip",
        "compile",
        "torch.in",
        "--index-url",
        index.url,
        "--python",
        sys.executable,
        "--format",
    )
    done = uv(gpuenv, *compiled, "requirements.txt")
    assert done.returncode == 0 and "torch==2.99.0" in done.stdout, done.stderr
    done = uv(gpuenv, *compiled, "pylock.toml")
    assert done.returncode and "resolved to a wheel variant, which pylock.toml" in done.stderr, (
        "uv writes variants into pylock.toml now. Read them from its answer in provision/lock/compile.py "
        f"(parse_pylock), judge them there, and drop the file with their metadata (lock/variants.py): {done}"
    )
    ok(torch("lock", "--driver", "580.65.06", *V100_H100))
    venv(gpuenv.work / "of-uv")
    done = uv(gpuenv, "pip", "sync", "pylock.toml", "--python", "of-uv/bin/python")
    assert done.returncode == 0, done.stderr
    (module,) = (gpuenv.work / "of-uv").glob("lib/python3*/site-packages/torch/__init__.py")
    assert "LABEL = 'cu126'" in module.read_text()


def test_an_ordinary_wheel_beside_variants_is_a_build_for_the_cpu(torch, gpuenv, index):
    """uv takes it where no variant fits, and names no variant then."""
    fits_none = {"cu126": TRIAL["cu126"], "cu130": TRIAL["cu130"]}
    add_variants(index, "torch", "2.98.0", {"cu128": nvidia("12.8", "120_real")})
    add_variants(index, "some-demo", "1.0", fits_none)
    index.add("some-demo", "1.0")
    index.add("some-demo", "0.9")
    (gpuenv.work / "requirements.txt").write_text("torch\nsome-demo\n")
    ran = torch("lock", "-r", "requirements.txt", "--driver", "570.86.10", "--gpu", "12.0")
    assert ran.code == 0 and "null: is a CPU build" in " ".join(ran.err.split()), ran.err
    assert locked(gpuenv)["some-demo"][0] == "some_demo-0.9-py3-none-any.whl"
    ran = torch("lock", "-r", "requirements.txt", "--device", "cpu", "--upgrade", "--force")
    assert ran.code == 0 and locked(gpuenv)["some-demo"][0] == "some_demo-1.0-py3-none-any.whl", ran.err


def test_exports_for_other_installers_say_what_they_do_with_variants(torch, gpuenv, index):
    ran = torch("lock", "--driver", "580.65.06", *V100_H100)
    ran = gpuenv("export", "--format", "requirements", "--output", "requirements.txt")
    told = " ".join(ran.err.split())
    assert ran.code == 0 and "torch: these are wheel variants" in told, ran.err
    forced = dict(re.findall(r"(\w+)=(\S+)(?= NV_|\. )", told))
    assert forced == H100 | {
        "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION": "12.6",
        "NV_VARIANT_PROVIDER_FORCE_SM_ARCH": "7.0",
    }
    venv(gpuenv.work / "of-uv")
    words = ("--no-deps", "--require-hashes", "-r", "requirements.txt", "--python", "of-uv/bin/python")
    done = uv(gpuenv, "pip", "install", *words, forced=forced)
    assert done.returncode == 0, done.stderr
    (module,) = (gpuenv.work / "of-uv").glob("lib/python3*/site-packages/torch/__init__.py")
    assert "LABEL = 'cu126'" in module.read_text()
    assert not gpuenv("export", "--format", "pylock").err


@pytest.mark.parametrize("broken", sampled(["text", "values", "404", "500", "no table", "no label"], 2))
def test_variants_that_cannot_be_read_leave_the_ordinary_wheel(gpuenv, index, broken):
    ask = (
        "--framework",
        "torch",
        "--python",
        HERE,
        "--index",
        "pypi",
        "--driver",
        "580.65.06",
        "--gpu",
        "9.0",
    )
    index.add_plan(gpuenv("resolve", *ask, "--json").json)
    gpuenv.env |= {"PIP_INDEX_URL": index.url}
    add_variants(index, "demo", "1.0")
    index.add("demo", "1.0")
    name = "demo-1.0-variants.json"
    texts = {"text": "{no", "values": json.dumps({"variants": {"cu126": {"nvidia": {"sm_arch": "90_real"}}}}),
             "no label": table({"other": {}})}  # fmt: skip
    if broken == "no table":
        del index.wheels["demo"][name]
    elif broken in texts:
        index.wheels["demo"][name] = texts[broken].encode()
    else:
        index.faults[name] = broken
    (gpuenv.work / "requirements.txt").write_text("demo\n")
    ran = ok(gpuenv("lock", *ask, "-r", "requirements.txt"))
    label = "-null" if broken == "no label" else ""  # PEP 825 reserves this one
    assert locked(gpuenv)["demo"][0] == f"demo-1.0-py3-none-any{label}.whl"
    assert (f"the variants in {name} cannot be read" in " ".join(ran.err.split())) == (
        not broken.startswith("no ")
    )


def test_variants_of_a_real_package_are_installed_for_another_machine(torch, gpuenv, index):
    """Another package requires them. This machine has no GPU, so uv alone would refuse the locked variant."""
    version = add_real(index, "packaging")
    index.add("brings", "1.0", ("packaging",))
    (gpuenv.work / "requirements.txt").write_text("torch\nbrings\n")
    options = ("-r", "requirements.txt", "--driver", "580.65.06", *V100_H100, "--no-verify")
    ok(torch("create", *options))
    assert installed(gpuenv.work / ".venv")["packaging"] == version
    (info,) = (gpuenv.work / ".venv").glob("lib/python3*/site-packages/packaging-*.dist-info")
    assert list(json.loads((info / "variant.json").read_text())["variants"]) == ["cu126"]
    assert locked(gpuenv, ".venv/.gpuenv/pylock.toml")["packaging"][0].endswith("-cu126.whl")
    index.faults["packaging-" + version + "-py3-none-any-cu126.whl"] = "tampered"
    ran = torch("create", *options, "--recreate", "--cache-dir", "other")
    assert ran.code != 0 and "its hash differs" in " ".join(ran.err.split()), ran.err


def test_a_bundle_installs_variants_without_a_network(torch, gpuenv, index):
    target = ("--driver", "580.65.06", *V100_H100)
    add_own(index)
    gpuenv.env |= {"UV_PYTHON_INSTALL_MIRROR": "file:///nowhere"}
    torch("lock", *target)
    path = gpuenv.work / "pylock.toml"  # a lock that this machine accepts
    path.write_text(path.read_text().replace('device = "cuda"', 'device = "cpu"'))
    ok(gpuenv("bundle", "carried"))
    assert (gpuenv.work / "carried/wheels/torch-2.99.0-py3-none-any.whl").is_file()
    index.faults["whl"] = "500"
    ok(gpuenv("create", "--bundle", "carried", "--no-verify"))
    (module,) = (gpuenv.work / ".venv").glob("lib/python3*/site-packages/torch/__init__.py")
    assert "LABEL = 'cu126'" in module.read_text()


def test_an_index_with_a_password_is_read_with_it(torch, gpuenv, index):
    add_variants(index, "demo", "1.0")
    index.needs = "Basic " + base64.b64encode(b"me:secret").decode()
    gpuenv.env["PIP_INDEX_URL"] = index.url.replace("http://", "http://me:secret@")
    (gpuenv.work / "requirements.txt").write_text("torch\ndemo\n")
    ran = ok(torch("lock", "-r", "requirements.txt", "--driver", "580.65.06", "--gpu", "9.0"))
    assert locked(gpuenv)["demo"][0].endswith("-cu130.whl")
    assert "secret" not in ran.out + ran.err + (gpuenv.work / "pylock.toml").read_text()
