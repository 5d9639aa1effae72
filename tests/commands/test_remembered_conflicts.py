"""Sets with packages of another CUDA are solved once: the next run with the same question recalls the conflict."""

import pytest
from marked_builds import Marks
from test_other_cuda_in_locks import ASK, torches  # noqa: F401  # a fixture
from test_uv_runs import runs


@pytest.fixture
def serving(torches, index):  # noqa: F811  # the fixture above
    """`gpuenv lock --with serving`, whose release 2.0 brings a wheel of CUDA 11."""
    index.add("serving", "2.0", requires=("torch", "kernels-core"))
    index.add("kernels-core", "1.0", requires=("nvidia-cublas-cu11",))
    index.add("serving", "1.0", requires=("torch",))

    def lock(*more):
        (torches.work / "pylock.toml").unlink(missing_ok=True)
        ran = torches("lock", "--json", "-v", "--with", "serving", *more, *ASK)
        assert ran.code == 0, ran.err
        return ran

    return lock


def locked(ran) -> str:
    return next(p["version"] for p in ran.json["packages"] if p["name"] == "serving")


def kept(gpuenv):
    return sorted(gpuenv.work.parent.rglob("conflicts/*.json"))


def lock_text(gpuenv) -> str:
    return (gpuenv.work / "pylock.toml").read_text()


def test_a_set_with_a_conflict_is_solved_once(serving, torches):  # noqa: F811
    first = serving()
    assert len(runs(first)) == 2 and locked(first) == "1.0"
    text = lock_text(torches)
    second = serving()
    assert len(runs(second)) == 1
    assert lock_text(torches) == text
    assert second.json["held_back"] == first.json["held_back"]
    assert kept(torches)


def test_a_search_with_several_solves_says_a_thing_once(serving, index, tmp_path):
    (tmp_path / "code").mkdir()
    Marks(tmp_path / "code").stated(index, "sourced", "1.0", (), since="2.4", dynamic=("requires-dist",))
    ran = serving("--with", "sourced")
    assert len(runs(ran)) == 2, ran.err
    assert ran.err.count("sourced 1.0 has no wheel for Python") == 1


def test_a_conflict_counts_while_the_packages_that_bring_it_have_the_same_files(serving, index):
    serving()
    index.add("bystander", "1.0")
    assert len(runs(serving())) == 1
    index.add("kernels-core", "1.1")
    assert locked(serving()) == "2.0"


@pytest.mark.parametrize("setting", ["UV_OVERRIDE", "UV_EXCLUDE"])
def test_settings_of_uv_make_another_question(serving, torches, tmp_path, setting):  # noqa: F811
    """Without the wheel of CUDA 11 the newest release has no conflict."""
    assert locked(serving()) == "1.0"
    without = {"UV_OVERRIDE": "nvidia-cublas-cu11 ; python_version < '0'", "UV_EXCLUDE": "nvidia-cublas-cu11"}
    (tmp_path / "rules.txt").write_text(without[setting] + "\n")
    torches.env[setting] = str(tmp_path / "rules.txt")
    assert locked(serving()) == "2.0"


def test_the_first_lock_with_its_warning_is_the_answer_after_the_other_set_has_gone(serving, index):
    serving()
    index.add("serving", "1.1", requires=("torch", "missing-package"))
    index.yanked["serving-1.0-py3-none-any.whl"] = "broken"
    ran = serving()
    assert locked(ran) == "2.0"
    assert "serving brings nvidia-cublas-cu11 11.11.3.6, which is from CUDA 11" in " ".join(ran.err.split())


def test_a_recalled_conflict_does_not_lead_to_an_error(serving, index, torches):  # noqa: F811
    """The lists of files that the conflict depends on are as before, but the other set has lost its solution."""
    index.add("serving", "2.0", requires=("torch==2.15.0", "kernels-core"))
    index.add("serving", "1.0", requires=("torch==2.14.0", "needed"))
    index.add("serving", "0.1", requires=("torch==2.14.0",))
    index.uploads = {"serving-0.1-py3-none-any.whl": "2023-05-01T00:00:00Z"}
    index.add("needed", "1.0")
    assert locked(serving()) == "1.0"
    assert kept(torches)
    index.add("needed", "1.1", requires=("missing-package",))
    index.yanked["needed-1.0-py3-none-any.whl"] = "broken"
    ran = serving()
    assert locked(ran) == "2.0"
    assert "which is from CUDA 11" in " ".join(ran.err.split())


def test_a_plan_without_a_lock_does_not_depend_on_earlier_locks(serving, torches):  # noqa: F811
    ask = ("resolve", "--json", "--with", "serving", *ASK)
    before = torches(*ask).json
    serving()
    assert torches(*ask).json == before


def test_a_damaged_memory_is_passed_over(serving, torches):  # noqa: F811
    serving()
    text = lock_text(torches)
    for damaged in (
        "{",
        "[]",
        '{"builds": 1}',
        '{"builds": [], "packages": [], "required_by": 1}',
        "[" * 100_000,
    ):
        for path in kept(torches):
            path.write_text(damaged)
        serving()
        assert lock_text(torches) == text


def test_no_conflict_is_kept_with_credentials(serving, torches, index):  # noqa: F811
    torches.env["PIP_INDEX_URL"] = index.url.replace("://", "://me:secret-word@")
    assert locked(serving()) == "1.0"
    assert not any("secret-word" in path.read_text() + path.name for path in kept(torches))
