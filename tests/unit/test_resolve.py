"""resolve on named machines, board names, several frameworks and wheels at hand, over the real profiles."""

import dataclasses
import re
import time

import pytest
from known import KNOWN
from packaging.specifiers import SpecifierSet
from resolve_questions import R580, V100, ask, question
from rows import rows

from provision.model import (
    AvailableWheel,
    AvailableWheels,
    FrameworkRequest,
    KnownBadRelease,
    RejectedBuild,
    RejectionReason,
    Request,
    Target,
    VersionBound,
)
from provision.resolve import resolve
from provision.resolve.boards import find_gpu
from provision.show.plan import list_objections

# --- one framework on named machines -------------------------------------------------------------

ARM = {"platform": "linux-aarch64"}
K80 = {"gpus": ["Tesla K80"], "driver": "470.256.02", "python": "3.10"}
OLD = {"driver": "550.54.15", "gpus": ["8.0"], "glibc": "2.17", "python": "3.11"}
WINDOWS = {"platform": "windows-x86_64", "driver": "560.94", "gpus": ["8.6"]}


@rows(
    ("framework", "machine", "version", "cuda", "cudnn"),
    [
        # Volta: no kernels from CUDA 13 on, nor in the cu128 builds of 2.7 and from 2.11 on.
        ("torch", V100, "2.14.1", "12.6", "==9.10.2.21"),
        ("torch", V100 | {"index": "pypi"}, "2.10.0", "12.8", "==9.10.2.21"),
        ("torch==2.7.1", V100, "2.7.1", "12.6", "==9.5.1.17"),
        ("torch==2.8.0", V100 | {"index": "pypi"}, "2.8.0", "12.8", "==9.10.2.21"),
        ("torch==2.11.0", V100, "2.11.0", "12.6", "<9.11"),
        # cuDNN drops Volta in 9.11; what takes any cuDNN 9 is held below.
        ("tensorflow", V100, "2.21.0", "12.5", "<9.11,>=9.3"),
        ("jax", V100, "0.12.0.1", "12.9", "==9.10.2.21"),
        ("torch", K80, "2.3.1", "11.8", "==8.7.0.84"),
        ("torch", K80 | {"index": "pypi"}, "2.0.1", "11.7", "==8.5.0.96"),
        ("tensorflow", K80, "2.14.1", "11.8", "==8.7.0.84"),
        ("torch", {"driver": "570.26", "gpus": ["RTX 5090"]}, "2.11.0", "12.8", ">=9.7"),
        ("torch", {"driver": "570.26", "gpus": ["RTX 5090"], "index": "pypi"}, "2.10.0", "12.8", ">=9.7"),
        ("jax", {"driver": "570.26", "gpus": ["RTX 5090"]}, "0.12.0.1", "12.9", ">=9.7"),
        # 10.3 and 12.1 run kernels of 10.0 and 12.0, but only the libraries of CUDA 12.9 know them.
        ("torch", ARM | R580 | {"gpus": ["GB10"]}, "2.15.0", "13.2", ">=9.7"),
        ("torch", ARM | R580 | {"gpus": ["GB10"], "cuda": "12"}, "2.8.0", "12.9", ">=9.7"),
        ("jax", ARM | {"driver": "575.51.03", "gpus": ["GB10"]}, "0.12.0.1", "12.9", ">=9.7"),
        ("torch", {"driver": "575.51.03", "gpus": ["B300"]}, "2.8.0", "12.9", ">=9.7"),
        # One Tegra part with two names, which runs kernels made for it and no others.
        ("torch", ARM | R580 | {"gpus": ["Jetson AGX Thor"]}, "2.15.0", "13.2", ">=9.12"),
        ("torch", ARM | R580 | {"gpus": ["10.1"]}, "2.15.0", "13.2", ">=9.12"),
        # Every GPU is served: Volta and Blackwell meet in cu128 from 2.8 to 2.10.
        ("torch", R580 | {"gpus": ["V100", "B200"]}, "2.10.0", "12.8", "==9.10.2.21"),
        # In WSL the driver's number is that of Windows, and so is the floor.
        ("torch", {"driver": "528.33", "gpus": ["8.6"], "driver_os": "windows"}, "2.14.1", "12.6", ">=9"),
        (
            "torch", {"driver": "528.32", "gpus": ["8.6"], "driver_os": "windows", "python": "3.10"},
            "2.7.1", "11.8", ">=9",
        ),
        ("torch", OLD, "2.6.0", "12.4", "==9.1.0.70"),
        ("tensorflow", OLD, "2.20.0", "12.5", "==9.5.0.50"),
        ("jax", OLD, "0.5.3", "12.3", "==9.5.0.50"),  # later wheels say 2.17, their cuDNN 2.27
        ("torch", ARM | R580 | {"gpus": ["GH200"], "index": "pypi"}, "2.15.0", "13.2", ">=9"),
        ("jax", ARM | R580 | {"gpus": ["GH200"]}, "0.12.0.1", "13.0", ">=9.12"),
        ("tensorflow", WINDOWS | {"python": "3.10"}, "2.10.1", "11.2", ">=8.1,<9"),
        # A CUDA that the driver speaks itself comes before a higher one by minor-version compatibility.
        ("torch==2.6.0", {"driver": "550.54.15", "gpus": ["9.0"]}, "2.6.0", "12.4", "==9.1.0.70"),
        # PTX of TensorFlow on Hopper, by a driver that speaks the CUDA that made it.
        ("tensorflow==2.13.1", {"driver": "525.60.13", "gpus": ["9.0"], "python": "3.10"}, "2.13.1", "11.8", ">=8.6,<9"),
        ("tensorflow==2.15.1", {"driver": "535.54.03", "gpus": ["9.0"], "python": "3.10"}, "2.15.1", "12.2", ">=8.9"),
        # A forward-compatibility libcuda stands for a newer driver.
        (
            "torch", {"driver": "470.256.02", "gpus": ["A100"], "forward_compat": "12.4"},
            "2.14.1", "12.6", ">=9",
        ),
        # No driver and no GPU given: no limit by either.
        ("torch", {}, "2.15.0", "13.2", ">=9"),
    ],
)  # fmt: skip
def test_each_machine_gets_its_newest_fitting_build(framework, machine, version, cuda, cudnn):
    plan = ask(framework, **machine)
    assert [(b.version, b.cuda) for b in plan.builds] == [(version, cuda)], plan.hint
    assert plan.cudnn in SpecifierSet(cudnn)
    assert plan.cuda_major == cuda.split(".")[0]


@rows(
    ("framework", "machine", "build", "code", "numbers"),
    [
        ("torch", {"driver": "450.80.02", "gpus": ["RTX 5090"]}, ("2.15.0", "13.2"), "driver_too_old", "580.65.06 450.80.02"),
        ("torch", {"driver": "590.48.01", "gpus": ["V100"]}, ("2.14.1", "12.6"), "driver_drops_gpu", "590.48.01 580"),
        ("torch", V100, ("2.15.0", "13.2"), "gpu_too_old", "7.0 7.5"),
        ("torch", R580 | {"gpus": ["RTX 5090"], "cuda": "12.6"}, ("2.14.1", "12.6"), "gpu_too_new", "12.0 9.0"),
        ("torch", ARM | R580 | {"gpus": ["GB10"], "cuda": "12"}, ("2.10.0", "12.8"), "gpu_too_new", "12.9 12.8"),
        ("torch", ARM | R580 | {"gpus": ["Jetson AGX Orin"]}, ("2.15.0", "13.2"), "gpu_too_old", "8.7"),
        ("torch==2.4.1", K80, ("2.4.1", "11.8"), "cudnn_drops_gpu", "9.1.0.70 3.7"),
        ("tensorflow==2.15.1", {"driver": "525.60.13", "gpus": ["9.0"], "python": "3.10"}, ("2.15.1", "12.2"), "ptx_needs_driver", "12.2 12.0"),
        ("tensorflow==2.10.1", {"driver": "535.54.03", "gpus": ["9.0"], "python": "3.10"}, ("2.10.1", "11.2"), "gpu_too_new", "11.8 11.2"),
        ("tensorflow", R580 | {"gpus": ["RTX 5090"]}, ("2.21.0", "12.5"), "gpu_too_new", "12.0 12.5"),
        ("torch", OLD, ("2.10.0", "12.8"), "glibc_too_old", "2.28 2.17"),
        ("jax", OLD, ("0.6.2", "12.8"), "glibc_too_old", "2.27 2.17"),
        ("torch", R580 | {"gpus": ["9.0"], "python": "3.10"}, ("2.15.0", "13.2"), "python_unsupported", "3.11 3.10"),
        ("tensorflow==2.14.1", R580 | {"gpus": ["8.0"], "python": "3.11"}, ("2.14.1", "11.8"), "python_unsupported", "tensorrt==8.5.3.1"),
        ("tensorflow", WINDOWS, ("2.21.0", None), "platform_unsupported", "CPU build"),
        ("torch", WINDOWS | {"index": "pypi"}, ("2.14.1", "12.6"), "index_excluded", "pytorch pypi"),
        ("torch", R580 | {"index": "pypi", "gpus": ["9.0"], "cuda": "12.6"}, ("2.14.1", "12.6"), "index_excluded", "pytorch pypi"),
        ("jax<0.4.33", R580 | {"gpus": ["9.0"]}, ("0.4.32", "12.3"), "yanked", "yanked"),
        ("tensorflow", ARM | {"device": "cpu", "python": "3.12"}, ("2.22.0rc0", None), "prerelease", "--pre"),
        ("torch", {"driver": "470.256.02", "gpus": ["RTX 3090"], "forward_compat": "12.4"}, ("2.14.1", "12.6"), "driver_too_old", "525.60.13 470.256.02"),
    ],
)  # fmt: skip
def test_a_rejected_build_has_its_reason(framework, machine, build, code, numbers):
    rejected = {(r.version, r.cuda): r.reasons for r in ask(framework, **machine).rejected}
    texts = [reason.text for reason in rejected[build] if reason.code == code]
    assert texts, rejected[build]
    assert any(all(n in text for n in numbers.split()) for text in texts), texts


def test_a_build_that_no_python_can_resolve_says_so_whatever_python_is_asked_for():
    plan = ask("tensorflow==2.15.0", driver="550.54.15", gpus=["V100"], python=None)
    (reason,) = (r.text for row in plan.rejected for r in row.reasons if row.version == "2.15.0")
    assert "Python 3.11: tensorrt==8.6.1.post1 has no wheel" in reason


def test_of_several_pythons_the_one_that_the_plan_would_have_is_named():
    plan = ask("onnxruntime", driver="535.54.03", gpus=["A100"], python=None, pythons=("3.11", "3.13"))
    (why,) = (r.text for row in plan.rejected for r in row.reasons
              if row.version == "1.27.0" and r.code == "python_unsupported")  # fmt: skip
    assert plan.python == "3.11" and why.startswith("does not install on Python 3.11: ")


def test_nothing_serves_kepler_in_jax_nor_capability_3_5_in_torch():
    assert not ask("jax", **K80).builds
    assert not ask("torch", **K80 | {"gpus": ["Tesla K40"]}).builds
    assert not ask("torch", **R580 | {"gpus": ["Tesla K80", "B200"]}).builds


def test_pre_releases_are_chosen_only_when_allowed():
    cpu = ARM | {"device": "cpu"}
    assert ask("tensorflow", **cpu).builds[0].version == "2.21.0"
    assert ask("tensorflow", **cpu, pre=True).builds[0].version == "2.22.0rc0"
    assert ask("tensorflow==2.22.0rc0", **cpu).hint == "use --pre: only a pre-release fits"
    assert ask("tensorflow==2.22.0rc0", **cpu, pre=True).builds


def test_a_yanked_release_is_chosen_only_by_its_exact_version():
    plan = ask("jax==0.4.32", **R580, gpus=["9.0"])
    assert plan.builds and "withdrawn" in " ".join(plan.notes)
    assert ask("jax<=0.4.32,>0.4.30", **R580, gpus=["9.0"]).builds[0].version == "0.4.31"


def test_a_cudnn_known_to_be_bad_is_never_taken_freely_and_warned_of_when_pinned():
    plan = ask("torch==2.13.0", **R580, gpus=["H200"], cuda="13.0")
    assert plan.cudnn == "9.20.0.48"
    assert any("9.20.0.48" in n and "issues/188892" in n for n in plan.notes)
    bad = [b for b in KNOWN.known_bad if b.effect == "avoid"]
    newest = {r.version for r in KNOWN.cudnn if r.package == "nvidia-cudnn-cu13"}
    only_bad = [r for r in KNOWN.cudnn if r.version not in newest - {"9.20.0.48", "9.19.1.2"}]
    assert bad
    fewer = dataclasses.replace(KNOWN, cudnn=tuple(only_bad))
    assert ask("jax", **R580, gpus=["H200"], cuda="13", known=fewer).cudnn == "9.19.1.2"


def test_a_release_is_bad_only_where_its_conditions_hold():
    """A wheel that pins one is refused on the GPUs of the row, beside its companion, and taken elsewhere."""
    plan = ask("torch==2.13.0", **R580, gpus=["9.0"], cuda="13.0")
    row = KnownBadRelease(
        package="nvidia-cudnn-cu13", version=plan.cudnn, effect="refuse", why="It fails", source="s"
    )
    cases = [
        ({}, False),
        ({"gpu": "9.0"}, False),
        ({"gpu": "8.0"}, True),
        ({"gpu": "9.0", "board": "RTX 50"}, True),
        ({"driver": "<570"}, True),
        ({"driver": ">=570"}, False),
        ({"companion": "torch<2.14"}, False),
        ({"companion": "torch>=2.14"}, True),
        ({"companion": "jax"}, True),
    ]
    for conditions, taken in cases:
        known = dataclasses.replace(KNOWN, known_bad=(row._replace(**conditions),))
        answer = ask("torch==2.13.0", **R580, gpus=["9.0"], cuda="13.0", known=known)
        assert bool(answer.builds) == taken, conditions
        assert taken or "It fails" in str(answer), conditions


def test_tensorflow_without_libraries_of_its_own_says_what_it_looks_for():
    plan = ask("tensorflow", **WINDOWS | {"python": "3.10"})
    assert any("CUDA 11.2 and cuDNN >=8.1,<9" in n for n in plan.notes)


def test_loose_pins_are_held_to_the_plan():
    pins = ask("tensorflow", **V100).builds[0].requirements
    assert "nvidia-cudnn-cu12===9.10.2.21" in pins
    (toolkit,) = [p for p in pins if p.startswith("cuda-toolkit[")]
    # Built with 12.5; it asks for cuBLAS 12.5.3.2, which the package's 12.5 releases do not have.
    assert toolkit.endswith("==12.6.3")
    assert {"cublas", "cudart", "cusparse", "nvjitlink"} <= set(
        toolkit.split("[")[1].split("]")[0].split(",")
    )


@pytest.mark.parametrize(
    ("wanted", "target", "said"),
    [
        ("jax", {"device": "cpu", "python": "3.7"}, r"not jax \S+ to \S+: .*, \S+ has wheels for Python 3.\d+ to 3.\d+; requested: 3.7"),
        ("torch==2.4.1", {**R580, "gpus": ["9.0"], "cuda": "12.8"},
         r"not torch 2.4.1: CUDA 12.8 was requested; this build is for CUDA 12.4"),
    ],
)  # fmt: skip
def test_one_sentence_says_why_no_build_fits(wanted, target, said):
    plan = ask(wanted, **target)
    (sentence,) = list_objections(plan)
    assert not plan.builds and re.fullmatch(said, sentence), sentence


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("requirement_conflict", "text 1 is compiled for torch<99"),
        ("index_unreachable", "the pytorch index does not respond"),
    ],
)
def test_the_objection_to_a_build_that_fits_is_said_in_place_of_that_to_another_of_its_version(code, text):
    plan = ask("torch", index="pypi", **R580, gpus=["A100"])
    driver = RejectionReason(code="driver_too_old", text="CUDA 13 needs driver 999")
    rows = tuple(
        RejectedBuild(framework="torch", version="99.0", cuda=cuda, index="pypi", reasons=reasons)
        for cuda, reasons in (("13.2", (driver,)), ("12.6", (RejectionReason(code=code, text=text),)))
    )
    for rejected in (rows, rows[::-1]):
        assert list(list_objections(dataclasses.replace(plan, rejected=rejected))) == [
            f"not torch 99.0: {text}"
        ]


def test_the_reason_against_the_requested_release_stands_beside_the_bound_of_a_file():
    request, target = question("torch", **R580, gpus=["9.0"], cuda="12.8")
    bound = VersionBound(name="torch", specifier="==2.4.1", origin="r.txt line 1")
    said = list(list_objections(resolve(dataclasses.replace(request, bounds=(bound,)), target, KNOWN)))
    assert [s for s in said if "2.4.1:" in s] == [
        "not torch 2.4.1: CUDA 12.8 was requested; this build is for CUDA 12.4"
    ]
    assert len(said) == 3 and said[0].endswith(": r.txt line 1 requires torch==2.4.1")


def test_an_older_cuda_than_the_release_offers_has_a_reason():
    said = "CUDA 12.1, not 12.4, because driver 535.129.03 supports CUDA 12.2: "
    machine = {"driver": "535.129.03", "gpus": ["A100"], "python": "3.11"}
    assert any(note.startswith(said) for note in ask("torch==2.5.1", **machine).notes)
    assert not any(", not " in note for note in ask("torch==2.5.1", **machine, cuda="12.4").notes)


def test_the_fix_of_a_projects_framework_names_its_file():
    request, target = question("torch>=2.6", **K80)
    plan = resolve(dataclasses.replace(request, file="gpuenv.yaml"), target, KNOWN)
    assert plan.hint.startswith("change torch>=2.6 in gpuenv.yaml to torch==2.3.1: ")


def test_a_bound_that_no_known_build_meets_is_a_hint_with_the_nearest_that_fits():
    bounds = (VersionBound(name="torch", specifier="==1.4.0", origin="requirements.txt line 1"),)
    plan = ask("torch", "tensorflow", bounds=bounds, driver="580.65.06", gpus=["A100"])
    assert re.match(
        r"change .*torch==1\.4\.0 in requirements\.txt line 1 to ==2\.\d\.0: the nearest", plan.hint
    )
    said = {r.text for one in plan.rejected for r in one.reasons if one.framework == "tensorflow"}
    assert "another framework has no build that fits" in said


def test_a_requirement_of_other_pythons_is_no_pin():
    """torch 2.15 requires cuda-bindings only below Python 3.15. As a pin it refused every plan for 3.15."""
    pins = {p: ask("torch==2.15.0", **R580, python=p).builds[0].requirements for p in ("3.14", "3.15")}
    bindings = [[pin for pin in pins[p] if pin.startswith("cuda-bindings")] for p in pins]
    assert list(map(len, bindings)) == [1, 0]


# --- growth --------------------------------------------------------------------------------------


def test_time_grows_no_faster_than_the_rows():
    """Ten times the rows, of as many versions: at most twenty times the time, the best of five each."""
    more = (b._replace(version=f"{i}!{b.version}") for b in KNOWN.builds for i in range(1, 10))
    grown = dataclasses.replace(KNOWN, builds=(*KNOWN.builds, *more))

    def seconds(known):
        times = []
        for _ in range(5):
            start = time.process_time()
            ask("torch", "jax", "tensorflow", **V100, index="pypi", known=known)
            times.append(time.process_time() - start)
        return min(times)

    assert seconds(grown) < 20 * seconds(KNOWN)


# --- board names ---------------------------------------------------------------------------------


@rows(
    ("text", "capability"),
    [
        ("RTX 4090", "8.9"), ("v100", "7.0"), ("GTX 1080 Ti", "6.1"), ("H200", "9.0"), ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("rtx4090", "8.9"), ("GTX1080Ti", "6.1"), ("A100 80GB", "8.0"), ("NVIDIA H100 80GB HBM3", "9.0"), ("K80", "3.7"),
        ("NVIDIA GeForce RTX 4070 Laptop GPU", "8.9"), ("H100 SXM5", "9.0"), ("Tesla T4", "7.5"), ("L40S", "8.9"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0"), ("Quadro RTX 6000", "7.5"), ("GB10", "12.1"),
        ("RTX 6000 Ada Generation", "8.9"), ("RTX A6000", "8.6"), ("Jetson AGX Thor", "11.0"), ("9.0", "9.0"),
    ],
)  # fmt: skip
def test_a_board_is_known_by_its_names(text, capability):
    assert find_gpu(text, KNOWN.gpus).capability == capability


@rows(
    ("text", "near"),
    [("RTX 4900", "GeForce RTX 4090"), ("H300", "H200"), ("Orin", "Jetson AGX Orin"), ("V10", "Tesla V100"),
     ("Titan Y", "Titan V"), ("9.9", "9.0"), ("Voodoo", "capability such as 9.0")],
)  # fmt: skip
def test_an_unknown_board_suggests_near_ones(text, near):
    with pytest.raises(ValueError, match="unknown GPU") as error:
        find_gpu(text, KNOWN.gpus)
    assert near in str(error.value)


def test_a_labelled_wheel_at_hand_is_not_taken_where_its_companion_is_not_there():
    """torchvision of the default index does not load beside a +cpu torch: seen as "operator torchvision::nms
    does not exist"."""
    tags = ("cp311-cp311-manylinux_2_28_x86_64",)
    torch = AvailableWheel(name="torch", version="2.13.0+cpu", url="file:///w/torch.whl", tags=tags)
    vision = AvailableWheel(name="torchvision", version="0.28.0+cpu", url="file:///w/vision.whl", tags=tags)
    target = Target(platform="linux-x86_64", glibc="2.35")
    for wanted in ({"packages": ("torchvision",)}, {"along": ("torchvision",)}):
        request = Request(frameworks=(FrameworkRequest(name="torch"),), device="cpu", python="3.11", **wanted)
        alone = resolve(request, target, KNOWN, AvailableWheels(wheels=(torch,), unreachable=("pytorch",)))
        assert alone.builds[0].index == "pypi"
        texts = [x.text for r in alone.rejected for x in r.reasons if r.index == "find-links"]
        assert any("torchvision" in t and "+cpu" in t for t in texts)
        both = resolve(
            request, target, KNOWN, AvailableWheels(wheels=(torch, vision), unreachable=("pytorch",))
        )
        assert both.builds[0].index == "find-links"


def test_a_driver_that_tells_only_its_cuda_binds_by_major():
    request, target = question("tensorflow", python=None)
    plan = resolve(request, dataclasses.replace(target, driver_cuda="11.8"), KNOWN)
    assert [b.cuda for b in plan.builds] == ["11.8"]
    assert {r.code for x in plan.rejected for r in x.reasons if x.version == "2.21.0"} >= {"driver_too_old"}
