"""What gpuenv writes stays in the folder that the user named: no link leads a write out of it."""
# ruff: noqa: F811  # fixtures are imported by their names

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import tomli
from bundle_site import (  # noqa: F401  # fixtures
    ASK as GPU_ASK,  # fixtures
    Site,
    again,
    made,
)
from environment_facts import ok, refused
from loopback import Index, serving
from powerless import shut
from programs import run_program

from provision.environment import kernel
from provision.errors import BuildError
from provision.system import files, untrusted
from provision.system.files import (
    LinkError,
    make_folder,
    open_part,
    refuse_links_out,
    remove_file,
    rename,
    write_file,
    write_output,
)


@pytest.fixture
def outside(tmp_path):
    """A folder of the user's that nothing may change; checked after the test."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "precious").write_text("precious\n")
    yield folder
    assert {p.name: p.read_text() for p in folder.iterdir()} == {"precious": "precious\n"}


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


# --- the writer ----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["outside/precious", "outside/new", "../root/../outside/new"])
def test_a_file_that_is_a_link_out_is_refused(root, outside, target):
    (root / "file").symlink_to(root.parent / target)
    with pytest.raises(LinkError, match="is a link to a path outside") as told:
        write_file(root / "file", "new")
    assert "remove the link" in told.value.hint
    assert [p.name for p in root.iterdir()] == ["file"]


@pytest.mark.parametrize("inner", ["a", "a/b", "a/b/c"])
def test_a_folder_on_the_way_that_is_a_link_out_is_refused(root, outside, inner):
    (root / inner).parent.mkdir(parents=True, exist_ok=True)
    (root / inner).symlink_to(outside)
    path = root / inner / "new"
    for write in (
        lambda: write_file(path, "new", root=root),
        lambda: make_folder(path, root=root),
        lambda: open_part(path, root=root, append=True),
        lambda: rename(root / inner / "precious", path, root=root),
        lambda: remove_file(root / inner / "precious", root=root),
        lambda: refuse_links_out(root),
    ):
        with pytest.raises(LinkError):
            write()


def test_links_inside_are_followed_and_stay(root):
    (root / "real").mkdir()
    (root / "folder").symlink_to("real")
    (root / "file").symlink_to("real/file")
    (root / "to_root").symlink_to(root)
    write_file(root / "file", "one")
    write_file(root / "folder" / "other", "two", root=root)
    write_file(root / "to_root" / "third", "three", root=root)
    assert (root / "file").is_symlink() and (root / "folder").is_symlink()
    found = {p.name: p.read_text() for p in (root / "real").iterdir()}
    assert found == {"file": "one", "other": "two"} and (root / "third").read_text() == "three"


def test_links_at_and_above_the_named_folder_are_followed(tmp_path, root):
    (tmp_path / "here").symlink_to(root)
    (tmp_path / "above").symlink_to(tmp_path)
    write_file(tmp_path / "here" / "a", "a")
    write_file(tmp_path / "above" / "root" / "x" / "b", "b", root=tmp_path / "above" / "root")
    assert (root / "a").read_text() == "a" and (root / "x" / "b").read_text() == "b"


@pytest.mark.parametrize("look", [1, 2])
def test_a_folder_exchanged_for_a_link_in_the_meantime_is_refused(root, outside, monkeypatch, look):
    """Between a look at the path and the write the folder becomes a link."""
    (root / "a").mkdir()
    resolve, looks = files.resolve, []

    def exchanged(path, top):
        found = resolve(path, top)
        looks.append(path)
        if len(looks) == look:
            (root / "a").rmdir()
            (root / "a").symlink_to(outside)
        return found

    monkeypatch.setattr(files, "resolve", exchanged)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(LinkError):
        write_file(root / "a" / "new", "new", root=root)
    assert os.listdir("/proc/self/fd") == before


def test_a_folder_that_cannot_be_written_is_the_reason(root):
    with tempfile.TemporaryDirectory() as free:
        Path(free).chmod(0o555)
        with shut(root), pytest.raises(PermissionError):
            write_file(Path(free) / "file", "new")


def test_a_folder_in_the_place_of_the_draft_is_an_error_and_stays(root):
    (root / ".file.gpuenv-new").mkdir()
    with pytest.raises(IsADirectoryError):
        write_file(root / "file", "new")
    assert [p.name for p in root.iterdir()] == [".file.gpuenv-new"]


@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a link to itself"])
def test_what_is_no_file_is_not_replaced(root, kind):
    path = root / "file"
    {
        "a folder": path.mkdir,
        "a pipe": lambda: os.mkfifo(path),
        "a link to itself": lambda: path.symlink_to("file"),
    }[kind]()
    before = path.lstat().st_mode
    with pytest.raises(OSError, match="not a regular file"):
        write_file(path, "new")
    assert path.lstat().st_mode == before and [p.name for p in root.iterdir()] == ["file"]


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_permissions_follow_the_umask(root, mask, mode):
    (root / ".stale.gpuenv-new").write_text("of a killed run")
    (root / ".stale.gpuenv-new").chmod(0o666)
    before = os.umask(mask)
    try:
        for name in ("new", "stale"):
            write_file(root / name, "x")
        open_part(root / "part", root=root, append=False).close()
    finally:
        os.umask(before)
    assert {p.name: stat.S_IMODE(p.stat().st_mode) for p in root.iterdir()} == dict.fromkeys(
        ("new", "stale", "part"), mode
    )


def test_a_file_keeps_its_permissions(root):
    (root / "file").write_text("old")
    (root / "file").chmod(0o750)
    write_file(root / "file", "new")
    assert stat.S_IMODE((root / "file").stat().st_mode) == 0o750


def test_a_file_is_written_in_a_folder_that_cannot_be_listed(root):
    root.chmod(0o300)
    try:
        write_file(root / "file", "new")
    finally:
        root.chmod(0o700)
    assert (root / "file").read_text() == "new"


# --- pipes and devices ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "endless"), [("/dev/zero", True), ("/dev/null", False), ("/dev/fd/0", False)]
)
def test_devices_and_what_is_closed(name, endless):
    assert not files.is_stdout(Path("/dev/fd/999"))
    with pytest.raises(OSError, match="is a device") if endless else contextlib.nullcontext():
        untrusted.refuse_endless(Path(name))


def test_output_goes_into_a_pipe(root):
    os.mkfifo(root / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((root / "pipe").read_bytes()))
    reader.start()
    while not got and reader.is_alive():
        try:
            write_output(root / "pipe", "text" * 50_000)
            break
        except OSError:
            continue  # the reader has not opened it yet
    reader.join(10)
    assert got == [b"text" * 50_000] and stat.S_ISFIFO((root / "pipe").stat().st_mode)


def test_a_pipe_that_nothing_reads_is_not_waited_for(root):
    os.mkfifo(root / "pipe")
    with pytest.raises(OSError):
        write_output(root / "pipe", "text")


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/dev/../dev/stdout"])
def test_standard_output_is_written_where_it_is(tmp_path, name):
    code = "import sys; from pathlib import Path; from provision.system import files as o\n"
    code += "print('before', flush=True); p = Path(sys.argv[1]); o.write_output(p, 'text\\n'); print(o.is_stdout(p))"
    with (tmp_path / "out").open("w") as out:
        subprocess.run([sys.executable, "-c", code, name], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "before\ntext\nTrue\n"


# --- commands ------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["gpuenv-bundle.json", "README.txt", "wheels", "gpuenv", "python", ".work", "pylock.toml",
                                  ".gpuenv-bundle.json.gpuenv-new", "wheels/x"])  # fmt: skip
def test_a_bundle_is_not_written_through_links(again, outside, what):
    """A bundle, some of which is links by now."""
    path = again.folder / what
    manifest = path.read_bytes() if what == "gpuenv-bundle.json" else None
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(outside / "precious" if path.suffix in (".json", ".txt", ".toml") else outside)
    if manifest:
        (outside / "precious").write_bytes(manifest)
    ran = refused(again(), 7)
    assert f"{what} is a link to a path outside" in ran.err and "hint: remove the link" in ran.err
    if manifest:
        assert (outside / "precious").read_bytes() == manifest
        (outside / "precious").write_text("precious\n")


def test_links_above_a_bundle_are_followed(again, tmp_path):
    (tmp_path / "stick").symlink_to(again.folder)
    ok(again.gpuenv("bundle", tmp_path / "stick"))


@pytest.mark.parametrize(("name", "target"), [("Makefile", "precious"), ("Makefile", "new"), (".gitignore", "precious"),
                                              (".gitignore", "new"), ("gpuenv.yaml", "new")])  # fmt: skip
def test_init_does_not_write_through_links(gpuenv, outside, name, target):
    (gpuenv.work / "train.py").write_text("import jax\n")
    (gpuenv.work / name).symlink_to(outside / target)
    ran = gpuenv("init")
    if name == "gpuenv.yaml":  # it is read before anything is written
        assert ran.code == 3 and "gpuenv.yaml cannot be read" in ran.err, ran.err
    else:
        assert ran.code == 2 and f"{name} is a link to a path outside" in ran.err, ran.err
        assert "hint: remove the link" in ran.err
    assert {p.name for p in gpuenv.work.iterdir()} == {"train.py", name}


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """A site with an index, and the text of a lock made from it."""
    with serving(Index()) as index:
        site = Site(tmp_path_factory.mktemp("locked"), index)
        path = site.lock()
        site.text = path.read_text()
        yield site


@pytest.mark.parametrize("command", ["lock", "lock -o", "export -o", "verify --report"])
def test_output_is_not_written_through_a_link(locked, outside, command):
    work = locked.gpuenv.work
    for path in work.iterdir():
        path.unlink()
    (work / "held.toml").write_text(locked.text)
    (work / "pylock.toml").symlink_to(outside / "precious")
    argv = {
        "lock": ("lock", *GPU_ASK), "lock -o": ("lock", *GPU_ASK, "-o", "pylock.toml"),
        "export -o": ("export", "--format", "requirements", "--lock", "held.toml", "-o", "pylock.toml"),
        "verify --report": ("verify", sys.executable, "--quick", "--device", "cpu", "--report", "pylock.toml"),
    }[command]  # fmt: skip
    ran = locked.gpuenv(*argv)
    assert ran.code in (2, 6) and "pylock.toml is a link to a path outside" in ran.err, ran.err
    assert "hint: remove the link" in ran.err and (work / "pylock.toml").is_symlink()


def test_output_goes_to_standard_output_alone(locked):
    (locked.gpuenv.work / "held.toml").write_text(locked.text)
    argv = ("export", "--format", "requirements", "--lock", "held.toml")
    plain = locked.gpuenv(*argv)
    assert ok(locked.gpuenv(*argv, "-o", "/dev/stdout")).out == plain.out
    made = locked.gpuenv("lock", *GPU_ASK, "-o", "/dev/stdout")
    assert made.code == 0 and tomli.loads(made.out)["packages"], made.err
    assert "gpuenv create" in made.err


def test_output_goes_into_a_process_substitution(locked):
    (locked.gpuenv.work / "held.toml").write_text(locked.text)
    command = (
        "gpuenv export --format requirements --lock held.toml -o >(cat > copy) && sleep 0.2; wait; cat copy"
    )
    path = f"{Path(sys.executable).parent}:{locked.gpuenv.env['PATH']}"
    ran = run_program(
        ["bash", "-c", command], cwd=locked.gpuenv.work, env={**locked.gpuenv.env, "PATH": path}
    )
    assert ran.returncode == 0 and "--hash=sha256:" in ran.stdout, ran.stderr


def test_a_full_device_is_named(locked):
    (locked.gpuenv.work / "held.toml").write_text(locked.text)
    ran = locked.gpuenv("export", "--format", "requirements", "--lock", "held.toml", "-o", "/dev/full")
    assert ran.code == 2 and "/dev/full: No space left on device" in ran.err and "hint:" in ran.err


def test_a_kernel_is_not_written_through_a_link(tmp_path, outside, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    env = tmp_path / "env"
    (env / "lib/python3.11/site-packages/ipykernel").mkdir(parents=True)
    (env / "lib/python3.11/site-packages/ipykernel/__init__.py").touch()
    name = kernel.register(env, "python", "")
    place = tmp_path / "jupyter" / "kernels" / name
    (place / "kernel.json").rename(outside / "kernel.json")
    (place / "kernel.json").symlink_to(outside / "kernel.json")
    before = (outside / "kernel.json").read_text()
    with pytest.raises(BuildError, match="is a link to a path outside"):
        kernel.register(env, "another", "")
    assert (outside / "kernel.json").read_text() == before
    (outside / "kernel.json").unlink()
