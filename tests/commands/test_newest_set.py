"""Packages named beside a framework decide with it: through `lock` and `resolve`, with an index of tiny wheels."""

import re

import pytest
from rows import sampled

from provision.model import Plan, from_plain
from provision.show.plan import list_objections

HERE = "3.11"
GPU = ("--driver", "580.95.05", "--gpu", "H100", "--glibc", "2.35", "--platform", "linux-x86_64")
ASK = ("--framework", "torch", "--index", "pypi", "--python", HERE, *GPU)


@pytest.fixture
def torches(gpuenv, index):
    """`gpuenv` with an index that has torch 2.15.0, 2.14.0 and 2.13.0 and all that they require."""
    for version in ("2.15.0", "2.14.0", "2.13.0"):
        wanted = ("--framework", f"torch=={version}", *ASK[2:])
        index.add_plan(gpuenv("resolve", "--json", *wanted).json)
    gpuenv.env |= {"PIP_INDEX_URL": index.url}
    index.uploaded = "2026-10-01T00:00:00Z"
    return gpuenv


def versions(ran):
    assert ran.code == 0, ran.err
    return {p["name"]: p["version"] for p in ran.json["packages"]}


def because(ran):
    return [(h["package"], h["locked"], h["newest"], h["because"]) for h in ran.json["held_back"]]


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
    assert "not torch 2.15.0 to 2.14.1: serving 2.0 requires torch==2.14.0" in said


def test_a_second_lock_says_the_same_and_what_the_lock_keeps(torches, index):
    index.add("serving", "2.0", requires=("torch==2.14.0",))
    index.add("serving", "1.0", requires=("torch>=2.0",))
    ask = ("lock", "--json", "-v", "--with", "serving", *ASK)
    first, second = torches(*ask), torches(*ask)
    assert versions(second) == versions(first)
    assert because(second) == because(first) != []
    assert second.json["plan"]["held_back"] == second.json["held_back"]
    assert second.err.count("uv took") == 1, "what the lock has is compared with nothing"
    index.add("serving", "3.0", requires=("torch==2.14.0",))
    third = torches(*ask)
    assert versions(third)["serving"] == "2.0" and third.err.count("uv took") == 1
    torch, serving = third.json["held_back"]
    assert torch["package"] == "torch" and torch["because"] == "serving 2.0 requires torch==2.14.0"
    assert (serving["package"], serving["locked"], serving["newest"]) == ("serving", "2.0", "3.0")
    assert serving["because"].endswith("gpuenv lock --upgrade serving")
    said = " ".join(torches("lock", "--with", "serving", *ASK).out.split())
    assert "serving 2.0, not 3.0: the existing lock has 2.0" in said
    upgraded = torches("lock", "--json", "--with", "serving", *ASK, "--upgrade", "serving")
    assert versions(upgraded)["serving"] == "3.0"
    assert [h["package"] for h in upgraded.json["held_back"]] == ["torch"]


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
    assert [(s["builds"], s["packages"]) for s in ran.json["sets"]] == [
        (["torch 2.15.0 (CUDA 13.2)"], ["serving 1.0"]),
        (["torch 2.14.0 (CUDA 13.0)"], ["serving 2.0"]),
    ], "solutions that exist, and nothing else"
    shown = " ".join(torches("resolve", "--explain", "--with", "serving", *ASK).out.split())
    assert "torch 2.14.0 (CUDA 13.0) + serving 2.0: chosen" in shown
    assert not index.downloads(), "a plan reads metadata only"


def test_a_release_that_the_index_cannot_complete_is_passed_over_and_named(torches, index):
    index.add("serving", "2.0", requires=("torch==2.14.0", "not-there>=3"))
    index.add("serving", "1.9", requires=("torch==2.13.0",))
    ran = torches("lock", "--json", "--with", "serving", *ASK)
    assert (versions(ran)["torch"], versions(ran)["serving"]) == ("2.13.0", "1.9")
    held = {h["package"]: h for h in ran.json["held_back"]}
    assert held["serving"]["newest"] == "2.0" and "not-there" in held["serving"]["because"]


def test_packages_that_bind_no_framework_are_what_uv_chooses(torches, index):
    index.add("trainer", "2.0", requires=("helper",))
    index.add("helper", "1.0", requires=("models<5",))
    for models in ("5.1", "4.9", "4.8"):
        index.add("models", models)
    ran = torches("lock", "--json", "-v", "--with", "trainer", "--with", "models", *ASK)
    assert (versions(ran)["trainer"], versions(ran)["models"]) == ("2.0", "4.9")
    assert ran.json["held_back"] == [], "no fact about a GPU decided"
    assert ran.err.count("uv took") == 1, "nothing is compared"


def test_a_reason_names_what_decides_and_not_what_follows(torches, index):
    index.add("audio", "2.15", requires=("torch==2.15.0",))
    index.add("audio", "2.14", requires=("torch==2.14.0",))
    index.add("serving", "2.0", requires=("torch==2.14.0",))
    ran = torches("lock", "--json", "--with", "audio", "--with", "serving", *ASK)
    held = {package: why for package, _, _, why in because(ran)}
    assert held.keys() == {"torch", "audio"}
    assert held["torch"] == "serving 2.0 requires torch==2.14.0", "audio 2.14 follows torch"
    assert re.fullmatch(
        r"audio 2\.15 requires torch==2\.15\.0; .*torch 2\.15\.0 .*no solution.*", held["audio"]
    )


def test_a_reason_names_the_package_that_decides_where_the_newest_does_not_fit_either(torches, index):
    index.add("serving", "2.0", requires=("torch==2.13.0",))
    ask = [word if word != HERE else "3.10" for word in ASK]
    alone = torches("lock", "--json", "-o", "alone.toml", *ask)
    assert because(alone)[0][3] == "has wheels for Python 3.11 to 3.15; requested: 3.10"
    ran = torches("lock", "--json", "--with", "serving", *ask)
    assert because(ran) == [("torch", "2.13.0", "2.15.0", "serving 2.0 requires torch==2.13.0")]


def test_a_reason_names_a_package_that_nobody_names(torches, index):
    index.add("serving", "2.0", requires=("torch", "helper==1.0"))
    index.add("serving", "1.0", requires=("torch", "helper==1.0"))
    index.add("trainer", "1.0", requires=("deep",))
    index.add("deep", "1.0", requires=("serving<2",))
    index.add("helper", "1.0", requires=("torch<2.15",))
    ran = torches("lock", "--json", "--with", "serving", "--with", "trainer", *ASK)
    held = {package: why for package, _, _, why in because(ran)}
    assert held["serving"] == "deep 1.0 requires serving<2"
    assert held["torch"].endswith("all versions of helper depend on torch<2.15")


def test_a_reason_names_the_line_of_the_project_that_the_newest_release_does_not_allow(torches, index):
    index.add("serving", "2.0", requires=("torch", "models>=5"))
    index.add("serving", "1.0", requires=("torch",))
    index.add("models", "5.1")
    index.add("models", "4.9")
    ran = torches("lock", "--json", "--with", "serving", "--with", "models==4.9", *ASK)
    assert because(ran) == [("serving", "1.0", "2.0", "serving 2.0 requires models>=5")]


def test_a_release_that_is_years_older_is_a_warning_with_its_reason(torches, index):
    index.add("trainer", "2.0", requires=("models<5",))
    index.add("models", "5.1")
    index.add("models", "4.9")
    index.uploads = {"models-4.9-py3-none-any.whl": "2023-05-01T00:00:00Z"}
    ran = torches("lock", "--json", "--with", "trainer", "--with", "models", *ASK)
    assert versions(ran)["models"] == "4.9"
    said = " ".join(ran.err.split())
    assert re.search(r"warning: models 4\.9 .*3\.4 years .*5\.1: trainer 2\.0 requires models<5", said)


def test_an_old_release_of_a_package_that_binds_a_framework_stops_no_lock(torches, index):
    index.add("serving", "2.0", requires=("torch==2.14.0",))
    index.add("serving", "0.1", requires=("torch>=2.0",))
    index.add("old-friend", "1.0", requires=("torch==2.15.0",))
    index.uploads = {"serving-0.1-py3-none-any.whl": "2023-05-01T00:00:00Z"}
    ran = torches("lock", "--json", "--with", "serving", "--with", "old-friend", *ASK)
    assert (versions(ran)["torch"], versions(ran)["serving"]) == ("2.15.0", "0.1")
    assert "serving 0.1 is 3.4 years older than 2.0" in " ".join(ran.err.split())
    (held,) = ran.json["held_back"]
    assert re.fullmatch(
        r"serving 2\.0 requires torch==2\.14\.0; .*no solution: .*old-friend.*", held["because"]
    )


def test_a_lock_that_is_there_decides_before_newer_releases(torches, index):
    index.add("serving", "1.0", requires=("torch>=2.0",))
    assert versions(torches("lock", "--json", "--with", "serving", *ASK))["torch"] == "2.15.0"
    index.add("serving", "2.0", requires=("torch==2.14.0",))
    again = torches("lock", "--json", "--with", "serving", *ASK)
    assert (versions(again)["torch"], versions(again)["serving"]) == ("2.15.0", "1.0")


def test_what_a_locked_package_makes_room_for_is_named(torches, index):
    index.add("helper", "1.0")
    index.add("plain", "1.0", requires=("helper",))
    assert versions(torches("lock", "--json", "--with", "plain", *ASK))["plain"] == "1.0"
    index.add("helper", "2.0")
    index.add("plain", "2.0", requires=("helper>=2",))
    ran = torches("lock", "--json", "--with", "plain>=2", *ASK)
    assert (versions(ran)["plain"], versions(ran)["helper"]) == ("2.0", "2.0")
    assert "make room for plain\n" in ran.err
    ran = torches("lock", "--json", "--with", "plain<2", *ASK)
    assert versions(ran)["plain"] == "1.0" and "make room" not in ran.err, "nothing else changes"
    ran = torches("lock", "--json", "--with", "plain>=3", *ASK)
    assert ran.code == 6 and "make room" not in ran.err, "nothing is upgraded"


def test_an_index_without_upload_times_gives_the_order_of_versions(torches, index):
    index.uploaded = None
    index.add("serving", "2.0", requires=("torch==2.14.0",))
    index.add("serving", "1.0", requires=("torch>=2.0",))
    assert versions(torches("lock", "--json", "--with", "serving", *ASK))["torch"] == "2.14.0"


def write_rows(gpuenv, *rows):
    """Measured rows in a folder for --profiles, in place of the shipped ones."""
    folder = gpuenv.work / "rows"
    folder.mkdir(exist_ok=True)
    shared = 'platform: "linux-x86_64", form: "wheel"'
    (folder / "satellites.yaml").write_text(
        '- table: "satellites"\n  source: "test"\n  read: "2026-11-23"\n  kept: "measured"\n  rows:\n'
        + "".join(f"  - {{{shared}, {row}}}\n" for row in rows)
    )
    return ("--profiles", folder)


EXACT = 'package: "kernels", version: "2.0", built_for: "torch==2.13.0", abi: "exact"'


def test_a_measured_need_decides_where_metadata_is_silent(torches, index):
    rows = write_rows(torches, EXACT)
    index.add("kernels", "2.0")
    ran = torches("lock", "--json", "--with", "kernels", *rows, *ASK)
    assert versions(ran)["torch"] == "2.13.0"
    assert ran.json["held_back"][0]["because"] == "kernels 2.0 is compiled for torch==2.13.0"


def test_a_row_speaks_for_its_series_only_where_the_metadata_is_silent(torches, index):
    """kernels 2.0.1 has no row; its metadata states another torch than the row of 2.0."""
    rows = write_rows(torches, EXACT)
    index.add("kernels", "2.0.1", requires=("torch==2.14.0",))
    ran = torches("lock", "--json", "--with", "kernels==2.0.1", *rows, *ASK)
    assert versions(ran)["torch"] == "2.14.0"
    refused = torches(
        "lock", "--json", "--with", "kernels==2.0.1", *rows, "--framework", "torch==2.15.0", *ASK[2:]
    )
    assert "kernels depend on torch==2.14.0" in " ".join(refused.json["error"]["log"].split())


@pytest.mark.parametrize("beside", [(), ("plain",), ("plain", "helper")])
@pytest.mark.parametrize("first", sampled([("serving", "plain"), ("plain", "serving")], 2))
def test_a_package_with_a_measured_row_is_decided_first_and_others_decide_nothing(
    torches, index, beside, first
):
    """uv alone answers serving 1.0 where torch comes first, whatever is named beside it."""
    rows = write_rows(torches, 'package: "serving", version: "2.0", built_for: "torch==2.14.0", abi: "exact"')
    index.add("serving", "2.0", requires=("torch==2.14.0",))
    index.add("serving", "1.0", requires=("torch>=2.0",))
    for version in ("3.0", "2.0"):
        index.add("plain", version, requires=("helper",))
    index.add("helper", "1.0")
    names = [name for name in (*first, *beside[1:]) if name == "serving" or beside]
    beside = [word for name in names for word in ("--with", name)]
    ran = torches("lock", "--json", "-v", *beside, *rows, *ASK)
    assert (versions(ran)["torch"], versions(ran)["serving"]) == ("2.14.0", "2.0")
    assert ran.err.count("uv took") == 1, "one solve where the first answer is right"
    assert {h["package"] for h in ran.json["held_back"]} == {"torch"}
    assert not [p for p in ran.json["plan"]["packages"] if p.startswith(("plain=", "helper="))], (
        "nothing is pinned"
    )


def test_a_solution_is_chosen_whole(torches, index):
    """Each package has an answer of its own; one set has both, with the older of the two newest frameworks."""
    index.add("serving", "2.0", requires=("torch==2.14.0",))
    index.add("serving", "1.0", requires=("torch>=2.0",))
    index.add("kernels", "2.0", requires=("torch<2.15",))
    index.add("kernels", "1.0", requires=("torch>=2.0",))
    ran = torches("lock", "--json", "--with", "serving", "--with", "kernels", *ASK)
    found = versions(ran)
    assert (found["torch"], found["serving"], found["kernels"]) == ("2.14.0", "2.0", "2.0")


def test_a_release_without_a_solution_proposes_nothing(torches, index):
    index.add("serving", "2.0", requires=("torch==2.13.0", "absent>=3"))
    index.add("serving", "1.0", requires=("torch>=2.0",))
    ran = torches("lock", "--json", "--with", "serving", *ASK)
    assert (versions(ran)["torch"], versions(ran)["serving"]) == ("2.15.0", "1.0")
    (held,) = ran.json["held_back"]
    why = r"serving 2\.0 requires torch==2\.13\.0; .*torch 2\.13\.0 .*serving 1\.0"
    assert re.fullmatch(why, held["because"])
    assert held["alternative"] is None


# --- refusals -----------------------------------------------------------------------------------------


def refused(ran):
    assert ran.code == 6, ran.out + ran.err
    return ran.json["error"]


def test_a_version_that_nobody_has_is_named_with_the_nearest(torches, index):
    index.add("plain", "2.0")
    index.add("plain", "3.0")
    for pin, said in (
        ("99", "the newest is 3.0"),
        ("2.1", "the nearest are 2.0 and 3.0"),
        ("1", "the oldest is 2.0"),
    ):
        error = refused(torches("lock", "--json", "--with", f"plain=={pin}", *ASK))
        assert f"plain has no version {pin}; {said}" in error["message"]


def test_a_name_that_is_close_to_a_known_one_is_asked_for(torches, index):
    error = refused(torches("lock", "--json", "--with", "einopss", *ASK))
    assert "einopss" in error["message"] and "Did you mean einops?" in error["hint"]


def test_the_smallest_change_is_tried_before_it_is_printed(torches, index):
    index.add("trainer", "2.0", requires=("models<5",))
    for version in ("5.1", "4.9"):
        index.add("models", version)
    (torches.work / "asked.txt").write_text("torch\ntrainer\nmodels>=5\n")
    error = refused(torches("lock", "--json", "-r", "asked.txt", *ASK[2:]))
    assert "models>=5 (asked.txt line 3)" in error["message"]
    assert "asked.txt line 3" in error["hint"] and "models 4.9" in error["hint"]
    assert "--with" not in error["hint"], "nobody typed it"
    (torches.work / "asked.txt").write_text("torch\ntrainer\nmodels\n-c bounds.txt\n")
    (torches.work / "bounds.txt").write_text("models>=5\n")
    error = refused(torches("lock", "--json", "-r", "asked.txt", *ASK[2:]))
    assert re.match(r"remove .*models \(bounds\.txt line 1\): .*models 4\.9", error["hint"])


def test_an_index_of_the_project_that_is_closed_is_named_with_its_line(torches, index):
    index.add("plain", "1.0")
    stated = '[project]\nname = "own"\nversion = "1"\ndependencies = ["torch", "plain"]\n'
    closed = '[[tool.uv.index]]\nname = "corp"\nurl = "http://127.0.0.1:9/simple"\n'
    for more, where in (
        ("", "line 7"),
        ('explicit = true\n[tool.uv.sources]\nplain = { index = "corp" }\n', "line 4"),
    ):
        (torches.work / "pyproject.toml").write_text(stated + closed + more)
        ran = torches("lock", "--json", "--project", ".", *ASK[2:])
        assert ran.code == 9, ran.out
        error = ran.json["error"]
        assert "127.0.0.1:9/simple refuses the connection" in error["message"]
        assert error["message"].endswith(f"(pyproject.toml {where})") and "(pip)" not in error["message"]


def test_a_package_that_may_only_come_from_the_closed_pytorch_index_is_named_with_its_line(torches, index):
    """torch itself may come from the default index. Nothing is asked again when it is known that plain may not."""
    torches.env["GPUENV_INDEX_PYTORCH"] = "http://127.0.0.1:9/whl"
    (torches.work / "pyproject.toml").write_text(
        '[project]\nname = "own"\nversion = "1"\ndependencies = ["torch", "plain"]\n'
        '[[tool.uv.index]]\nname = "torch"\nurl = "http://127.0.0.1:9/whl/cu130"\nexplicit = true\n'
        '[tool.uv.sources]\nplain = { index = "torch" }\n'
    )
    ran = torches("lock", "--json", "--project", ".", "--python", HERE, *GPU)
    error = ran.json["error"]
    assert ran.code == 9 and "127.0.0.1:9/whl/cu130 refuses the connection" in error["message"]
    assert error["message"].endswith("(pyproject.toml line 4)")
    assert "refuses the connection" not in ran.err


@pytest.mark.parametrize("text", ["plain===1.foo", "plain>=one"])
def test_a_version_that_is_none_is_refused_before_anything_runs(torches, text):
    ran = torches("lock", "--json", "--with", text, *ASK)
    assert ran.code == 2 and f"--with '{text}' is not a requirement" in ran.json["error"]["message"]


def test_an_index_that_does_not_respond_is_no_reason_where_another_has_the_same_release(torches, index):
    """torchaudio 2.11.0 needs CUDA 13.0: torch 2.15.0 of the default index does not go with it either."""
    index.add("torchaudio", "2.11.0")
    index.add_plan(torches("resolve", "--json", "--framework", "torch==2.14.1", *ASK[2:]).json)
    torches.env["GPUENV_INDEX_PYTORCH"] = "http://127.0.0.1:9/whl"
    auto = ("--framework", "torch", "--python", HERE, *GPU)
    ran = torches("lock", "--json", "--with", "torchaudio", *auto)
    assert versions(ran)["torch"] == "2.14.1"
    (held,) = ran.json["held_back"]
    assert held["because"] == "torchaudio 2.11.0 needs CUDA 13.0; torch has CUDA 13.2"


def test_an_index_that_does_not_respond_is_no_reason_where_a_package_excludes_what_it_has(torches, index):
    """For this driver only the PyTorch index has builds newer than torch 2.10.0."""
    ask = ("--python", HERE, "--driver", "550.54.15", *GPU[2:])
    index.add_plan(torches("resolve", "--json", "--framework", "torch==2.10.0", "--index", "pypi", *ask).json)
    index.add("serving", "1.0", requires=("torch<2.11",))
    torches.env["GPUENV_INDEX_PYTORCH"] = "http://127.0.0.1:9/whl"
    lock = ("lock", "--framework", "torch", *ask)
    alone = torches(*lock, "--json", "-o", "alone.toml")
    assert versions(alone)["torch"] == "2.10.0"
    assert "PyTorch index does not respond" in alone.json["held_back"][0]["because"]
    beside = torches(*lock, "--json", "-o", "beside.toml", "--with", "serving")
    assert versions(beside)["torch"] == "2.10.0"
    assert [h["because"] for h in beside.json["held_back"]] == ["serving 1.0 requires torch<2.11"]
    again = torches(*lock, "--json", "-o", "alone.toml")
    driver = "CUDA 13 needs driver 580.65.06; the driver is 550.54.15"
    for ran, why in (
        (alone, "the pytorch index does not respond"),
        (beside, "serving 1.0 requires torch<2.11"),
        (again, "the existing lock has 2.10.0; to upgrade it: gpuenv lock --upgrade torch"),
    ):
        plan = from_plain(Plan, ran.json["plan"])
        assert list(list_objections(plan)) == [
            f"not torch 2.15.0: {driver}",
            f"not torch 2.14.1 to 2.11.0: {why}",
        ]


def test_a_limit_that_a_framework_does_not_state_applies_unless_another_requirement_forbids_it(gpuenv, index):
    for version in ("2.2.2", "2.3.0"):
        wanted = ("--framework", f"torch=={version}", *ASK[2:])
        index.add_plan(gpuenv("resolve", "--json", *wanted).json)
    for version in ("1.26.4", "2.4.6"):
        index.add("numpy", version)
    index.add("arrays", "1.0", requires=("numpy",))
    index.add("old", "1.0", requires=("numpy", "torch<2.3"))
    gpuenv.env |= {"PIP_INDEX_URL": index.url}

    def locked(framework, *packages):
        words = [w for p in packages for w in ("--with", p)]
        ran = gpuenv("lock", "--json", "-f", framework, *words, *ASK[2:], "-o", f"{len(framework)}.toml")
        said = " ".join((*ran.json["plan"]["notes"], ran.err))
        return versions(ran)["torch"], versions(ran)["numpy"], "compiled for NumPy 1" in said

    assert locked("torch==2.2.2", "arrays") == ("2.2.2", "1.26.4", True)
    assert locked("torch", "old") == ("2.2.2", "1.26.4", True)  # uv chooses this torch only then
    assert locked("torch<2.3", "numpy>=2") == ("2.2.2", "2.4.6", True)
    assert locked("torch>=2.2", "arrays") == ("2.3.0", "2.4.6", False)


def test_a_series_of_three_numbers_is_left_out_alone(gpuenv, index):
    index.add_plan(gpuenv("resolve", "--json", "--framework", "torch==2.2.2", *ASK[2:]).json)
    index.add("xformers", "0.0.35", requires=("torch>=2.10",))
    index.add("xformers", "0.0.25.post1", requires=("torch==2.2.2",))  # without a row
    gpuenv.env |= {"PIP_INDEX_URL": index.url}
    found = versions(gpuenv("lock", "--json", "-f", "torch<2.3", "--with", "xformers", *ASK[2:]))
    assert (found["torch"], found["xformers"]) == ("2.2.2", "0.0.25.post1")


def test_builds_for_another_cuda_are_tried_after_a_refusal(gpuenv, index):
    for version in ("0.10.2", "0.4.30"):  # the newest build has CUDA 13
        wanted = ("--framework", f"jax=={version}", "--cuda", "12", *ASK[2:])
        index.add_plan(gpuenv("resolve", "--json", *wanted).json)
    index.add("haiku-like", "1.0", requires=("jax<0.5",))
    gpuenv.env |= {"PIP_INDEX_URL": index.url}
    found = versions(gpuenv("lock", "--json", "-f", "jax", "--with", "haiku-like", *ASK[2:]))
    assert found["jax"] == "0.4.30" and "jax-cuda12-plugin" in found


def test_a_release_that_goes_with_no_build_has_the_reason_of_the_newest(gpuenv, index):
    t4 = [word.replace("H100", "T4") for word in ASK[2:]]
    for version in ("2.9.1", "2.7.1"):
        index.add_plan(gpuenv("resolve", "--json", "--framework", f"torch=={version}", *t4).json)
    for version in ("0.3.21", "0.2.9"):
        index.add("sgl-kernel", version)
    gpuenv.env |= {"PIP_INDEX_URL": index.url}
    ran = gpuenv("lock", "--json", "-f", "torch<2.10", "--with", "sgl-kernel", *t4)
    assert (versions(ran)["torch"], versions(ran)["sgl-kernel"]) == ("2.7.1", "0.2.9")
    said = {package: why for package, _, _, why in because(ran)}
    assert re.match(
        r"sgl-kernel 0\.3\.21 .*kernels .*Tesla T4 \(7\.5\); .*8\.0\+PTX 8\.6", said["sgl-kernel"]
    )


def test_a_package_that_works_without_its_kernels_keeps_its_release_and_gets_a_note(gpuenv, index):
    a100 = [word.replace("H100", "A100") for word in ASK[2:]]
    index.add_plan(gpuenv("resolve", "--json", "--framework", "torch==2.15.0", *a100).json)
    index.add("torchao", "0.17.0")
    gpuenv.env |= {"PIP_INDEX_URL": index.url}
    ran = gpuenv("lock", "--json", "-f", "torch", "--with", "torchao==0.17.0", *a100)
    note = "torchao 0.17.0 has no kernels for A100 (8.0); built for 9.0 10.0; its other functions work"
    assert versions(ran)["torchao"] == "0.17.0" and note in ran.json["plan"]["notes"]


@pytest.mark.usefixtures("real_uv")
def test_the_pages_of_an_only_index_are_read_once_where_none_may_be_stored(torches, index):
    index.held = "no-store"
    index.requests.clear()
    ran = torches("lock", "--json", *ASK)
    assert versions(ran)["torch"] == "2.15.0"
    assert {p["index"] for p in ran.json["packages"]} == {index.url}
    assert index.requests["/simple/pip/"] == index.requests["/simple/triton/"] == 1
