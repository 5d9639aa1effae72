"""Steps of commands by their values: an option, a file or a place that is not as usual."""

import dataclasses
import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import export_locks as el
import pytest
from rows import rows

from provision.config.options import Choices
from provision.diagnose import packages
from provision.environment import place, registry
from provision.environment.distributions import Distribution
from provision.errors import BuildError, DataError, GpuenvError, UsageError, VerifyError
from provision.model import (
    Driver,
    Finding,
    Gpu,
    HostContext,
    Machine,
    PackageSources,
    Target,
    Verdict,
)

add, adopt, build, create, diagnose, edit, explain, export, listing, lock, profiles, prove, remove, repair, report, resolve, run, verify = (
    importlib.import_module(f"provision.actions.{name}")
    for name in (
        "add", "adopt", "build", "create", "diagnose", "edit", "explain", "export", "list", "lock", "profiles", "prove", "remove", "repair",
        "report", "resolve", "run", "verify",
    )
)  # fmt: skip
LINUX = Target(platform="linux-x86_64")
WITH_GPU = Machine(target=LINUX, gpus=(Gpu(index=0),), driver=Driver(library="580.1"))


def fails(error):
    """A function that fails in the place of another."""

    def fail(*_, **__):
        raise error

    return fail


@rows(
    ("text", "message", "hint"),
    [
        ("einops=0.8", "a version follows ==", "gpuenv add 'einops==0.8.*'"),
        ("einops >> 1", "is not a requirement such as", "gpuenv add 'einops>=0.8'"),
        ("torch>2", "is a framework", "gpuenv lock --upgrade torch"),
        ("git+https://a/x.git", "is not a requirement", "NAME @ ADDRESS"),
        (__file__, "is a file", "gpuenv sync"),
    ],
)
def test_a_word_that_is_no_package_is_refused_with_what_was_meant(text, message, hint):
    with pytest.raises(UsageError, match=message) as refused:
        add._package(text)
    assert hint in refused.value.hint


# --- adopt -------------------------------------------------------------------------------------------


def test_an_adoption_that_fails_leaves_the_environment_without_a_mark(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n")
    for error in (BuildError("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            adopt._record(SimpleNamespace(env=tmp_path, write_record=fails(error)))
        assert not (tmp_path / place.MARK).exists()


@rows(
    ("origin", "requirement"),
    [
        (None, "a==1.0"),
        ({"url": "https://x/a.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}}, f"a @ git+https://x/a.git@{'0' * 40}"),
        ({"url": "https://x/a-1.0-py3-none-any.whl", "archive_info": {}}, "a @ https://x/a-1.0-py3-none-any.whl"),
    ],
)  # fmt: skip
def test_an_adopted_package_is_required_from_where_it_was_installed(tmp_path, origin, requirement):
    (tmp_path / "direct_url.json").unlink(missing_ok=True)
    if origin:
        (tmp_path / "direct_url.json").write_text(json.dumps(origin))
    assert adopt._make_requirement(Distribution("a", "1.0", tmp_path)) == requirement


def test_two_distributions_of_one_name_are_not_adopted(tmp_path, monkeypatch):
    two = [Distribution("a", v, tmp_path) for v in ("1.0", "2.0")]
    monkeypatch.setattr(adopt, "read_distributions", lambda _: {"a": two})
    with pytest.raises(BuildError, match="has a twice"):
        adopt._read_installed(tmp_path)


# --- create ------------------------------------------------------------------------------------------


def job(**more):
    return SimpleNamespace(
        lock=el.of(), machine=None, env=Path("/w/.venv"), options=SimpleNamespace(quick=True, verify=None),
        **{"emit": lambda _: None, **more},
    )  # fmt: skip


def test_a_python_that_is_not_here_comes_out_of_the_bundle_or_is_not_downloaded_offline(monkeypatch):
    monkeypatch.setattr(build.detect, "find_python", lambda *_, **__: None)
    monkeypatch.setattr("provision.bundle.install.unpack_python", lambda folder, *_: f"{folder}/python")
    provide = build.EnvironmentBuild.provide_python
    offline = Choices(offline=True)
    assert provide(job(choices=dataclasses.replace(offline, bundle=Path("/b")))) == "/b/python"
    with pytest.raises(BuildError, match=r"Python 3\.12 is not on this machine, and --offline forbids"):
        provide(job(choices=offline))


def test_an_environment_without_the_record_of_its_options_is_not_changed(tmp_path):
    wanted = {"choices": {"framework": ["torch"]}}
    assert not build._can_change(tmp_path, Choices(), {}, wanted)
    refused = build._explain_other_options(tmp_path, {}, wanted)
    assert "the record of its options is missing" in refused.message and "--recreate" in refused.hint


@rows(("here", "can"), [(WITH_GPU, True), (Machine(target=LINUX), False),
                        (dataclasses.replace(WITH_GPU, driver=Driver(problem="no")), False)])  # fmt: skip
def test_an_environment_for_another_machine_is_proved_where_a_gpu_works(monkeypatch, here, can):
    monkeypatch.setattr(build, "machine_for_verdict", lambda: here)
    said = []
    assert build.EnvironmentBuild._can_prove(job(emit=said.append)) == can
    assert [e.kind for e in said] == ([] if can else ["warning"])


@rows(("kernel", "idle", "whole"), [(False, None, True), (True, None, False), (False, "an idle GPU", False)])
def test_a_kernel_or_an_idle_gpu_needs_more_than_a_look_at_the_files(
    monkeypatch, tmp_path, kernel, idle, whole
):
    mark = tmp_path / place.MARK / create.recall.KERNEL
    mark.parent.mkdir(exist_ok=True)
    mark.touch() if kernel else mark.unlink(missing_ok=True)
    for owner, name, value in (
        (place, "made_by_gpuenv", True), (place, "is_undisturbed", True), (place, "find_python", tmp_path),
        (create.record, "is_vouched", True), (create.record, "read_plan", el.of().plan), (create.record, "read", {}),
        (create.record, "read_environment", None), (create, "apply_project", Choices()),
        (create.recall, "compare_request", ({"choices": {}}, {"choices": {}})), (create.recall, "is_same", True),
        (create.recall, "find_kept_verdict", Verdict(env="/e", python="p", verdict="works")),
        (build.detect, "machine_for_verdict", WITH_GPU), (build.detect, "explain_idle_gpu", idle),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, lambda *_, value=value, **__: value)
    assert (create._find_up_to_date(tmp_path, Choices(), brief=True) is not None) == whole


def test_an_error_of_the_proof_names_the_final_place_and_not_the_draft(monkeypatch):
    failed = VerifyError("/draft/bin/python does not start", hint="remove /draft")
    with pytest.raises(VerifyError) as seen:
        build.EnvironmentBuild.verify_at(
            job(make_proof=lambda *_: SimpleNamespace(start=fails(failed))), Path("/draft")
        )
    assert (seen.value.message, seen.value.hint) == ("/w/.venv/bin/python does not start", "remove /w/.venv")


# --- edits and locks ---------------------------------------------------------------------------------


def test_a_lock_that_does_not_say_what_was_asked_for_cannot_be_edited():
    with pytest.raises(UsageError, match="conda lock, which does not record the requested packages"):
        edit._request_lock(Choices(), el.of_conda())
    own = dataclasses.replace(el.PACKAGES[2], name="mine", editable=True)
    with pytest.raises(UsageError, match="mine is an editable package"):
        edit._request_lock(Choices(), el.of((*el.PACKAGES, own)))
    kept = edit._request_lock(Choices(), el.of())
    assert (kept.framework, kept.with_) == (["torch"], ["numpy", "filelock"])


def test_a_lock_of_the_same_packages_is_stale_where_its_inputs_changed():
    old, new = (dataclasses.replace(el.of(), inputs=x) for x in ("a", "b"))
    lock._refuse_stale(Path("pylock.toml"), old, old)
    with pytest.raises(GpuenvError, match="the project's requirements changed; the packages are the same"):
        lock._refuse_stale(Path("pylock.toml"), old, new)


def test_pip_is_said_to_refuse_a_wheel_variant():
    at = "https://files.example/numpy-2.3.0-cp312-cp312-linux_x86_64{}.whl"
    for url, told in ((at.format(""), False), (at.format("-cu126"), True)):
        locked = el.of((dataclasses.replace(el.PACKAGES[2], url=url),))
        plan = resolve.add_pip(locked.plan, el.KNOWN, Choices(), None, locked)
        assert any("pip refuses wheel variants" in note for note in plan.notes) == told


# --- diagnose ----------------------------------------------------------------------------------------


def test_broken_profiles_do_not_hide_the_failure_that_they_would_explain(monkeypatch):
    monkeypatch.setattr(explain.rows, "load", fails(DataError("broken")))
    assert explain.explain_log("CUDA out of memory") == ()


def test_a_module_is_searched_in_a_bounded_number_of_folders(tmp_path, monkeypatch):
    (tmp_path / "a" / "utils").mkdir(parents=True)
    (tmp_path / "a" / "utils" / "x.py").touch()
    assert packages.has_own_module([tmp_path], "utils.x")
    assert not packages.has_own_module([tmp_path], "other")
    monkeypatch.setattr(packages, "_FOLDERS", 0)
    assert not packages.has_own_module([tmp_path], "utils.x")


def test_a_colab_runtime_adds_what_its_user_installed(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    here = Machine(target=LINUX, context=HostContext(colab=True))
    monkeypatch.setattr(diagnose, "detect_machine", lambda **_: here)
    monkeypatch.setattr(diagnose, "find_likely_env", lambda: None)
    site = tmp_path / ".local/lib/python3.12/site-packages/torch-2.9.0.dist-info"
    site.mkdir(parents=True)
    (site / "INSTALLER").write_text("pip\n")
    (site / "RECORD").write_text("")
    said = []
    result = diagnose.diagnose(diagnose.DiagnoseOptions(), said.append)
    assert any("after this runtime was created: torch 2.9.0 (pip" in e.text for e in said)
    assert result.findings == () and any("no NVIDIA GPU that can be used" in e.text for e in said)
    explained = Finding(cause="cpu_only_build", title="t")
    (with_installs,) = diagnose.add_later_installs(said.append, (explained,))
    assert "torch 2.9.0" in with_installs.evidence[-1].text


def test_a_project_that_is_described_twice_has_no_environment_to_propose(monkeypatch):
    monkeypatch.setattr(diagnose, "find_project_env", fails(DataError("two files")))
    assert diagnose.find_likely_env() is None


# --- other commands ----------------------------------------------------------------------------------


def test_export_takes_the_active_environment_if_gpuenv_made_it(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    active = ("VIRTUAL_ENV", tmp_path / "active")
    monkeypatch.setattr(export, "find_active_env", lambda: active)
    monkeypatch.setattr(export, "choose_env_to_read", lambda *_: active[1])
    monkeypatch.setattr(export, "_read_env_source", lambda path: path)
    monkeypatch.setattr(place, "made_by_gpuenv", lambda path: path == active[1])
    assert export._source(lambda _: None, None, None, Choices()) == active[1]
    monkeypatch.setattr(export, "find_active_env", lambda: None)
    with pytest.raises(UsageError, match="there is no environment"):
        export._source(lambda _: None, None, None, Choices())


def test_profiles_that_cannot_be_updated_are_refused_before_an_index_is_asked(tmp_path):
    with pytest.raises(UsageError, match="numpy: not one of"):
        profiles.update(profiles.ProfilesUpdateOptions(names=["numpy"]))
    (tmp_path / "torch.yaml").write_text("builds: 3\n")
    with pytest.raises(DataError, match="is invalid and was not updated"):
        profiles._read_own_tables(tmp_path / "torch.yaml")
    with pytest.raises(UsageError, match="cannot be written: ") as refused:
        profiles._write(tmp_path / "torch.yaml" / "x.yaml", "")
    assert refused.value.hint


@rows(("named", "required"), [({"a"}, {"a", "b"}), (None, {"a", "b", "c"})])
def test_without_recorded_names_what_nothing_requires_counts_as_named(monkeypatch, tmp_path, named, required):
    needs = {"a": ["b"], "b": [], "c": []}
    installed = [SimpleNamespace(name=n, requires_always=lambda _, n=n: needs[n]) for n in needs]
    monkeypatch.setattr(prove, "list_named_packages", lambda *_: named)
    proof = prove.Proof(SimpleNamespace(path=str(tmp_path)), Choices(), None, lock=el.of())
    proof.early = SimpleNamespace(
        python_paths=SimpleNamespace(result=lambda: SimpleNamespace(version="3.12"))
    )
    assert set(proof._list_wanted(installed)) == required


def test_what_was_removed_before_a_failure_is_told(monkeypatch, tmp_path):
    said, answers = [], [SimpleNamespace(path="/first"), BuildError("no")]

    def removed(_emit, _env):
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    monkeypatch.setattr(remove, "_remove", removed)
    monkeypatch.setattr(remove, "_check", lambda _: None)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with pytest.raises(BuildError):
        remove.remove(remove.RemoveOptions(envs=[tmp_path / "one", tmp_path / "two"]), said.append)
    assert [e.text for e in said] == ["/first: removed"]


def test_a_list_that_cannot_forget_an_environment_does_not_keep_it(monkeypatch, tmp_path):
    env, said = tmp_path / "env", []
    (env / place.MARK).mkdir(parents=True)
    (env / place.MARK / "plan.json").write_text("{}")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(registry, "forget", fails(BuildError("the list cannot be written")))
    remove._remove(said.append, env)
    assert [e.text for e in said] == ["the list cannot be written"] and not env.exists()


def test_repair_reads_only_options_that_it_knows_and_refuses_another_python(monkeypatch, tmp_path):
    monkeypatch.setattr(repair.record, "read", lambda *_: {"choices": {"of_another_version": 1}})
    mine = Choices(find_links=["/wheels"])
    assert repair._recall_choices(tmp_path, mine) is mine
    monkeypatch.setattr(repair, "locate_environment", lambda _: None)
    monkeypatch.setattr("provision.environment.interpreter.ask_version", lambda _: "3.11.4")
    with pytest.raises(BuildError, match=r"Python is 3\.11\.4; its lock is for 3\.12") as refused:
        repair._check_python(tmp_path, el.of())
    assert "--recreate" in refused.value.hint
    monkeypatch.setattr("provision.environment.interpreter.ask_version", lambda _: "3.12.9")
    repair._check_python(tmp_path, el.of())


def test_the_report_says_the_kinds_of_sources_and_no_address():
    sources = PackageSources(
        find_links=("/home/jane/wheels", "https://u:p@h/w"), no_index=True, cert="/c.pem"
    )
    lines = "\n".join(report._words(sources))
    assert "2 with wheels" in lines and "forbids indexes" in lines and "certificate" in lines
    assert "jane" not in lines and "https" not in lines


def test_a_program_in_the_place_of_an_environment_is_proposed_as_one(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name, proposed in (("sh", True), ("no-such-program", False)):
        with pytest.raises(UsageError) as refused:
            run.find_programs(Path(name))
        assert refused.value.hint.endswith("in the project's environment: gpuenv run -- sh") == proposed


@rows(
    ("options", "message"),
    [
        ({"expect_gpus": 2}, "--expect-gpus needs --node"),
        ({"quick": True, "deep": True}, "--quick and --deep cannot be used together"),
    ],
)
def test_verify_refuses_options_that_exclude_each_other(options, message):
    with pytest.raises(UsageError, match=message):
        verify.verify(verify.VerifyOptions(**options))
