"""Requirements of a project that are addresses, commits and paths."""
# ruff: noqa: F811  # fixtures are imported by their names

from pathlib import Path

from requirements_folder import LINUX, asked, elsewhere, folder, package, texts, write  # noqa: F401  # fixtures

from provision.requirements.sort import read_project_requirements


def test_local_folders_wheels_and_archives_are_read(folder):
    package(folder, "lib")
    package(folder, "old", setup="from setuptools import setup\nsetup(name='older')\n")
    package(folder, "unknown", setup="from setuptools import setup\nsetup(name=open('x').read())\n")
    package(folder, "with space")
    (folder / "wheels").mkdir()
    (folder / "wheels" / "foo-1.0-py3-none-any.whl").touch()
    (folder / "bar-2.0.tar.gz").touch()
    found = asked(
        folder,
        f"""\
        ./lib[a,b] ; python_version < "3.13"
        -e ./old
        unknown/
        ./with space
        other @ ./lib
        other2[x] @ file://{folder}/lib
        file://{folder}/with%20space
        wheels/foo-1.0-py3-none-any.whl
        bar-2.0.tar.gz
        """,
    )
    base = folder.as_uri()
    assert texts(found) == [
        f'lib[a,b] @ {base}/lib ; python_version < "3.13"',
        f"older @ {base}/old",
        f"{base}/unknown",
        f"{base}/with%20space",
        f"other @ {base}/lib",
        f"other2[x] @ {base}/lib",
        f"{base}/with%20space",
        f"foo @ {base}/wheels/foo-1.0-py3-none-any.whl",
        f"bar @ {base}/bar-2.0.tar.gz",
    ]
    assert [n.local and Path(n.local).name for n in found.lines] == [
        "lib", "old", "unknown", "with space", "lib", "lib", "with space", None, None,
    ]  # fmt: skip
    assert [n.editable for n in found.lines] == [False, True, *[False] * 7]


def test_a_dot_in_a_subfolder_means_the_project_where_pip_is_run(folder, monkeypatch):
    """`-e .` in requirements/dev.txt is the folder where pip runs: the next one up that can be installed."""
    write(folder, requirements__dev="-e .\n", pyproject="")
    package(folder, "proj")
    (folder / "proj" / "requirements").mkdir()
    (folder / "proj" / "requirements" / "dev.txt").write_text("-e .\n")
    monkeypatch.chdir(folder / "proj")
    found = read_project_requirements({}, LINUX, requirements=[Path("requirements/dev.txt")])
    assert [n.local for n in found.lines] == [str(folder / "proj")]


def test_commits_and_archive_addresses_are_read(folder):
    found = asked(
        folder,
        """\
        git+https://github.com/openai/CLIP.git
        clip @ git+https://github.com/openai/CLIP.git@a1d0717
        git+ssh://git@github.com/owner/repo.git@v1.0#egg=repo[extra]
        -e git+https://token@host/x.git@main#subdirectory=a/b&egg=x
        https://github.com/owner/repo/archive/main.zip
        https://host/foo-1.0+cu12-cp311-cp311-linux_x86_64.whl#sha256=abc ; sys_platform == 'linux'
        """,
    )
    assert texts(found) == [
        "git+https://github.com/openai/CLIP.git",
        "clip @ git+https://github.com/openai/CLIP.git@a1d0717",
        "repo[extra] @ git+ssh://git@github.com/owner/repo.git@v1.0",
        "x @ git+https://token@host/x.git@main#subdirectory=a/b",
        "https://github.com/owner/repo/archive/main.zip",
        'foo @ https://host/foo-1.0+cu12-cp311-cp311-linux_x86_64.whl#sha256=abc ; sys_platform == "linux"',
    ]
    assert [n.vcs for n in found.lines] == [True] * 4 + [False] * 2
    assert [n.name for n in found.lines] == [None, "clip", "repo", "x", None, "foo"]
