"""Base images, Dockerfiles and Apptainer definitions of a lock."""

import json
import re
import shlex
import subprocess

import export_locks as el
import pytest
from export_texts import CPU, document, instructions, sections
from rows import rows

from provision.errors import UsageError
from provision.model import PlannedBuild, Target


def of_tensorflow(version, cuda, cudnn):
    build = PlannedBuild(
        framework="tensorflow", version=version, cuda=cuda, index="pypi", requirements=(), cudnn=cudnn
    )
    return el.of([el.wheel("tensorflow", version, tag="cp311-cp311-manylinux_2_17_x86_64")], builds=(build,))


def new_glibc(minor):
    return el.of([*el.PACKAGES, el.wheel("new", "1.0", tag=f"cp312-cp312-manylinux_2_{minor}_x86_64")])


@rows(
    ("made", "image"),
    [
        (el.of(), "python:3.12-slim-bookworm"),
        (el.of(python="3.11"), "python:3.11-slim-bookworm"),
        (new_glibc(36), "python:3.12-slim-bookworm"),
        (new_glibc(39), "python:3.12-slim-trixie"),
        (el.of(target=Target(platform="linux-aarch64", glibc="2.35")), "python:3.12-slim-bookworm"),
        (el.of(python="3.8"), "python:3.14-slim-bookworm"),  # gpuenv, which fetches Python 3.8, wants a newer one
        (el.of_conda(), "python:3.12-slim-bookworm"),
        (of_tensorflow("2.12.1", "11.8", "8.9.6.50"), "nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04"),
    ],
)  # fmt: skip
def test_the_base_image_fits_the_plan(made, image):
    found = [line for line in el.text("dockerfile", made).splitlines() if line.startswith("FROM ")]
    assert len(found) == 1 and re.fullmatch(rf"FROM {image}(@sha256:[0-9a-f]{{64}})?", found[0])
    assert ("@" in found[0]) == image.endswith("-slim-bookworm")  # the images whose digest has a source
    assert f"From: {image}" in el.text("apptainer", made).splitlines()


@rows(
    ("made", "words"),
    [
        (of_tensorflow("2.10.1", "11.2", "8.9.6.50"), "tensorflow 2.10.1 has no CUDA"),
        (new_glibc(60), "no base image for linux-x86_64 with glibc 2.60"),
    ],
)
def test_where_no_image_fits_none_is_guessed(made, words):
    for form in ("dockerfile", "apptainer", "devcontainer"):
        with pytest.raises(UsageError, match=words):
            el.text(form, made)


def test_where_no_machine_of_a_workflow_fits_none_is_guessed():
    with pytest.raises(UsageError, match=r"with glibc 2\.60"):
        el.text("github", new_glibc(60))


@rows(
    "made",
    [el.of(), el.of(el.MIXED), el.of(**CPU), el.of_conda(), of_tensorflow("2.12.1", "11.8", "8.9.6.50")],
)
def test_a_dockerfile_caches_hides_secrets_and_ends_without_root(made):
    text = el.text("dockerfile", made)
    assert text.splitlines()[0] == "# syntax=docker/dockerfile:1"
    found = instructions(text)
    names = [n for n, _ in found]
    assert names.count("FROM") == 1 and names.count("HEALTHCHECK") == 1
    runs = [r for n, r in found if n == "RUN"]
    downloading = [r for r in runs if "pip install" in r or "gpuenv create" in r]
    assert len(downloading) == 2 and all("--mount=type=cache,target=/root/.cache" in r for r in downloading)
    assert all("--mount=type=secret,id=pip" in r for r in downloading)
    (user,) = (r for n, r in found if n == "USER")
    assert user == "1000:1000" and names.index("USER") > max(i for i, n in enumerate(names) if n == "RUN")
    (default,) = (r for n, r in found if n == "ARG")
    assert default == f'GPUENV="gpuenv @ file:///context/{el.GPUENV.wheel}#sha256={el.GPUENV.sha256}"'


def test_a_dockerfile_proves_on_the_cpu_when_it_is_built_and_on_the_gpu_when_it_runs():
    found = instructions(el.text("dockerfile"))
    runs = [r for n, r in found if n == "RUN"]
    assert any(r.endswith("gpuenv verify /opt/env --device cpu") for r in runs)
    (check,) = (r for n, r in found if n == "HEALTHCHECK")
    assert json.loads(check.partition("CMD ")[2]) == ["gpuenv", "verify", "/opt/env", "--quick"]
    (entry,) = (json.loads(r) for n, r in found if n == "ENTRYPOINT")
    assert entry == ["gpuenv", "run", "--exec", "/opt/env", "--"] and found[-1] == ("CMD", '["python"]')
    assert any("NVIDIA_DRIVER_CAPABILITIES=compute,utility" in r for n, r in found if n == "ENV")
    create = next(r for r in runs if "gpuenv create" in r)
    words = shlex.split(create[create.index("gpuenv create") :])
    assert words[2:4] == ["/opt/env", "--locked"] and "--no-verify" in words
    assert words[words.index("--driver") + 1] == "550.54.15"
    assert [words[i + 1] for i, w in enumerate(words) if w == "--gpu"] == ["7.5", "9.0"]


def test_a_dockerfile_of_a_cpu_lock_asks_for_no_gpu():
    text = el.text("dockerfile", el.of(**CPU))
    assert "NVIDIA" not in text and "--gpu" not in text and "--driver" not in text
    assert '["gpuenv", "verify", "/opt/env", "--device", "cpu"]' in text


def test_a_dockerfile_brings_what_lies_on_no_index():
    found = instructions(el.text("dockerfile", el.of(el.MIXED)))
    copies = [json.loads(r) for n, r in found if n == "COPY"]
    assert ["my project/", "/home/u/my project"] in copies
    create = next(r for n, r in found if n == "RUN" and "gpuenv create" in r)
    assert "--mount=type=bind,source=wheels,target=/wheels" in create
    assert create.endswith("--find-links /wheels")
    assert any("apt-get install -y --no-install-recommends ca-certificates git" in r for n, r in found)
    assert "local-1.0-py3-none-any.whl" in el.text("dockerfile", el.of(el.MIXED))


def test_a_conda_lock_is_told_the_driver_by_condas_own_variable():
    for form in ("dockerfile", "apptainer", "devcontainer"):
        assert re.search(r"CONDA_OVERRIDE_CUDA=12\.9\b", el.text(form, el.of_conda())), form
    workflow = document(el.text("github", el.of_conda()))
    assert workflow["jobs"]["environment"]["env"]["CONDA_OVERRIDE_CUDA"] == "12.9"


@rows("made", [el.of(), el.of(el.MIXED), el.of(**CPU), el.of_conda()])
def test_an_apptainer_definition_is_whole_and_its_scripts_are_sh(made):
    found = sections(el.text("apptainer", made))
    assert found[""][0] == "Bootstrap: docker" and found[""][1].startswith("From: ")
    assert set(found) == {"", "arguments", "files", "post", "environment", "test", "runscript", "help"}
    (default,) = found["arguments"]
    assert default.partition("=")[0] == "GPUENV" and "{{ GPUENV }}" in "\n".join(found["post"])
    for name in ("post", "test", "runscript", "environment"):
        subprocess.run(["sh", "-n"], input="\n".join(found[name]), text=True, check=True)
    assert f"{el.GPUENV.wheel} /opt/lock/{el.GPUENV.wheel}" in found["files"]
    source, target = shlex.split(found["files"][0])
    assert source == el.subject(made).lock_file
    assert f"--lock {target} --no-verify" in "\n".join(found["post"])


def test_an_apptainer_image_asks_the_gpu_only_where_one_is():
    assert "gpuenv verify /opt/env --quick" in sections(el.text("apptainer"))["test"]
    assert sections(el.text("apptainer", el.of(**CPU)))["test"] == ["gpuenv verify /opt/env --device cpu"]
