"""What is read in the errors of uv."""

import re

import pytest
from packaging.version import Version
from rows import rows

from provision.lock.uv_errors import _are_withdrawn, explain, find_missing_wheel, find_unusable
from provision.model import PackageSources, RequirementLine
from provision.system.process import Finished
from provision.wheels.releases import SourceArchives


@rows(
    ("log", "found"),
    [
        ("Because fire>=4.9,<=4.9.3 has no usable wheels and you require fire", {"fire": (">=4.9,<=4.9.3",)}),
        (
            "<21 and all of:\n    mlflow==2.22.3\n    mlflow==3.1.2\nhave no usable wheels, we can",
            {"mlflow": ("==2.22.3", "==3.1.2")},
        ),
        ("Because all versions of sgmllib3k have no usable wheels and", {"sgmllib3k": ("",)}),
        ("Because Many.Names==1 has no usable wheels and other==2 has no usable wheels.",
         {"many-names": ("==1",), "other": ("==2",)}),
        ("Because a==1 has no usable wheels and a==3 has no usable wheels", {"a": ("==3", "==1")}),
        ("Because a==1 has no wheels with a matching Python tag", {}),
        ("has no usable wheels", {}),
        ("", {}),
    ],
)  # fmt: skip
def test_releases_without_usable_wheels(log, found):
    assert find_unusable(log) == found


def failed(said, sources, *needs):
    done = Finished(returncode=1, stdout="", stderr=said, timed_out=False, signal=None, report=b"")
    return explain(done, sources, (), needs, SourceArchives(sources))


def test_a_package_that_no_place_has_is_one_sentence():
    said = "error: No solution found\n  cause: Because einopps was not found in the package registry and you require it"
    sources = PackageSources(find_links=("/wheels",), offline=True)
    line = RequirementLine(text="einopps", name="einopps", origin="requirements.txt line 3")
    error = failed(said, sources, line)
    assert re.fullmatch(r".* einopps \(requirements\.txt line 3\) .*not found in /wheels", error.message)
    assert (error.absent, error.log) == ("einopps", None)


def test_a_wheel_for_a_newer_glibc_is_no_matter_of_bounds():
    said = (
        "error: No solution found\n  cause: Because nvidia-cudnn-cu12==9.28.0.42 has no wheels with a matching platform "
        "tag (e.g., `manylinux_2_17_x86_64`) and the request has it\n"
        "hint: Wheels are available for `nvidia-cudnn-cu12` (v9.28.0.42) on the following platforms: `manylinux_2_27_aarch64`"
    )
    error = failed(said, PackageSources(offline=True))
    assert re.fullmatch(r"nvidia-cudnn-cu12 9\.28\.0\.42 .*glibc 2\.17; .*glibc 2\.27", error.message)
    assert "for glibc 2.17. If" in (error.hint or "")


def test_what_a_build_prints_of_the_network_is_no_refusal_of_an_index():
    said = (
        "error: Failed to build `stub==1.0`\n  cause: The build backend returned an error\n"
        "  cause: Call to `stub.build_wheel` failed (exit status: 1)\n\n[stderr]\n"
        "urllib3: https://wheels.example/ operation timed out\nerror: the wheel cannot be fetched"
    )
    error = failed(said, PackageSources())
    assert (error.unreachable, error.failed) == (None, "stub") and "could not be built" in error.message


def test_a_repository_that_uv_names_only_in_a_command_is_named_with_its_line():
    said = (
        "error: Git operation failed\n  cause: failed to clone into: /cache/git-v2/db/76e2\n"
        "  cause: process didn't exit successfully: `/usr/bin/git fetch --force --update-head-ok "
        "'https://code.example/lab/parts.git' '+c943:refs/commit/c943'` (exit status: 128)\n"
        "         fatal: unable to access 'https://code.example/lab/parts.git/': Could not resolve host"
    )
    line = RequirementLine(
        text="parts @ git+https://code.example/lab/parts@c943", name="parts", origin="requirements.txt line 3"
    )
    error = failed(said, PackageSources(), line)
    assert error.unreachable == "https://code.example/lab/parts"
    assert "https://code.example/lab/parts.git (requirements.txt line 3)" in error.message


@pytest.mark.parametrize(
    ("why", "words", "is_closed"),
    [
        ("Connection refused (os error 111)", "refuses the connection", True),
        ("HTTP status client error (404 Not Found) for url (https://a.example/p-1.zip)", "does not have the file (HTTP 404 Not Found)", False),
    ],
)  # fmt: skip
def test_the_address_of_a_file_is_no_index_and_is_named_with_its_line(why, words, is_closed):
    address = "https://a.example/p-1.zip"
    said = f"error: Failed to download and build `p @ {address}`\n  cause: Failed to fetch: {address}\n  cause: {why}"
    written = f"p @ {address.replace('//', '//me:secret@')}"  # the log is read without credentials
    error = failed(said, PackageSources(), RequirementLine(text=written, name="p", origin="a.txt line 3"))
    assert error.message == f"cannot read {address} (a.txt line 3): the server {words}"
    assert error.unreachable == (address if is_closed else None)


def test_a_package_with_wheels_for_other_pythons_only_is_found():
    archives = SourceArchives(PackageSources())
    for subject in (
        "all versions of tensorflow-addons have", "tensorflow-addons>=0.20 has", "all versions of tensorflow-addons[cuda] have",
        "tensorflow-addons[a,b]>=0.20 has",
    ):  # fmt: skip
        log = f"Because {subject} no wheels with a matching Python ABI tag (e.g., `cp313`) and the request"
        assert find_missing_wheel(log, archives) == "tensorflow-addons"


GIT = "error: Git operation failed\\n  cause: Failed to download and build `{}git+https://code.example/lab/parts@v1#subdirectory=a`"


@rows(
    ("said", "message", "facts"),
    [
        ("error: No space left on device (os error 28)", "the disk is full: No space left on device", {}),
        ("error: Failed to read `--find-links` URL: https://pages.example/a.html\n  cause: timed out",
         "the page of wheels https://pages.example/a.html cannot be read", {"unreachable": "https://pages.example/a.html"}),
        ("error: Failed to read `--find-links` URL: https://pages.example/a.html\n  cause: 404 Not Found",
         "the page of wheels https://pages.example/a.html cannot be read", {"unreachable": None}),
        (GIT.format("parts @ "), "git cannot fetch the repository git+https://code.example/lab/parts@v1#subdirectory=a (a.txt line 3)",
         {}),
        ("error: No solution found\n  cause: Because tool==2 depends on Python>=3.13,<4 and b depends on Python==3.12.*, we can",
         "", {"pythons": (">=3.13,<4", "==3.12.*"), "contradiction": True}),
    ],
)  # fmt: skip
def test_a_run_without_a_solution_has_its_cause(said, message, facts):
    line = RequirementLine(
        text="parts @ git+https://code.example/lab/parts", name="parts", origin="a.txt line 3"
    )
    error = failed(said, PackageSources(offline=True), line)
    assert error.message.startswith(message)
    assert {name: getattr(error, name) for name in facts} == facts


def test_a_solve_that_takes_too_long_says_so():
    done = Finished(returncode=None, stdout="", stderr="", timed_out=True, signal=None, report=b"")
    sources = PackageSources()
    assert "took longer than" in explain(done, sources, (), (), SourceArchives(sources)).message


def test_bounds_that_cannot_be_read_withdraw_nothing():
    releases = {Version("1.0"): True, Version("2.0"): False}
    found = [_are_withdrawn(bounds, releases) for bounds in (["==1.0"], [">=1"], ["==1.0", "==dev"], [])]
    assert found == [True, False, False, False]


def test_a_source_that_needs_a_framework_to_build_is_installed_from_its_own_address():
    said = "error: `parts` depends on `torch`, but doesn't declare it as a build dependency"
    for text, what in (
        ("parts @ git+https://code.example/parts", "'parts @ git+https://code.example/parts'"),
        ("parts", "parts"),
    ):
        line = RequirementLine(text=text, name="parts", origin="a.txt line 3", vcs="git+" in text)
        error = failed(said, PackageSources(), line)
        assert error.hint.endswith(f"pip install --no-build-isolation {what}")


def test_a_folder_whose_build_imports_more_than_it_states_is_told_where_to_state_it():
    said = (
        "error: Failed to build `parts-of-me @ file:///home/me/Parts`\n"
        "hint: `parts-of-me` depends on `pkg_resources`, but doesn't declare it as a build dependency"
    )
    line = RequirementLine(text="/home/me/Parts", name=None, origin="setup.py", local="/home/me/Parts")
    error = failed(said, PackageSources(), line)
    assert error.message == "the build of parts-of-me (setup.py) imports pkg_resources"
    assert error.hint == "in its pyproject.toml, add what has pkg_resources to requires of [build-system]"
