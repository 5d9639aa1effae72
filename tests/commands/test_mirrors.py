"""Indexes: every address can be replaced, and what is named for one index is never looked for on another.

Two indexes on 127.0.0.1: the default one, and one in the place of PyTorch's.
"""

import shutil

import pytest
from environment_facts import HERE, ok
from loopback import Index, serving, version_for
from packaging.requirements import Requirement
from rows import sampled

from provision.profiles import load

# The newest build for this target is on the PyTorch index, an older one on the default index.
ASK = ("--framework", "torch", "--driver", "550.54.15", "--gpu", "7.5", "--python", HERE)


def vision_of(build):
    """The torchvision of a planned build of torch, by the profiles."""
    for row in load().builds:
        if (row.framework, row.version, row.index) == (
            "torch",
            build["version"].partition("+")[0],
            build["index"],
        ):
            for need in map(Requirement, row.companions):
                if need.name == "torchvision":
                    return version_for(need)
    raise LookupError(build)


class Two:
    """The command between the two indexes; `plan` is of the PyTorch index."""

    def __init__(self, gpuenv, default, pytorch):
        self.gpuenv, self.default, self.pytorch = gpuenv, default, pytorch
        self.base = pytorch.url.replace("/simple", "/whl")
        pytorch.prefix = "/whl"
        self.plan = gpuenv("resolve", *ASK, "--json").json
        build = self.plan["builds"][0]
        assert build["index"] == "pytorch"
        self.version = build["requirements"][0].removeprefix("torch===")
        self.local = self.version.partition("+")[2]
        self.vision = f"{vision_of(build)}+{self.local}"
        default.add_plan(self.plan)
        pytorch.wheels["torch"] = default.wheels.pop("torch")
        gpuenv.env |= {
            "PIP_INDEX_URL": default.url,
            "GPUENV_INDEX_PYTORCH": self.base,
        }

    def lock(self, *more):
        ran = ok(self.gpuenv("lock", *ASK, "--json", *more))
        return {p["name"]: p for p in ran.json["packages"]}

    def module(self, name):
        return next(
            (self.gpuenv.work / ".venv").glob(f"lib/python3*/site-packages/{name}/__init__.py")
        ).read_text()


def asked(index):
    """The names that an index was asked for."""
    return {p.strip("/").rpartition("/")[2] for p in index.requests if not p.startswith("/files/")}


@pytest.fixture
def two(gpuenv, index):
    with serving(Index()) as other:
        yield Two(gpuenv, index, other)


def plant(two):
    """Higher versions of everything where it is not looked for, and the very version with other contents."""
    for name in ("torch", "torchvision"):
        two.default.add(name, "99.0")
    two.default.add("torch", two.version, content="# of the wrong index\n")
    two.default.add("torchvision", f"99.0+{two.local}")
    for text in two.plan["builds"][0]["requirements"][1:]:
        two.pytorch.add(Requirement(text).name, "99.0", content="# of the wrong index\n")
    two.pytorch.add("pip", "99.0")
    two.pytorch.add("torchvision", two.vision, requires=(f"torch=={two.version}",))


@pytest.mark.usefixtures("real_uv")
def test_neither_index_is_asked_for_what_is_named_for_the_other(two):
    plant(two)
    two.pytorch.add("torch", f"99.0+{two.local}")
    locked = two.lock("--with", "torchvision")
    assert locked["torch"]["version"] == two.version and locked["torchvision"]["version"] == two.vision
    names = {"torch", "torchvision"}
    assert {n for n, p in locked.items() if p["index"].startswith(two.base)} == names
    assert {p["index"] for n, p in locked.items() if n not in names} == {two.default.url}
    assert not [n for n, p in locked.items() if p["version"].startswith("99")]
    assert asked(two.pytorch) == names and not asked(two.default) & names


def test_a_lock_is_installed_from_the_index_of_the_day_named_for_each_package(two):
    """Both indexes hold the very versions, with other contents: the hash alone would end in an error. The addresses
    in the lock are gone, and the passwords in those of today are shown nowhere."""
    plant(two)
    two.default.add("torchvision", two.vision, content="# of the wrong index\n")
    two.lock("--with", "torchvision")
    shutil.rmtree(two.gpuenv.env["UV_CACHE_DIR"])
    for index in (two.default, two.pytorch):
        index.forget()
    lock = two.gpuenv.work / "pylock.toml"
    text = lock.read_text().replace('device = "cuda"', 'device = "cpu"')
    lock.write_text(
        text.replace(two.base, "http://127.0.0.1:9/whl").replace(two.default.url, "http://127.0.0.1:9")
    )
    for name, url in (("PYTORCH", two.base), ("PYPI", two.default.url)):
        two.gpuenv.env[f"GPUENV_INDEX_{name}"] = url.replace("//", "//me:hunter2@")
    ran = ok(two.gpuenv("create", "--locked", "--no-verify", "--json", "-v"))
    names = {"torch", "torchvision"}
    assert asked(two.pytorch) == names and not asked(two.default) & names
    assert "wrong index" not in two.module("torch") + two.module("torchvision")
    kept = "".join(p.read_text() for p in (two.gpuenv.work / ".venv" / ".gpuenv").iterdir() if p.is_file())
    assert "hunter2" not in ran.out + ran.err + kept


def test_a_transitive_torchvision_comes_from_the_pytorch_index_too(two):
    """A package that requires torchvision: uv by itself would look for that on the default index."""
    plant(two)
    two.default.add("detector", "1.0", requires=("torchvision",))
    locked = two.lock("--with", "detector")
    assert locked["torchvision"]["version"] == two.vision
    assert locked["torchvision"]["index"].startswith(two.base)


@pytest.mark.parametrize("variable", ["PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"])
@pytest.mark.parametrize("place", sampled(["", "/cu118"], 2))
def test_a_plan_of_the_default_index_takes_nothing_from_the_pytorch_index(two, variable, place):
    """Many have it as pip's extra index: its torchvision+cu118 would then be newer than torchvision."""
    plan = two.gpuenv("resolve", *ASK, "--index", "pypi", "--json").json
    two.default.add_plan(plan)
    version, vision = plan["builds"][0]["version"], vision_of(plan["builds"][0])
    two.default.add("torchvision", vision, requires=(f"torch=={version}",))
    for name in ("torch", "torchvision", "pip", "triton", "numpy"):
        two.pytorch.add(name, "99.0")
    two.pytorch.add("torch", f"{version}+cu118")
    two.pytorch.add("torchvision", f"{vision}+cu118")
    two.gpuenv.env[variable] = two.base + place
    locked = two.lock("--index", "pypi", "--with", "torchvision")
    assert locked["torch"]["version"] == version and locked["torchvision"]["version"] == vision
    assert not two.pytorch.requests, "nor does a recorded answer come from it"


def test_pips_extra_index_is_the_default_indexs_equal_but_moves_no_build(two):
    """pip merges the two, so the best version of either is taken; what the plan pins stays what it is."""
    plan = two.gpuenv("resolve", *ASK, "--index", "pypi", "--json").json
    two.default.add_plan(plan)
    with serving(Index()) as extra:
        extra.add("pip", "99.0")
        extra.add("torch", "99.0")
        extra.add("triton", "99.0")
        two.gpuenv.env["PIP_EXTRA_INDEX_URL"] = extra.url
        locked = two.lock("--index", "pypi")
    assert locked["pip"]["version"] == "99.0" and locked["pip"]["index"] == extra.url
    assert locked["torch"]["version"] == plan["builds"][0]["version"]
    assert locked["torch"]["index"] == two.default.url
    assert not locked["triton"]["version"].startswith("99")


# --- addresses -----------------------------------------------------------------------------------


def overlay(gpuenv, **addresses):
    folder = gpuenv.folder / "config" / "gpuenv" / "profiles"
    folder.mkdir(parents=True, exist_ok=True)
    rows = "".join(f'  - {{index: "{name}", url: "{url}"}}\n' for name, url in addresses.items())
    text = f'- table: "indexes"\n  source: "our network"\n  read: "2026-11-20"\n  rows:\n{rows}'
    (folder / "indexes.yaml").write_text(text)


def project(gpuenv, **addresses):
    rows = "".join(f"  {name}: {url}\n" for name, url in addresses.items())
    (gpuenv.work / "gpuenv.yaml").write_text(f"frameworks: [torch]\nindexes:\n{rows}")


@pytest.mark.parametrize("way", ["variable", "gpuenv.yaml", "profiles"])
def test_both_addresses_can_be_replaced(two, way):
    del two.gpuenv.env["PIP_INDEX_URL"], two.gpuenv.env["GPUENV_INDEX_PYTORCH"]
    theirs, nowhere = {"pypi": two.default.url, "pytorch": two.base}, "http://127.0.0.1:9/whl"
    weaker = {"pypi": nowhere, "pytorch": nowhere}
    if way == "variable":
        two.gpuenv.env |= {f"GPUENV_INDEX_{k.upper()}": v for k, v in theirs.items()}
        project(two.gpuenv, **weaker)
    elif way == "gpuenv.yaml":
        project(two.gpuenv, **theirs)
    if way != "profiles":
        overlay(two.gpuenv, **weaker)
    else:
        overlay(two.gpuenv, **theirs)
    two.gpuenv.env["PIP_INDEX_URL"] = nowhere
    ask = ASK if way == "profiles" else ASK[2:]
    ran = ok(two.gpuenv("lock", *ask, "--json"))
    locked = {p["name"]: p for p in ran.json["packages"]}
    assert locked["torch"]["index"] == f"{two.base}/{two.local}" and locked["pip"]["index"] == two.default.url


def test_a_mirror_need_not_be_laid_out_as_the_original(two):
    two.pytorch.prefix = "/wheels-for-torch"
    base = two.pytorch.url.replace("/simple", "/wheels-for-torch")
    two.gpuenv.env["GPUENV_INDEX_PYTORCH"] = base
    assert two.lock()["torch"]["index"] == f"{base}/{two.local}"


def test_an_index_that_is_named_is_asked_for_torch_and_the_default_one_for_all_else(two):
    del two.gpuenv.env["GPUENV_INDEX_PYTORCH"]
    plant(two)
    locked = two.lock("--index", f"{two.base}/{two.local}")
    assert locked["torch"]["index"] == f"{two.base}/{two.local}"
    assert {p["index"] for n, p in locked.items() if n != "torch"} == {two.default.url}


def test_a_password_in_an_address_is_not_shown_by_lock_nor_in_its_file(two):
    secret = two.base.replace("//", "//me:hunter2@")
    two.gpuenv.env |= {
        "GPUENV_INDEX_PYTORCH": secret, "GPUENV_INDEX_PYPI": two.default.url.replace("//", "//me:hunter2@")
    }  # fmt: skip
    ran = ok(two.gpuenv("lock", *ASK, "--json", "-v"))
    assert "hunter2" not in ran.out + ran.err + (two.gpuenv.work / "pylock.toml").read_text()


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ({"pytorhc": "http://127.0.0.1/whl"}, "pytorhc"),
        ({"pypi": "http://me:hunter2@127.0.0.1/simple"}, "url"),
    ],
)
def test_a_wrong_row_is_exit_3_and_shows_no_password(gpuenv, rows, told):
    overlay(gpuenv, **rows)
    ran = gpuenv("resolve", *ASK)
    assert ran.code == 3 and told in ran.err and "indexes.yaml:5" in ran.err
    assert "hunter2" not in ran.err + ran.out
