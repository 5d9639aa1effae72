"""Requirements on top of a plan: one lock in which the stack stays the plan's, synced in place."""

import json
import shutil

import project_packages
import pytest
import tomllib
from environment_facts import HERE, installed, ok, refused
from loopback import Index, serving, wheel_bytes
from made_env import JAX, PROJECT, create, jax_env

GPU = ("--driver", "580.65.06", "--gpu", "9.0")


@pytest.fixture
def stack(gpuenv, index):
    """`gpuenv VERB` for a GPU target on an index that has the newest torch and the newest below 2.9."""
    for wanted in ("torch", "torch<2.9"):
        plan = gpuenv("resolve", "--json", "--framework", wanted, "--python", HERE, "--index", "pypi", *GPU)
        index.add_plan(plan.json)
    gpuenv.env["PIP_INDEX_URL"] = index.url
    index.add("plain", "1.0")
    index.add("plain", "2.0")

    def go(verb, *more):
        verify = ("--no-verify",) if verb == "create" else ()
        return gpuenv(verb, "--python", HERE, "--index", "pypi", *GPU, *verify, *more)

    go.newest = gpuenv(
        "resolve", "--json", "--framework", "torch", "--python", HERE, "--index", "pypi", *GPU
    ).json["builds"][0]["version"]
    return go


def requirements(gpuenv, *lines, name="requirements.txt"):
    (gpuenv.work / name).write_text("\n".join(lines) + "\n")


def versions(ran):
    return {p["name"]: p["version"] for p in ran.json["packages"]}


def test_requirements_come_along_and_the_stack_stays_the_plans(stack, gpuenv, index):
    index.add("brings", "1.0", requires=("hungry",))
    index.add("hungry", "1.0")
    index.add("hungry", "2.0", requires=("torch<2.9",))
    requirements(gpuenv, "torch  # whatever", "brings", "plain<2", "nvidia-cublas-cu12==1.2.3")
    ran = ok(stack("lock", "-r", "requirements.txt", "--framework", "torch", "--json"))
    have = versions(ran)
    assert have["torch"] == stack.newest and have["hungry"] == "1.0" and have["plain"] == "1.0"
    notes = " ".join(ran.json["plan"]["notes"])
    assert "nvidia-cublas-cu12==1.2.3" in notes and "requirements.txt line 4" in notes


def test_the_frameworks_are_those_that_the_files_name(stack, gpuenv):
    requirements(gpuenv, "torch<2.9", "plain")
    plan = stack("resolve", "-r", "requirements.txt", "--json").json
    assert [b["framework"] for b in plan["builds"]] == ["torch"]
    assert plan["builds"][0]["version"].startswith("2.8")
    told = {r["version"]: [x["text"] for x in r["reasons"]] for r in plan["rejected"]}
    assert any("requirements.txt line 1 requires torch<2.9" in t for t in told[stack.newest])


def test_a_contradiction_names_the_line_and_the_rule(stack, gpuenv):
    requirements(gpuenv, "", "torch<2.9")
    ran = refused(stack("resolve", "-r", "requirements.txt", "--framework", "torch>=2.10", "--json"), 5)
    reasons = [x for r in ran.json["rejected"] for x in r["reasons"]]
    assert any(
        x["code"] == "requirement_conflict" and "requirements.txt line 2" in x["text"] for x in reasons
    )
    assert "torch<2.9" in ran.json["hint"] and "requirements.txt line 2" in ran.json["hint"]


def test_a_package_that_needs_an_older_framework_gets_it(stack, gpuenv, index):
    index.add("old-friend", "1.0", requires=("torch<2.9",))
    requirements(gpuenv, "old-friend")
    ran = ok(stack("lock", "-r", "requirements.txt", "--framework", "torch", "--json"))
    assert ran.json["plan"]["builds"][0]["version"].startswith("2.8")
    assert versions(ran)["torch"].startswith("2.8")
    over = {r["version"]: r["reasons"] for r in ran.json["plan"]["rejected"] if r["index"] == "pypi"}
    assert [x["text"] for x in over[stack.newest]] == ["old-friend 1.0 requires torch<2.9"]


def test_packages_that_go_with_no_build_are_named_with_their_lines(stack, gpuenv, index):
    index.add("one", "1.0", requires=("plain<2",))
    index.add("two", "1.0", requires=("plain>=2",))
    requirements(gpuenv, "one", "two")
    ran = refused(stack("lock", "-r", "requirements.txt", "--framework", "torch"), 6)
    assert "one (requirements.txt line 1)" in ran.err and "two (requirements.txt line 2)" in ran.err
    assert not (gpuenv.work / "pylock.toml").exists()


def test_a_package_that_does_not_exist_is_named_with_its_line(stack, gpuenv):
    requirements(gpuenv, "plain", "no-such-thing")
    ran = stack("lock", "-r", "requirements.txt", "--framework", "torch")
    assert ran.code == 6 and "no-such-thing (requirements.txt line 2)" in ran.err


def test_a_framework_that_comes_along_is_planned(stack, gpuenv, index):
    index.add("brings", "1.0", requires=("torch",))
    requirements(gpuenv, "brings")
    ran = ok(stack("lock", "-r", "requirements.txt", "--json"))
    assert [b["framework"] for b in ran.json["plan"]["builds"]] == ["torch"]
    requirements(gpuenv, "plain")
    ran = stack("create", "other", "-r", "requirements.txt")
    assert ran.code == 2 and "the packages of requirements.txt require none" in " ".join(ran.err.split())


def test_what_has_no_wheel_or_no_hash_is_named_and_comes_last(stack, gpuenv, index):
    """One of two archives needs a package of the environment for its build, and does not say so."""
    file, data = project_packages.archive(gpuenv.folder, "sourced", "4.1")
    index.wheels["sourced"] = {file: data}
    folder = project_packages.folder(gpuenv.folder / "against", "against", "2.0")
    backend = folder / "backend.py"
    backend.write_text(
        backend.read_text().replace("    return _wheel", "    import plain\n    return _wheel")
    )
    file, data = project_packages.packed(folder, "against", "2.0")
    index.wheels["against"] = {file: data}
    mine = project_packages.folder(gpuenv.work / "mine", "mine", "1.5", requires=("plain<2",))
    repo, commit = project_packages.repository(gpuenv.work / "repo", "fromgit", "0.3")
    requirements(gpuenv, f"-e {mine}", f"fromgit @ git+file://{repo}", "torch", "sourced", "against", "plain")
    ran = ok(stack("create", "-r", "requirements.txt", "--json"))
    assert "sourced 4.1 has no wheel" in ran.err
    assert "not checked by hash" in ran.err and "the build tools have no hashes" in ran.err
    have = installed(gpuenv.work / ".venv")
    assert have["mine"] == "1.5" and have["fromgit"] == "0.3" and have["plain"] == "1.0"
    assert have["sourced"] == "4.1" and have["against"] == "2.0"
    locked = {p["name"]: p for p in ran.json["lock"]["packages"]}
    assert len(locked["sourced"]["sha256"]) == 64 and locked["sourced"]["url"].endswith(".tar.gz")
    assert {name for name, p in locked.items() if p["unhashed"]} == {"mine", "fromgit"}
    assert locked["fromgit"]["url"] == f"git+file://{repo}@{commit}" and locked["mine"]["editable"]
    text = (gpuenv.work / ".venv/.gpuenv/pylock.toml").read_text()
    tables = {p["name"]: p for p in tomllib.loads(text)["packages"]}
    assert tables["fromgit"]["vcs"]["commit-id"] == commit
    assert tables["mine"]["directory"] == {"path": str(mine), "editable": True}
    ran = gpuenv("verify", "--device", "cpu", "--json")
    verdict = ran.json
    assert ran.code == 8, ran.out + ran.err
    assert len(verdict["unhashed"]) == 2 and any(commit in u for u in verdict["unhashed"])


def test_what_is_compiled_against_a_build_comes_from_the_page_of_that_build(stack, gpuenv, index):
    overlay = gpuenv.folder / "overlay"
    overlay.mkdir()
    (overlay / "indexes.yaml").write_text(
        '- table: "pages"\n  framework: "torch"\n  source: "here"\n  read: "2026-11-20"\n  kept: "by hand"\n  rows:\n'
        '  - {packages: "torch-scatter torch-sparse torch-cluster torch-spline-conv pyg-lib", '
        f'url: "{index.url}/page-{{version}}-{{label}}/", local: "pt{{digits}}{{label}}"}}\n'
    )
    requirements(gpuenv, "torch", "torch-scatter")
    asked = ("lock", "-r", "requirements.txt", "--profiles", overlay, "--json")
    assert "torch-scatter" in refused(stack(*asked), 6).json["error"]["message"]
    plan = stack("resolve", "--framework", "torch", "--json").json
    label = f"cu{plan['builds'][0]['cuda'].replace('.', '')}"
    release = f"2.1.2+pt{''.join(stack.newest.split('.')[:2])}{label}"
    file = f"torch_scatter-{release}-py3-none-any.whl"
    index.wheels[f"page-{stack.newest}-{label}"] = {file: wheel_bytes("torch_scatter", release)}
    ran = ok(stack(*asked))
    locked = next(p for p in ran.json["packages"] if p["name"] == "torch-scatter")
    assert locked["version"] == release
    assert (locked["sha256"] and locked["url"].endswith(file.replace("+", "%2B"))) or locked["url"].endswith(
        file
    )


def test_hashes_of_the_file_are_held(stack, gpuenv, index):
    requirements(gpuenv, "torch", f"plain==1.0 --hash=sha256:{'0' * 64}")
    ran = stack("lock", "-r", "requirements.txt")
    assert ran.code == 6 and "requirements.txt line 2" in ran.err and "hash" in ran.err


# --- a project ---------------------------------------------------------------------------------


def test_create_names_the_version_that_is_installed_and_not_the_lock_s(gpuenv, index):
    jax_env(gpuenv, index)
    assert "in the lock" not in gpuenv("create", *JAX, "--no-verify").out
    (info,) = (gpuenv.work / ".venv").glob("lib/*/site-packages/jax-*.dist-info")
    version = info.name.split("-")[1].removesuffix(".dist")
    metadata = info / "METADATA"
    metadata.write_text(metadata.read_text().replace(f"Version: {version}", "Version: 0.4.1"))
    changed = info.rename(info.with_name("jax-0.4.1.dist-info"))
    ran = gpuenv("create", *JAX, "--no-verify")
    told = " ".join(ran.out.split())
    assert ran.code == 0
    assert f"jax {version} in the lock, 0.4.1 installed: gpuenv repair {gpuenv.work / '.venv'}" in told
    assert f"jax {version} CPU" not in told and f"jax {version} CUDA" not in told
    (change,) = gpuenv("create", *JAX, "--no-verify", "--json").json["environment"]["drift"]
    assert (change["locked"], change["found"]) == (version, "0.4.1")
    shutil.rmtree(changed)
    told = " ".join(gpuenv("create", *JAX, "--no-verify").out.split())
    assert f"jax {version} in the lock, none installed: gpuenv repair" in told


@pytest.fixture
def project(stack, gpuenv, index):
    """A project with gpuenv.yaml whose environment is there."""
    requirements(gpuenv, "plain<2")
    driver = 'targets: {node: {driver: "580.65.06", gpus: ["9.0"]}}'
    (gpuenv.work / "gpuenv.yaml").write_text(
        f'# mine\nframeworks: ["torch"]\nrequirements: ["requirements.txt"]\nindex: pypi\npython: "{HERE}"\n{driver}\n'
    )

    def go(verb, *more):
        verify = ("--no-verify",) if verb in ("create", "add") else ()
        target = ("--target", "node") if verb in ("create", "lock", "resolve") else ()
        return gpuenv(verb, *target, *verify, *more)

    create(gpuenv, index, "--target", "node")
    return go


def test_a_project_needs_no_arguments_and_the_second_time_does_nothing(project, gpuenv, index):
    have = installed(gpuenv.work / ".venv")
    assert have["plain"] == "1.0" and "torch" in have
    index.forget()
    assert ok(project("create", "--json")).json["environment"]["changed"] is False
    assert not index.requests
    ran = gpuenv("resolve", "--target", "nodes")
    assert ran.code == 2 and "node" in ran.err, "an unknown target is answered with those that are known"
    file = gpuenv.work / "gpuenv.yaml"
    file.write_text(file.read_text().replace('"torch"', '"jax"'))
    ran = project("create")
    assert ran.code == 2 and "--recreate" in ran.err, "no framework is put over another"


def test_a_changed_requirements_file_is_synced_in_place(project, gpuenv, index):
    env = gpuenv.work / ".venv"
    torch = (next(env.glob("lib/*/site-packages/torch")) / "__init__.py").stat()
    index.add("more", "1.0")
    requirements(gpuenv, "plain", "more")
    ok(project("create", "--json"))
    have = installed(env)
    assert have["plain"] == "1.0", "what still fits stays as it was locked"
    assert have["more"] == "1.0"
    requirements(gpuenv, "plain>=2")
    assert project("create").code == 0
    have = installed(env)
    assert have["plain"] == "2.0" and "more" not in have
    now = (next(env.glob("lib/*/site-packages/torch")) / "__init__.py").stat()
    assert (now.st_ino, now.st_mtime_ns) == (torch.st_ino, torch.st_mtime_ns), "torch was touched"


def test_a_sync_that_cannot_be_done_leaves_the_environment_as_it_was(project, gpuenv, index):
    env = gpuenv.work / ".venv"
    before = installed(env)
    index.add("more", "1.0")
    index.faults["more-1.0-py3-none-any.whl"] = "500"
    requirements(gpuenv, "plain>=2", "more")
    ran = project("create")
    assert ran.code in (6, 7), ran.err
    assert installed(env) == before
    index.faults.clear()
    assert project("create").code == 0
    assert installed(env)["more"] == "1.0"


def test_the_projects_lock_is_installed_and_kept_near(project, gpuenv, index):
    assert project("lock").code == 0
    lock = gpuenv.work / "pylock.node.toml"
    index.add("pip", "26.1")
    assert project("lock", "--check").code == 0, "a release that nobody asked for is no drift"
    assert "pip 26.0," in ok(project("create", "other", "--dry-run")).err
    assert project("lock").code == 0 and '"26.0"' in lock.read_text()
    assert project("lock", "--upgrade", "plain").code == 0 and '"26.0"' in lock.read_text()
    assert project("lock", "--upgrade", "pip").code == 0
    assert '"26.1"' in lock.read_text() and '"26.0"' not in lock.read_text()
    requirements(gpuenv, "plain>=2")
    assert "plain: 1.0 -> 2.0" in refused(project("lock", "--check"), 6).err
    ran = ok(project("create", "other", "--dry-run"))
    assert "is for other requirements" in ran.err and "plain 2.0," in ran.err


def test_a_lock_made_again_is_the_same_also_with_two_indexes(project, gpuenv, index):
    """Seen with uv's own preferences: a package of two indexes changed its version at every lock."""
    with serving(Index()) as other:
        for version in ("1.5", "1.6"):
            other.add("plain", version)
        gpuenv.env["PIP_EXTRA_INDEX_URL"] = other.url
        assert project("lock").code == 0
        first = (gpuenv.work / "pylock.node.toml").read_text()
        assert project("lock", "--check").code == 0
        assert project("lock").code == 0
        assert (gpuenv.work / "pylock.node.toml").read_text() == first


def test_add_writes_the_file_the_lock_and_the_environment(gpuenv, index):
    jax_env(gpuenv, index, PROJECT)
    file, lock, env = gpuenv.work / "gpuenv.yaml", gpuenv.work / "pylock.toml", gpuenv.work / ".venv"
    file.write_text(f"# mine\n{PROJECT}")
    assert "framework" in refused(gpuenv("add", "torch"), 2).err
    (jax,) = env.glob("lib/*/site-packages/jax/__init__.py")
    file_of_jax = jax.stat().st_ino
    ok(gpuenv("add", "more", "--no-verify"))
    assert '"more"' in file.read_text() and file.read_text().startswith("# mine")
    assert '"more"' in lock.read_text() and installed(env)["more"] == "1.0"
    assert jax.stat().st_ino == file_of_jax, "jax was installed anew"
    before = file.read_text(), lock.read_text()
    assert gpuenv("add", "no-such-thing").code == 6 and (file.read_text(), lock.read_text()) == before


def test_add_without_a_project_file_adds_to_what_the_environment_was_made_for(gpuenv, index):
    jax_env(gpuenv, index)
    ok(gpuenv("add", "more", "--no-verify"))
    assert installed(gpuenv.work / ".venv")["more"] == "1.0"
    assert gpuenv("add", "more", "--env", "nowhere").code == 2


def test_a_project_is_locked_for_a_python_that_the_machine_lacks(gpuenv, index):
    (gpuenv.work / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\nrequires-python = "==3.14.*"\n'
    )
    ask = ("--framework", "jax", "--index", "pypi", "--device", "cpu", "--project", ".", "--json")
    index.add_plan(ok(gpuenv("resolve", *ask)).json)
    gpuenv.env["PIP_INDEX_URL"] = index.url
    assert ok(gpuenv("lock", *ask)).json["plan"]["python"] == "3.14"


def test_a_pyproject_comes_along_with_its_extras(stack, gpuenv, index):
    index.add("extra-thing", "3.0")
    pyproject = gpuenv.work / "pyproject.toml"
    pyproject.write_text(
        '[project]\nname = "p"\nversion = "1"\nrequires-python = ">=3.8"\ndependencies = ["torch<2.9", "plain<2"]\n'
        '[project.optional-dependencies]\nmore = ["extra-thing"]\n'
    )
    have = versions(ok(stack("lock", "--project", ".", "--extra", "more", "--json")))
    assert have["torch"].startswith("2.8") and have["plain"] == "1.0" and have["extra-thing"] == "3.0"
    assert "p" not in have, "a project that cannot be built is not installed"
    pyproject.write_text(pyproject.read_text().replace(">=3.8", "<3.8"))
    ran = stack("resolve", "--project", ".", "--json")
    assert ran.code == 5 and "pyproject.toml" in json.dumps(ran.json["rejected"])
