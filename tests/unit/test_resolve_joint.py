"""The newest set of builds and named packages: compared with every set of small made-up catalogues, and its words."""

import datetime as dt
import itertools

from hypothesis import given, settings, strategies as st
from packaging.requirements import Requirement
from packaging.version import Version

from provision.commands.releases_to_read import list_promising, priced
from provision.model import (
    AvailableWheels,
    Build,
    CudaMajor,
    FrameworkRequest,
    NamedPackage,
    PackageRelease,
    Profiles,
    Request,
    Satellite,
    Target,
    TargetGpu,
    VersionBound,
)
from provision.resolve.chosen_and_refused_sets import Refused
from provision.resolve.joint_answer import against_newest, answer
from provision.resolve.outdated_releases import too_old
from provision.resolve.question import Question
from provision.resolve.search_builds_and_packages import JointSearch

PYTHONS = ("3.12", "3.11")
TODAY = (dt.date(2026, 11, 1) - dt.date(1970, 1, 1)).days


def build(version, cuda="13.0", pythons=PYTHONS, kernels=("8.0", "9.0"), **more):
    return Build(
        framework="torch", version=version, cuda=cuda, platform="linux-x86_64", index="pypi", python=pythons,
        kernels=kernels, **more,
    )  # fmt: skip


def release(package, version, day, *requires, pythons=PYTHONS, wheels=None, **more):
    wheels = pythons if wheels is None else wheels
    return PackageRelease(
        package=package,
        version=version,
        day=TODAY - day,
        pythons=pythons,
        wheels=wheels,
        requires=requires,
        **more,
    )


def package(name, *releases, **more):
    return NamedPackage(name=name, releases=releases, **more)


def search(builds, packages, *, satellites=(), refused=(), device="cuda", **request):
    known = Profiles(
        builds=tuple(builds), satellites=tuple(satellites),
        majors=(CudaMajor(major="12", linux="525.60.13", windows="528.33"),
                CudaMajor(major="13", linux="580.65.06", windows="580.65.06")),
    )  # fmt: skip
    asked = Request(frameworks=(FrameworkRequest(name="torch"),), device=device, **request)
    target = Target(
        platform="linux-x86_64", glibc="2.35", driver="580.95.05", driver_os="linux",
        gpus=(TargetGpu(capability="9.0", name="H100"),),
    )  # fmt: skip
    return JointSearch(Question(asked, target, known, AvailableWheels()), packages, refused)


def satellite(package, version, **columns):
    return Satellite(
        package=package, version=version, platform="linux-x86_64", index="pypi", form="wheel", **columns
    )


# --- no better set exists ---------------------------------------------------------------------------

VERSIONS = ("1.0", "2.0", "3.0", "4.0")
NAMES = ("alpha", "beta", "gamma")


@st.composite
def catalogues(draw):
    """Builds of torch, and up to three packages whose releases bind torch, each other, and the Python."""
    torches = [build(v, draw(st.sampled_from(("12.8", "13.0")))) for v in reversed(VERSIONS)]
    names = NAMES[: draw(st.integers(1, 3))]
    packages = []
    for name in names:
        days = sorted(draw(st.lists(st.integers(0, 1500), min_size=1, max_size=4)))
        releases = []
        for i, day in enumerate(days):
            needs = []
            if draw(st.booleans()):
                needs.append(
                    f"torch{draw(st.sampled_from(('==', '>=', '<=')))}{draw(st.sampled_from(VERSIONS))}"
                )
            others = [n for n in names if n != name]
            if others and draw(st.integers(0, 2)) == 0:
                needs.append(f"{draw(st.sampled_from(others))}{draw(st.sampled_from(('==', '>=', '<=')))}"
                             f"{draw(st.integers(1, 4))}.0")  # fmt: skip
            pythons = draw(st.sampled_from((PYTHONS, PYTHONS, ("3.12",), ("3.11",))))
            compiles = draw(st.integers(0, 4)) == 0
            releases.append(
                release(name, f"{len(days) - i}.0", day, *needs, pythons=pythons, compiles=compiles,
                        wheels=() if compiles else pythons)
            )  # fmt: skip
        packages.append(package(name, *releases))
    rows = [
        satellite(p.name, r.version, cuda=draw(st.sampled_from(("12", "13"))), cuda_by="needed", needs=("libcudart",))
        for p in packages for r in p.releases if draw(st.integers(0, 3)) == 0
    ]  # fmt: skip
    refused = []
    for _ in range(draw(st.integers(0, 2))):
        versions = {p.name: p.releases[0].version for p in packages if draw(st.booleans())}
        versions |= {"torch": draw(st.sampled_from(VERSIONS))} if draw(st.booleans()) else {}
        refused += [Refused(versions, "no")] if set(versions) - {"torch"} else []
    return torches, packages, rows, refused


def every_set(builds, packages, rows, refused):
    """The key of every set that holds, by the objective of docs/explanation/choice.md."""
    cuda = {(r.package, r.version): r.cuda for r in rows}
    newest = {p.name: max(r.day for r in p.releases) for p in packages}
    wheels = {p.name: any(r.wheels for r in p.releases) for p in packages}
    ranks = {v: i for i, v in enumerate(sorted({b.version for b in builds}, key=Version, reverse=True))}
    for b, python in itertools.product(builds, PYTHONS):
        for chosen in itertools.product(*(p.releases for p in packages)):
            taken = {r.package: r.version for r in chosen} | {"torch": b.version}
            needs = [Requirement(t) for r in chosen for t in r.requires]
            if any(python not in r.pythons for r in chosen):
                continue
            if any(not n.specifier.contains(taken[n.name]) for n in needs):
                continue
            if any(cuda.get((r.package, r.version), b.cuda[:2]) != b.cuda[:2] for r in chosen):
                continue
            if any(r.versions.items() <= taken.items() for r in refused):
                continue
            if any(r.versions.items() <= taken.items() for r in refused):
                continue
            compiled = any(r.compiles and python not in r.wheels and wheels[r.package] for r in chosen)
            yield compiled, max(newest[r.package] - r.day for r in chosen), ranks[b.version]


@settings(max_examples=400)
@given(catalogues())
def test_the_search_finds_the_best_of_all_sets(catalogue):
    builds, packages, rows, refused = catalogue
    best = search(builds, packages, satellites=rows, refused=refused).best()
    keys = list(every_set(builds, packages, rows, refused))
    assert (best is None) == (not keys)
    if best:
        built, ages, ranks = best.key[:3]
        assert (built, ages[0], ranks[0]) == min(keys)


def test_many_packages_that_bind_each_other_are_decided_without_trying_all_combinations():
    """20 packages of 20 releases: each newest release but the last wants a release of the next that is older."""
    names = [f"p{i:02}" for i in range(20)]

    def releases(name, after):
        for age in range(20):
            need = (f"{after}<={19 - age}",) if after else ()
            yield release(name, str(20 - age), age * 10, *need)

    packages = [package(n, *releases(n, a)) for n, a in zip(names, [*names[1:], None], strict=True)] + [
        package("last", release("last", "1", 0, "p19>=2"))
    ]
    best = search([build("2.15"), build("2.14")], packages).best()
    assert best is None  # p19 has to be 1
    packages[10] = package("p10", *releases("p10", None))
    best = search([build("2.15"), build("2.14")], packages).best()
    assert [best.releases[n].version for n in ("p00", "p10", "p11", "p19")] == ["20", "10", "20", "12"]


# --- examples ---------------------------------------------------------------------------------------


def test_a_package_that_wants_an_older_framework_gets_it():
    vllm = package(
        "vllm", release("vllm", "0.33", 0, "torch==2.14"), release("vllm", "0.2", 1100, "torch>=2.0")
    )
    found = search([build("2.15"), build("2.14")], [vllm])
    best = found.best()
    assert best.candidate.builds[0].version == "2.14" and best.releases["vllm"].version == "0.33"
    told = answer(found, best)
    assert told.pins == ("vllm==0.33",)
    over = told.passed_over[0]
    assert (over.version, over.because) == (
        "2.15",
        "vllm 0.33 requires torch==2.14; the newest vllm that fits would be 0.2",
    )
    held = told.held_back[0]
    assert (held.package, held.locked, held.newest) == ("torch", "2.14", "2.15")
    assert held.alternative == "torch 2.15 would limit vllm to 0.2"
    assert [(s.builds, s.packages, s.behind) for s in told.ladder] == [
        (("torch 2.15 (CUDA 13.0)",), ("vllm 0.2",), 1100),
        (("torch 2.14 (CUDA 13.0)",), ("vllm 0.33",), 0),
    ]


def test_the_framework_stays_where_an_older_one_would_bring_nothing():
    vllm = package("vllm", release("vllm", "0.33", 0, "torch>=2.13"))
    assert search([build("2.15"), build("2.14")], [vllm]).best().candidate.builds[0].version == "2.15"


def test_measured_needs_decide_as_requirements_do():
    rows = [satellite("xformers", "0.35", cuda="12", cuda_by="needed", needs=("libcudart.so.12",))]
    xformers = package("xformers", release("xformers", "0.35", 0, "torch>=2.10"))
    found = search([build("2.15"), build("2.10", "12.8")], [xformers], satellites=rows)
    best = found.best()
    assert best.candidate.builds[0].version == "2.10"
    why = answer(found, best).passed_over[0].because
    assert why == "xformers 0.35 needs libcudart.so.12; torch has CUDA 13"


def test_a_file_for_one_cuda_release_serves_that_release_only():
    rows = [
        satellite("bitsandbytes", "0.49", cuda=c, cuda_by="needed", needs=("libcudart",))
        for c in ("12.8", "13.0")
    ]
    bnb = package("bitsandbytes", release("bitsandbytes", "0.49", 0))
    builds = [build("2.15", "13.2"), build("2.14", "13.0")]
    assert search(builds, [bnb], satellites=rows).best().candidate.builds[0].version == "2.14"


def test_a_stable_abi_goes_with_later_releases_and_an_exact_one_does_not():
    torchaudio = package("torchaudio", release("torchaudio", "2.11", 0))
    stable = [satellite("torchaudio", "2.11", abi="stable", built_for="torch==2.11")]
    exact = [satellite("torchaudio", "2.11", abi="exact", built_for="torch==2.11")]
    builds = [build("2.15"), build("2.11"), build("2.10")]
    assert search(builds, [torchaudio], satellites=stable).best().candidate.builds[0].version == "2.15"
    found = search(builds, [torchaudio], satellites=exact)
    assert found.best().candidate.builds[0].version == "2.11"
    assert found.best_with(found.candidates[0]) is None


def test_what_brings_its_own_cuda_needs_the_driver_only():
    rows = [satellite("nvidia-dali-cuda130", "2.4", cuda="13", cuda_by="name")]
    dali = package("nvidia-dali-cuda130", release("nvidia-dali-cuda130", "2.4", 0))
    found = search([build("2.10", "12.8")], [dali], satellites=rows)
    assert found.best() is not None


def test_a_patch_release_has_the_needs_of_its_measured_minor():
    rows = [satellite("torchao", "0.18.0", cuda="13", cuda_by="needed", needs=("libcudart.so.13",))]
    torchao = package("torchao", release("torchao", "0.18.1", 0))
    assert search([build("2.10", "12.8")], [torchao], satellites=rows).best() is None


def test_wheels_come_before_a_newer_release_that_must_be_compiled():
    lap = package("lap", release("lap", "2.0", 0, compiles=True, wheels=()), release("lap", "1.0", 300))
    found = search([build("2.15")], [lap])
    best = found.best()
    assert best.releases["lap"].version == "1.0"
    assert answer(found, best).held_back[0].because == "lap 2.0 has no wheel, and its build needs a compiler"
    only = package("flash-attn", release("flash-attn", "2.8", 0, compiles=True, wheels=()))
    assert search([build("2.15")], [only]).best() is not None


def test_an_old_release_is_found_out_against_the_newest_within_the_bounds():
    vllm = package(
        "vllm", release("vllm", "0.33", 0, "torch==2.14"), release("vllm", "0.2", 1100, "torch>=2.0")
    )
    found = search([build("2.15")], [vllm])
    assert [
        (old.version, new.version) for old, new in too_old(found, found.best())
    ] == []  # no torch 2.14 is known
    found = search([build("2.15"), build("2.14", kernels=())], [vllm])
    assert [(old.version, new.version) for old, new in too_old(found, found.best())] == [("0.2", "0.33")]


def test_a_set_that_a_solver_could_not_complete_is_passed_over_with_its_reason():
    vllm = package(
        "vllm", release("vllm", "0.33", 0, "torch==2.14"), release("vllm", "0.32", 20, "torch==2.13")
    )
    builds = [build("2.14"), build("2.13")]
    refused = [Refused({"vllm": "0.33"}, "certifi is too old on this index")]
    found = search(builds, [vllm], refused=refused)
    best = found.best()
    assert best.releases["vllm"].version == "0.32" and best.candidate.builds[0].version == "2.13"
    held = {h.package: h for h in answer(found, best).held_back}
    assert held["vllm"].because == "certifi is too old on this index" and held["vllm"].newest == "0.33"
    together = [Refused({"vllm": "0.33", "torch": "2.14"}, "no")]
    assert (
        search([build("2.14"), *builds], [vllm], refused=together).best().releases["vllm"].version == "0.32"
    )


def test_a_python_that_has_only_old_releases_is_not_chosen_for_its_number():
    vllm = package("vllm", release("vllm", "0.33", 0, pythons=("3.11",)), release("vllm", "0.2", 1100))
    assert search([build("2.15")], [vllm]).best().candidate.python == "3.11"


def test_other_compiled_packages_are_kept_from_releases_that_do_not_fit():
    rows = [
        satellite("torchao", "0.18.0", cuda="13", cuda_by="needed", needs=("libcudart.so.13",)),
        satellite("torchao", "0.16.0", cuda="12", cuda_by="needed", needs=("libcudart.so.12",)),
    ]
    einops = package("einops", release("einops", "0.8", 0))
    found = search([build("2.15")], [einops], satellites=rows)
    assert answer(found, found.best()).limits == ("torchao!=0.16.*",)


def test_a_companion_that_was_not_measured_goes_only_with_builds_that_name_it():
    builds = [
        build("2.15.0"), build("2.11.0", companions=("torchaudio==2.11.0",)),
        build("2.5.1", companions=("torchaudio==2.5.1",)), build("2.5.0", companions=("torchaudio==2.5.0",)),
    ]  # fmt: skip
    audio = package(
        "torchaudio", *(release("torchaudio", v, i) for i, v in enumerate(("2.11.0", "2.5.1", "2.5.0")))
    )
    old = package("old", release("old", "2.0", 0, "torch<2.11"), release("old", "1.0", 600))
    found = search(builds, [audio, old])
    assert found.best().candidate.builds[0].version == "2.5.1"
    newest = found.candidates[0]
    reasons = [found.fit.objection(audio, r, newest) for r in audio.releases]
    assert reasons[1:] == [
        "torchaudio 2.5.1 is compiled for torch 2.5.1",
        "torchaudio 2.5.0 is compiled for torch 2.5.0",
    ]
    rows = [satellite("torchaudio", "2.11.0", abi="stable", built_for="torch>=2.11")]
    found = search(builds, [audio, package("old", release("old", "2.0", 0, "torch>=2.11"))], satellites=rows)
    best = found.best()
    assert (best.candidate.builds[0].version, best.releases["torchaudio"].version) == ("2.15.0", "2.11.0")


def test_an_old_companion_is_one_reason_against_all_other_frameworks():
    builds = [build(f"2.{minor}.0", companions=(f"audio==2.{minor}.0",)) for minor in (11, 10, 9, 8)]
    builds.insert(0, build("2.15.0", "13.2"))
    rows = [
        satellite(
            "audio",
            "2.11.0",
            abi="stable",
            built_for="torch>=2.11",
            cuda="13.0",
            cuda_by="needed",
            needs=("libcudart",),
        )
    ]
    old = package("audio", release("audio", "2.8.0", 900))
    found = search(builds, [old], satellites=rows)
    assert {p.because for p in answer(found, found.best()).passed_over} == {
        "audio 2.8.0 is compiled for torch 2.8.0"
    }
    both = package("audio", *(release("audio", v, 0) for v in ("2.11.0", "2.8.0")))
    found = search(builds, [both], satellites=rows)
    assert (
        found.fit.objection(both, both.releases[0], found.candidates[0])
        == "audio 2.11.0 needs CUDA 13.0; torch has CUDA 13.2"
    )


def test_a_companion_that_is_no_longer_released_is_noted():
    builds = [build("2.15.0"), build("2.11.0", companions=("torchaudio==2.11.0",))]
    row = satellite("torchaudio", "2.11.0", built_for="torch>=2.11", abi="stable", cuda="13")
    asked = search(builds, [package("torchaudio", release("torchaudio", "2.11.0", 0))], satellites=[row])
    best = asked.best()
    assert best.candidate.versions == {"torch": "2.15.0"}
    (note,) = answer(asked, best).notes
    assert note == (
        "torch 2.15.0 has no matching release of torchaudio; torchaudio 2.11.0 is the newest compatible one, "
        "compiled for torch>=2.11"
    )
    older = search(builds[1:], asked.packages, satellites=[row])
    assert answer(older, older.best()).notes == ()


def test_the_reason_against_a_release_is_found_with_a_python_that_has_it():
    text = package("text", release("text", "0.18", 0, pythons=("3.11",)), release("text", "0.6", 900))
    row = satellite("text", "0.18", built_for="torch<2.5,>=2.3", abi="exact")
    asked = search([build("2.10.0")], [text], satellites=[row])
    best = asked.best()
    assert (best.candidate.python, best.releases["text"].version) == ("3.12", "0.6")
    assert against_newest(asked, best, "text") == "text 0.18 is compiled for torch<2.5,>=2.3"


def test_two_packages_that_a_solver_refused_together_are_not_tried_again():
    packages = [package(n, release(n, "2.0", 0), release(n, "1.0", 30)) for n in ("alpha", "beta")]
    refused = [Refused({"alpha": "2.0", "beta": "2.0", "torch": "2.15.0"}, "they want two of gamma")]
    asked = search([build("2.15.0"), build("2.14.0")], packages, refused=refused)
    best = asked.best()
    assert best.candidate.versions == {"torch": "2.14.0"}, "with another torch they were not refused"
    only = search([build("2.15.0")], packages, refused=refused)
    best = only.best()
    assert {n: r.version for n, r in best.releases.items()} == {"alpha": "2.0", "beta": "1.0"}
    held = {h.package: h for h in answer(only, best).held_back}
    assert held["beta"].because == "they want two of gamma"


def test_what_brings_another_cuda_is_refused_with_builds_of_another_cuda_only():
    serving = package("serving", release("serving", "2.0", 0), release("serving", "1.0", 30))
    refused = [Refused({"serving": "2.0"}, "serving 2.0 brings wheels of CUDA 12", "12")]
    builds = [build("2.15.0"), build("2.10.0", cuda="12.8")]
    best = search(builds, [serving], refused=refused).best()
    assert (best.candidate.versions, best.releases["serving"].version) == ({"torch": "2.10.0"}, "2.0")
    best = search(builds[:1], [serving], refused=refused).best()
    assert best.releases["serving"].version == "1.0"


def test_a_requirement_comes_before_what_a_solver_said():
    serving = package("serving", release("serving", "2.0", 0, "torch==2.14.0"), release("serving", "1.0", 30))
    refused = [Refused({"serving": "2.0"}, "certifi is too old")]
    asked = search([build("2.15.0"), build("2.14.0")], [serving], refused=refused)
    candidates = asked.candidates
    assert (
        asked.fit.objection(serving, serving.releases[0], candidates[0])
        == "serving 2.0 requires torch==2.14.0"
    )
    assert asked.fit.objection(serving, serving.releases[0], candidates[-1]) == "certifi is too old"


def test_kernels_that_no_release_has_are_noted():
    named = [package("quants", release("quants", "2.0", 0), release("quants", "1.0", 90))]
    rows = [satellite("quants", v, cuda="13", cuda_by="needed", kernels=("10.0",)) for v in ("2.0", "1.0")]
    asked = search([build("2.15.0")], named, satellites=rows)
    best = asked.best()
    assert best.releases["quants"].version == "2.0"
    assert answer(asked, best).notes == (
        "quants 2.0 has no kernels for H100 (9.0); built for 10.0. No other release of this package has kernels for these GPUs",
    )
    served = satellite("quants", "1.0", cuda="13", cuda_by="needed", kernels=("9.0",))
    asked = search([build("2.15.0")], named, satellites=[rows[0], served])
    assert asked.best().releases["quants"].version == "1.0" and answer(asked, asked.best()).notes == ()


def test_a_release_of_cuda_that_an_import_compares_is_needed_exactly():
    """As torchaudio 2.11.0, which does not import beside torch for CUDA 13.2, on a CPU neither."""
    builds = [build("2.15.0", cuda="13.2"), build("2.14.1", cuda="13.0")]
    row = satellite("audio", "2.11.0", cuda="13.0", cuda_by="needed", needs=("libcudart.so.13",))
    named = [package("audio", release("audio", "2.11.0", 0))]
    for device in ("cuda", "cpu"):
        asked = search(builds, named, satellites=[row], device=device)
        best = asked.best()
        assert best.candidate.versions == {"torch": "2.14.1"}
        (held,) = answer(asked, best).held_back
        assert held.because == "audio 2.11.0 needs CUDA 13.0; torch has CUDA 13.2"


def test_what_a_build_requires_itself_decides_about_a_named_package():
    triton = package("triton", release("triton", "3.9", 0), release("triton", "3.8", 30))
    found = search(
        [build("2.15", requires=("triton==3.8",)), build("2.14", requires=("triton==3.7",))], [triton]
    )
    best = found.best()
    assert (best.candidate.builds[0].version, best.releases["triton"].version) == ("2.15", "3.8")
    held = answer(found, best).held_back
    assert [(h.package, h.newest, h.because) for h in held] == [
        ("triton", "3.9", "torch 2.15 requires triton==3.8")
    ]


def test_a_package_with_bounds_that_is_not_its_newest_within_them_is_held_back():
    trainer = package("trainer", release("trainer", "2.0", 0, "models<5"))
    models = package("models", release("models", "5.1", 0), release("models", "4.9", 9), specifier=">=4")
    found = search([build("2.15")], [trainer, models])
    held = answer(found, found.best()).held_back
    assert [(h.package, h.locked, h.newest) for h in held] == [("models", "4.9", "5.1")]


def test_a_framework_with_bounds_that_is_not_its_newest_within_them_is_held_back():
    vllm = package("vllm", release("vllm", "0.33", 0, "torch==2.14"))
    builds = [build("2.16"), build("2.15"), build("2.14")]
    bounds = (VersionBound(name="torch", specifier=">=1.5,<2.16", origin="requirements.txt line 1"),)
    found = search(builds, [vllm], bounds=bounds)
    held = answer(found, found.best()).held_back
    assert [(h.package, h.locked, h.newest) for h in held] == [("torch", "2.14", "2.15")]
    exact = (VersionBound(name="torch", specifier="==2.14", origin="requirements.txt line 1"),)
    found = search(builds, [vllm], bounds=exact)
    assert answer(found, found.best()).held_back == ()


# --- which older releases are read --------------------------------------------------------------------


def test_only_packages_whose_older_releases_could_help_are_read_further():
    serving = package("serving", release("serving", "2.0", 0, "torch==2.14"))
    quiet = package("quiet", release("quiet", "9", 0, "torch>=2.0"), complete=False, next_day=TODAY - 1)
    models = package("models", release("models", "5.1", 0), complete=False, next_day=TODAY - 9)
    builds = [build("2.15"), build("2.14")]
    assert list_promising(search(builds, [serving, quiet, models])) == []
    trainer = package(
        "trainer", release("trainer", "2.0", 0, "models<5"), complete=False, next_day=TODAY - 40
    )
    assert list_promising(search(builds, [trainer, quiet, models])) == ["models"]


def test_older_releases_of_what_keeps_the_newest_build_out_are_read_for_its_price():
    serving = package(
        "serving", release("serving", "2.0", 0, "torch==2.14"), complete=False, next_day=TODAY - 300
    )
    quiet = package("quiet", release("quiet", "9", 0, "torch>=2.0"), complete=False, next_day=TODAY - 1)
    assert priced(search([build("2.15"), build("2.14")], [serving, quiet])) == ["serving"]
    assert priced(search([build("2.14")], [serving, quiet])) == []
