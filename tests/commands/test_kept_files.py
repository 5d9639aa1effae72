"""Files that gpuenv did not write, or that the user edited since, are replaced with --force alone."""
# ruff: noqa: F811  # fixtures are imported by their name

import sys

import pytest
from bundle_site import ASK, Site, again, made  # noqa: F401  # fixtures
from environment_facts import ok, refused
from loopback import Index, serving

from provision.errors import UsageError
from provision.system.files import refuse_to_replace, signed, unsigned


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """A site with an index, and the text of a lock made from it."""
    with serving(Index()) as index:
        site = Site(tmp_path_factory.mktemp("locked"), index)
        ok(site.gpuenv("lock", *ASK))
        site.text = (site.gpuenv.work / "pylock.toml").read_text()
        yield site


def commands(form="requirements"):
    return {
        "lock": ("lock", *ASK, "-o", "out"),
        "export": ("export", "--format", form, "--lock", "held.toml", "-o", "out"),
        "verify": ("verify", sys.executable, "--quick", "--device", "cpu", "--report", "out"),
    }


@pytest.fixture
def work(locked):
    folder = locked.gpuenv.work
    for path in folder.iterdir():
        path.unlink()
    (folder / "held.toml").write_text(locked.text)
    return folder


def kept(ran, path, text, why):
    assert ran.code == 2 and f"out {why}; it is kept" in ran.err and "--force" in ran.err, ran.err
    assert path.read_text() == text


@pytest.mark.parametrize("command", commands())
def test_a_file_of_the_user_is_kept_without_force(locked, work, command):
    argv, out = commands()[command], work / "out"
    out.write_text("my own notes\n")
    kept(locked.gpuenv(*argv), out, "my own notes\n", "was not written by gpuenv")
    ran = locked.gpuenv(*argv, "--force")
    assert ran.code in (0, 8) and "my own notes" not in out.read_text(), ran.err
    assert locked.gpuenv(*argv).code == ran.code, "what gpuenv wrote is replaced"
    text = out.read_text() + "mine\n"
    out.write_text(text)
    kept(locked.gpuenv(*argv), out, text, "was edited after gpuenv wrote it")


@pytest.mark.parametrize("form", ["pylock", "sbatch", "pixi", "cyclonedx"])
def test_each_kind_of_export_knows_its_own_file(locked, work, form):
    argv, out = commands(form)["export"], work / "out"
    for _ in range(2):
        ok(locked.gpuenv(*argv))
    text = out.read_text()
    assert not text.startswith("#!") or form == "sbatch"
    out.write_text(text.replace("1", "2"))
    kept(locked.gpuenv(*argv), out, text.replace("1", "2"), "was edited after gpuenv wrote it")


def test_the_project_lock_of_another_tool_is_kept_and_an_empty_file_is_not(locked, work):
    path = work / "pylock.toml"
    text = 'lock-version = "1.0"\ncreated-by = "uv"\npackages = []\n'
    path.write_text(text)
    ran = locked.gpuenv("lock", *ASK)
    assert ran.code == 2 and "pylock.toml was not written by gpuenv" in ran.err and path.read_text() == text
    path.write_text("")
    assert locked.gpuenv("lock", *ASK).code == 0 and path.read_text() == locked.text


@pytest.mark.parametrize("name", ["README.txt", "pylock.toml"])
def test_an_edited_file_of_a_bundle_is_kept(again, name):  # a fixture
    path = again.folder / name
    text = path.read_text() + "# mine\n"
    path.write_text(text)
    assert f"{name} was edited after gpuenv wrote it" in refused(again(), 2).err and path.read_text() == text
    ran = again("--force")
    assert ran.code == 0 and path.read_text() != text, ran.err


@pytest.mark.parametrize(("text", "sign"), [("a\nb\n", "#"), ("#!/bin/sh\n# written by `gpuenv export`\nx\n", "#"),
                                            ("<p>", "<!--"), ("", "//"), ("a\r\nb", "#")])  # fmt: skip
def test_a_signed_text_is_known_and_one_character_more_is_not(tmp_path, text, sign):
    path = tmp_path / "file"
    made_text = signed(text, sign)
    assert signed(made_text, sign) == made_text and unsigned(made_text).strip() == text.strip()
    assert text[:2] != "#!" or made_text.startswith("#!")
    assert made_text.endswith(" -->\n") == (sign == "<!--") == ("-->" in made_text)
    for data in (made_text, made_text.replace("\n", "\r\n")):
        path.write_bytes(data.replace("\r\r", "\r").encode())
        refuse_to_replace(path, force=False)
    path.write_text(made_text + "x")
    with pytest.raises(UsageError, match="edited"):
        refuse_to_replace(path, force=False)
    refuse_to_replace(path, force=True)
