"""Python 3.14 is chosen by rows; the free-threaded 3.14t is refused by rows and by the tags of wheels."""

import pytest

from provision.index.wheel_names import wheel_tags

GPU = ("--driver", "580.65.06", "--gpu", "9.0")


@pytest.mark.parametrize("framework", ["torch", "jax", "onnxruntime"])
def test_a_new_python_is_chosen_by_rows_and_without_the_gil_refused(gpuenv, framework):
    ask = ("resolve", "--framework", framework, *GPU, "--json", "--python")
    assert gpuenv(*ask, "3.14").json["python"] == "3.14"
    for python in ("3.14t", "3.14.2t"):
        ran = gpuenv(*ask, python)
        assert (ran.code, ran.json["builds"], ran.json["hint"]) == (5, [], "use --python 3.14")
        reason = ran.json["rejected"][0]["reasons"][0]
        assert reason["code"] == "python_unsupported"
        assert "free-threaded Python; requested: 3.14t" in reason["text"]


def test_a_framework_without_the_new_python_names_the_nearest_one(gpuenv):
    ask = ("resolve", "--framework", "tensorflow", *GPU, "--json", "--python")
    for python, why in (
        ("3.14", "has wheels for Python"),
        ("3.14t", "has no known wheel for a free-threaded"),
    ):
        ran = gpuenv(*ask, python)
        assert (ran.code, ran.json["hint"]) == (5, "use --python 3.13")
        assert ran.json["rejected"][0]["reasons"][0]["text"].startswith(why)


def test_a_project_and_conda_are_refused_alike(gpuenv):
    (gpuenv.work / "gpuenv.yaml").write_text('frameworks: [torch]\npython: "3.14t"\n')
    (gpuenv.work / "requirements.txt").write_text('numpy; python_version >= "3.9"\n')
    ran = gpuenv("lock", "-r", "requirements.txt", *GPU)
    assert ran.code == 5 and "free-threaded Python; requested: 3.14t" in " ".join(ran.out.split()), ran.err
    ran = gpuenv("lock", "--manager", "conda", *GPU)
    assert ran.code == 2 and "no conda environment with a free-threaded Python" in " ".join(ran.err.split())


def test_tags_tell_both_kinds_of_a_python_apart():
    with_gil, without = ({str(t) for t in wheel_tags(p, "linux-x86_64", "2.28")} for p in ("3.14", "3.14t"))
    assert "cp314-cp314-manylinux_2_28_x86_64" in with_gil - without
    assert "cp314-cp314t-manylinux_2_28_x86_64" in without - with_gil
    assert {"py3-none-any", "cp314-none-any"} <= with_gil & without
