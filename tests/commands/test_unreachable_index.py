"""The PyTorch index cannot be reached: what is taken instead, what is said, and how often it is tried."""

import socket

import pytest
from environment_facts import ok, refused
from loopback import wheel_bytes

from provision.lock import attempt

HERE_PYTHON = "3.11"
CPU = ("--device", "cpu", "--python", HERE_PYTHON)
DEAD = "http://127.0.0.1:9/whl"  # the discard port: nothing listens there


@pytest.fixture
def cut_off(gpuenv, index):
    """`gpuenv` with a default index that has the newest torch with CUDA, and no PyTorch index."""
    gpuenv.env |= {"PIP_INDEX_URL": index.url, "GPUENV_INDEX_PYTORCH": DEAD}
    plan = ok(gpuenv("resolve", "--json", "--framework", "torch", "--index", "pypi", *CPU))
    index.add_plan(plan.json)
    gpuenv.newest = plan.json["builds"][0]["version"]
    return gpuenv


def keep_wheel(gpuenv, name, version):
    """A wheel in the folder `wheels`."""
    folder = gpuenv.work / "wheels"
    folder.mkdir(exist_ok=True)
    file = f"{name}-{version}-cp311-cp311-manylinux_2_28_x86_64.whl"
    (folder / file).write_bytes(wheel_bytes(name, version))
    return folder


def torch_of(ran):
    return {p["name"]: p["version"] for p in ran.json["packages"]}["torch"]


def is_refused(ran, cut_off):
    said = " ".join(ran.err.split())
    return (
        ran.code == 9
        and "the PyTorch index, which has the CPU builds of torch, does not respond" in said
        and f"torch {cut_off.newest} of the default index includes CUDA (" in said
        and "use --find-links FOLDER with a CPU wheel, or accept CUDA's wheels with --index pypi" in said
    )


def test_no_cuda_is_taken_for_the_cpu_and_the_ways_out_are_named(cut_off, index):
    index.add("pytorch-fid", "1.0")
    (cut_off.work / "asked.txt").write_text("pytorch-fid\n")  # a package that is named like the index
    for named in ((), ("-r", "asked.txt")):
        ran = cut_off("lock", "--framework", "torch", *named, *CPU)
        assert is_refused(ran, cut_off), ran.err
        assert "a solution with" not in ran.err, ran.err
    assert not (cut_off.work / "pylock.toml").exists()
    ran = cut_off("lock", "--framework", "torch", "--index", "pypi", "--json", *CPU)
    assert torch_of(ran) == cut_off.newest


def test_a_cpu_project_downloads_nothing_of_cuda(cut_off):
    (cut_off.work / "gpuenv.yaml").write_text("frameworks: [torch]\ndevice: cpu\n")
    ran = cut_off("create", "--no-verify", "--python", HERE_PYTHON)
    assert is_refused(ran, cut_off), ran.err
    assert [p.name for p in cut_off.work.iterdir()] == ["gpuenv.yaml"]


def test_an_index_that_refuses_the_connection_is_not_asked_by_the_solver(cut_off, monkeypatch):
    read = []
    monkeypatch.setattr(attempt, "_find_newest", lambda _, plan: read.extend(b.index for b in plan.builds))
    ran = cut_off("lock", "--framework", "torch", "--with", "pip>=1", *CPU)
    assert "pytorch" not in read  # of which uv would take seconds to learn the same
    assert ran.err.count("refuses the connection") == 1
    assert ran.err.count("lock: solving") == 1


def test_a_cpu_wheel_at_hand_is_preferred_although_it_is_older(cut_off):
    folder = keep_wheel(cut_off, "torch", "2.13.0+cpu")
    ran = ok(cut_off("lock", "--framework", "torch", "--find-links", folder, "--json", *CPU))
    assert torch_of(ran) == "2.13.0+cpu"
    assert "only with CUDA" not in ran.err
    assert ran.json["held_back"][0]["because"].startswith("the PyTorch index does not respond; it has torch")


def test_a_cpu_wheel_at_hand_is_also_taken_for_a_requirements_file(cut_off):
    folder = keep_wheel(cut_off, "torch", "2.13.0+cpu")
    (cut_off.work / "requirements.txt").write_text("torch>=2.0\n")
    ran = cut_off("lock", "-r", "requirements.txt", "--find-links", folder, "--json", *CPU)
    assert torch_of(ran) == "2.13.0+cpu"
    (cut_off.work / "requirements.txt").write_text("torch>2.13\n")
    ran = cut_off("lock", "-r", "requirements.txt", "--find-links", folder, *CPU)
    assert is_refused(ran, cut_off), ran.err


def test_a_newer_wheel_that_only_a_folder_has_for_this_python_waits_for_upgrade(cut_off):
    """No row of the newest release is for Python 3.9: the wheel of the folder is the only build that fits."""
    folder = cut_off.work / "wheels"
    folder.mkdir()
    ask = ("lock", "--json", "--framework", "torch", "--find-links", folder, "--device", "cpu", "--python", "3.9",
           "--platform", "linux-x86_64", "--glibc", "2.35")  # fmt: skip
    for version in ("2.13.0", cut_off.newest):
        file = f"torch-{version}+cpu-cp39-cp39-manylinux_2_28_x86_64.whl"
        (folder / file).write_bytes(wheel_bytes("torch", f"{version}+cpu"))
        ran = ok(cut_off(*ask))
        assert torch_of(ran) == "2.13.0+cpu"
    assert ran.json["held_back"][0]["because"].startswith("the existing lock has 2.13.0")


def test_a_companion_without_a_cpu_wheel_that_comes_along_is_refused(cut_off, index):
    """Its operators are compiled for the default index's torch and do not load with another build."""
    folder = keep_wheel(cut_off, "torch", "2.13.0+cpu")
    index.add("torchvision", "0.28.0")
    index.add("needs-vision", "1.0", requires=("torchvision>=0.9",))
    ran = cut_off("lock", "--framework", "torch", "--with", "needs-vision", "--find-links", folder, *CPU)
    assert is_refused(ran, cut_off), ran.err


def test_a_bound_derived_from_a_local_version_drops_its_label(cut_off, index):
    """`torch<=2.13.0+cpu` is no specifier."""
    folder = keep_wheel(cut_off, "torch", "2.13.0+cpu")
    keep_wheel(cut_off, "torch", "2.12.0+cpu")
    index.add("old-friend", "0.30", requires=("torch<2.13",))
    ran = ok(
        cut_off(
            "lock",
            "--framework",
            "torch",
            "--with",
            "old-friend>=0.30",
            "--find-links",
            folder,
            "--json",
            *CPU,
        )
    )
    assert torch_of(ran) == "2.12.0+cpu"


def test_an_index_that_never_answers_costs_seconds_once(cut_off):
    """A listener that accepts nothing: the backlog is full, so a connection gets no answer."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        fill = [socket.socket() for _ in range(8)]
        for one in fill:
            one.setblocking(False)
            one.connect_ex(deaf.getsockname())
        cut_off.env["GPUENV_INDEX_PYTORCH"] = f"http://127.0.0.1:{deaf.getsockname()[1]}/whl"
        ran = cut_off("lock", "--framework", "torch", *CPU)
        for one in fill:
            one.close()
    assert is_refused(ran, cut_off), ran.err
    assert ran.err.count("does not respond in time") == 1


def test_a_second_index_that_refuses_is_told_although_uv_calls_the_package_missing(gpuenv, index):
    gpuenv.env |= {"PIP_INDEX_URL": f"{index.url}-none", "PIP_EXTRA_INDEX_URL": index.url}
    index.faults = {"/": "401"}
    ran = refused(gpuenv("lock", "--framework", "jax", *CPU), 9)
    assert "/jax/: the server requires credentials" in ran.err
    assert "put the user name and the password" in ran.err


def test_the_file_that_names_a_refused_index_is_named(gpuenv):
    file = gpuenv.work / "uv.toml"
    file.write_text(f'[[index]]\nurl = "{DEAD}/simple"\ndefault = true\n')
    gpuenv.env |= {"UV_CONFIG_FILE": str(file)}
    ran = gpuenv("lock", "--framework", "jax", *CPU)
    assert ran.code == 9 and f"The index is from {file}" in " ".join(ran.err.split()), ran.err
