"""Packages named beside a framework decide with it: through `lock` and `resolve`, with an index of tiny wheels."""

import pytest

HERE = "3.11"
GPU = ("--driver", "580.95.05", "--gpu", "H100", "--glibc", "2.35", "--platform", "linux-x86_64")
ASK = ("--framework", "torch", "--index", "pypi", "--python", HERE, *GPU)


@pytest.fixture
def torches(gpuenv, index):
    """`gpuenv` with an index that has torch 2.15.0, 2.14.0 and 2.13.0 and all that they require."""
    gpuenv.env |= {"PIP_INDEX_URL": index.url}
    for version in ("2.15.0", "2.14.0", "2.13.0"):
        wanted = ("--framework", f"torch=={version}", *ASK[2:])
        index.add_plan(gpuenv("resolve", "--json", *wanted).json)
    index.tells_sizes, index.uploaded = True, "2026-10-01T00:00:00Z"
    return gpuenv


def versions(ran):
    assert ran.code == 0, ran.err
    return {p["name"]: p["version"] for p in ran.json["packages"]}


def test_the_framework_follows_a_package_that_needs_an_older_one(torches, index):
    index.add("serving", "2.0", requires=("torch==2.14.0",))
    index.add("serving", "1.0", requires=("torch>=2.0",))
    ran = torches("lock", "--json", "--with", "serving", *ASK)
    assert (versions(ran)["torch"], versions(ran)["serving"]) == ("2.14.0", "2.0")
    held = ran.json["held_back"]
    assert [(h["package"], h["locked"], h["newest"]) for h in held] == [("torch", "2.14.0", "2.15.0")]
    assert held[0]["because"].startswith("serving 2.0 requires torch==2.14.0")
    assert held[0]["alternative"] == "torch 2.15.0 would limit serving to 1.0"
    assert ran.json["plan"]["held_back"] == held
    said = " ".join(torches("lock", "--with", "serving", "-o", "other.toml", *ASK).out.split())
    assert (
        "not torch 2.15.0 to 2.14.1: serving 2.0 requires torch==2.14.0; the newest serving that fits would be 1.0"
        in said
    )


def test_a_second_lock_says_the_same_and_what_the_lock_keeps(torches, index):
    index.add("serving", "2.0", requires=("torch==2.14.0",))
    index.add("serving", "1.0", requires=("torch>=2.0",))
    ask = ("lock", "--json", "-v", "--with", "serving", *ASK)
    first, second = torches(*ask), torches(*ask)
    assert versions(second) == versions(first)
    assert second.json["held_back"] == first.json["held_back"] != []
    assert second.json["plan"]["held_back"] == first.json["held_back"]
    index.add("serving", "3.0", requires=("torch==2.14.0",))
    third = torches(*ask)
    assert versions(third)["serving"] == "2.0" and third.err.count("solving the packages") == 1
    torch, serving = third.json["held_back"]
    assert torch["package"] == "torch" and torch["because"].startswith("serving 3.0 requires torch==2.14.0")
    assert (serving["package"], serving["locked"], serving["newest"]) == ("serving", "2.0", "3.0")
    assert serving["because"] == "the existing lock has 2.0; to upgrade it: gpuenv lock --upgrade serving"
    said = " ".join(torches("lock", "--with", "serving", *ASK).out.split())
    assert "serving 2.0, not 3.0: the existing lock has 2.0" in said
    upgraded = torches("lock", "--json", "--with", "serving", *ASK, "--upgrade", "serving")
    assert versions(upgraded)["serving"] == "3.0"
    assert [h["package"] for h in upgraded.json["held_back"]] == ["torch"]


def test_a_second_lock_says_what_the_solver_refused(torches, index):
    index.add("gone", "1.0")
    index.add("many", "3.0", requires=("gone>=2",))
    index.add("many", "2.0")
    first, second = (torches("lock", "--json", "-v", "--with", "many", *ASK) for _ in range(2))
    assert versions(second)["many"] == versions(first)["many"] == "2.0"
    assert "gone" in first.json["held_back"][0]["because"]
    assert second.json["held_back"] == first.json["held_back"]
    assert second.err.count("solving the packages") == 1, "what is held back is found without a solve"


def test_the_framework_follows_a_line_of_a_requirements_file_too(torches, index):
    index.add("serving", "2.0", requires=("torch==2.14.0",))
    index.add("serving", "1.0", requires=("torch>=2.0",))
    (torches.work / "requirements.txt").write_text("torch\nserving\n")
    ran = torches("lock", "--json", "-r", "requirements.txt", *ASK[2:])
    assert versions(ran)["torch"] == "2.14.0"


def test_resolve_decides_by_metadata_and_shows_the_sets(torches, index):
    index.add("serving", "2.0", requires=("torch==2.14.0",))
    index.add("serving", "1.0", requires=("torch>=2.0",))
    ran = torches("resolve", "--json", "--with", "serving", *ASK)
    assert ran.json["builds"][0]["version"] == "2.14.0"
    assert [s["packages"] for s in ran.json["sets"][:3]] == [
        ["serving 1.0"],
        ["serving 1.0"],
        ["serving 2.0"],
    ]
    shown = " ".join(torches("resolve", "--explain", "--with", "serving", *ASK).out.split())
    assert "torch 2.14.0 (CUDA 13.0) + serving 2.0: chosen: every package is at its newest release" in shown
    assert not index.downloads(), "a plan reads metadata only"


def test_a_release_that_the_index_cannot_complete_is_passed_over_and_named(torches, index):
    index.add("serving", "2.0", requires=("torch==2.14.0", "not-there>=3"))
    index.add("serving", "1.9", requires=("torch==2.13.0",))
    ran = torches("lock", "--json", "--with", "serving", *ASK)
    assert (versions(ran)["torch"], versions(ran)["serving"]) == ("2.13.0", "1.9")
    held = {h["package"]: h for h in ran.json["held_back"]}
    assert held["serving"]["newest"] == "2.0" and "not-there" in held["serving"]["because"]


def test_packages_that_bind_each_other_get_a_common_set(torches, index):
    index.add("trainer", "2.0", requires=("torch>=2.0", "models<5"))
    index.add("models", "5.1")
    index.add("models", "4.9")
    ran = torches("lock", "--json", "--with", "trainer", "--with", "models", *ASK)
    assert (versions(ran)["trainer"], versions(ran)["models"]) == ("2.0", "4.9")
    held = ran.json["held_back"]
    assert [(h["package"], h["newest"], h["because"]) for h in held] == [
        ("models", "5.1", "trainer 2.0 requires models<5")
    ]


def test_the_solver_chooses_what_contradicts_through_a_package_that_nobody_names(torches, index):
    index.add("trainer", "2.0", requires=("helper",))
    index.add("trainer", "1.9", requires=("helper",))
    index.add("helper", "1.0", requires=("models<5",))
    for models in ("5.1", "4.9", "4.8"):
        index.add("models", models)
    ran = torches("lock", "--json", "-v", "--with", "trainer", "--with", "models", *ASK)
    assert (versions(ran)["trainer"], versions(ran)["models"]) == ("2.0", "4.9")
    assert "solver run 2 of at most" in ran.err
    held = ran.json["held_back"]
    assert [(h["package"], h["locked"], h["newest"]) for h in held] == [("models", "4.9", "5.1")]
    assert "helper" in held[0]["because"] and "models" in held[0]["because"]


def test_a_very_old_release_is_taken_only_when_allowed_and_is_named(torches, index):
    index.add("trainer", "2.0", requires=("helper",))
    index.add("helper", "1.0", requires=("models<5",))
    index.add("models", "5.1")
    index.add("models", "4.9")
    index.uploads = {"models-4.9-py3-none-any.whl": "2023-05-01T00:00:00Z"}
    asked = ("--with", "trainer", "--with", "models", *ASK)
    ran = torches("lock", *asked)
    assert ran.code == 6 and "models 4.9 is the newest compatible release" in " ".join(ran.err.split())
    assert versions(torches("lock", "--json", "--allow-old", *asked))["models"] == "4.9"


@pytest.fixture
def aged(torches, index):
    """A package whose newest release wants a torch that this driver cannot run, and one from long ago that runs."""
    index.add("serving", "2.0", requires=("torch==2.14.0",))
    index.add("serving", "0.1", requires=("torch>=2.0",))
    index.add("old-friend", "1.0", requires=("torch==2.15.0",))
    index.uploads = {"serving-0.1-py3-none-any.whl": "2023-05-01T00:00:00Z"}
    return torches


def test_a_release_that_is_years_older_stops_the_solve(aged):
    ran = aged("lock", "--with", "serving", "--with", "old-friend", *ASK)
    assert ran.code == 6 and not (aged.work / "pylock.toml").exists()
    said = " ".join(ran.err.split())
    assert "serving 0.1 is the newest compatible release; it is 3.4 years older than 2.0" in said
    assert "serving 2.0 requires torch==2.14.0" in said and "--allow-old" in said


def test_an_old_release_is_taken_where_it_is_allowed_or_named(aged):
    for more in (("--with", "serving", "--allow-old"), ("--with", "serving<1")):
        ran = aged("lock", "--json", "--with", "old-friend", *more, "-o", f"{len(more)}.toml", *ASK)
        assert (versions(ran)["torch"], versions(ran)["serving"]) == ("2.15.0", "0.1")


def test_a_lock_that_is_there_decides_before_newer_releases(torches, index):
    index.add("serving", "1.0", requires=("torch>=2.0",))
    assert versions(torches("lock", "--json", "--with", "serving", *ASK))["torch"] == "2.15.0"
    index.add("serving", "2.0", requires=("torch==2.14.0",))
    again = torches("lock", "--json", "--with", "serving", *ASK)
    assert (versions(again)["torch"], versions(again)["serving"]) == ("2.15.0", "1.0")


def test_an_index_without_upload_times_gives_the_order_of_versions(torches, index):
    index.uploaded = None
    index.add("serving", "2.0", requires=("torch==2.14.0",))
    index.add("serving", "1.0", requires=("torch>=2.0",))
    assert versions(torches("lock", "--json", "--with", "serving", *ASK))["torch"] == "2.14.0"


def test_a_measured_need_decides_where_metadata_is_silent(torches, index):
    rows = torches.work / "rows"
    rows.mkdir()
    row = 'package: "kernels", version: "2.0", platform: "linux-x86_64", index: "pypi", form: "wheel"'
    (rows / "satellites.yaml").write_text(
        '- table: "satellites"\n  source: "test"\n  read: "2026-11-23"\n  kept: "measured"\n  rows:\n'
        f'  - {{{row}, built_for: "torch==2.13.0", abi: "exact", cxx11: "1"}}\n'
    )
    index.add("kernels", "2.0")
    ran = torches("lock", "--json", "--with", "kernels", "--profiles", rows, *ASK)
    assert versions(ran)["torch"] == "2.13.0"
    assert ran.json["held_back"][0]["because"] == "kernels 2.0 is compiled for torch==2.13.0"
