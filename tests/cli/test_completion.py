"""What a shell completes, asked in the shells themselves."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from provision.cli import value_completion
from provision.environment import registry

SCRIPTS = Path(sys.executable).parent


@pytest.fixture
def made(gpuenv, monkeypatch):
    """A gpuenv on PATH, and environments in the registry: here, with a blank, and elsewhere."""
    if not (SCRIPTS / "gpuenv").exists():
        pytest.skip("gpuenv is not installed beside this Python")
    monkeypatch.setenv("XDG_DATA_HOME", str(gpuenv.folder / "data"))
    gpuenv.env |= {"XDG_DATA_HOME": str(gpuenv.folder / "data"), "LANG": "C.UTF-8"}
    gpuenv.env["PATH"] = f"{SCRIPTS}{os.pathsep}{gpuenv.env['PATH']}"
    for env in (gpuenv.work / "envs" / "tf", gpuenv.work / "my env", gpuenv.folder / "home" / "elsewhere"):
        (env / ".gpuenv").mkdir(parents=True)
        registry.add(env)
    return gpuenv


def in_bash(gpuenv, line):
    """What bash has in its command line after LINE and a press of Tab, word by word, and how it looked."""
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"], stdin=follower, stdout=follower, stderr=follower, cwd=gpuenv.work,
        env={**gpuenv.env, "PS1": "", "TERM": "dumb", "COLUMNS": "200"}, start_new_session=True,
    )  # fmt: skip
    os.close(follower)
    setup = (
        "bind 'set enable-bracketed-paste off'; bind 'set completion-query-items 0'; bind 'set page-completions off'\n"
        'eval "$(env _GPUENV_COMPLETE=source_bash gpuenv)"\n'
    )
    # Ctrl-A, and a command in front that prints its words: the line as bash understands it.
    keys = f"{line}\t\t\x01printf '<%s>\\n' \necho the-end-of-it | tr a-z A-Z\n"
    os.write(leader, (setup + keys).encode())
    seen, deadline = b"", time.monotonic() + 300
    while b"THE-END-OF-IT" not in seen and time.monotonic() < deadline:
        if select.select([leader], [], [], 0.2)[0]:
            try:
                seen += os.read(leader, 65536)
            except OSError:
                break
    os.write(leader, b"exit\n")
    child.wait(10)
    os.close(leader)
    text = seen.decode(errors="replace").replace("\r", "")
    return [row[1:-1] for row in text.splitlines() if row.startswith("<") and row.endswith(">")], text


@pytest.mark.parametrize(
    ("line", "last"),
    [
        ("gpuenv remove en", "envs/tf"),
        ("gpuenv run ./en", "./envs/tf"),
        ("gpuenv verify m", "my env"),
        ("gpuenv verify 'm", "my env"),
        ("gpuenv report ~/el", "HOME/elsewhere"),
        ("gpuenv create --framework tens", "tensorflow"),
        ("gpuenv resolve -f jax==0.4.3", "jax==0.4.3"),
        ("gpuenv resolve --framework torch==2.15", "torch==2.15.0"),
        ("gpuenv resolve --framework=torch==2.15", "--framework=torch==2.15.0"),
        ("gpuenv resolve --framework 'torch>=2.6,<2.15", "torch>=2.6,<2.15.0"),
        ("gpuenv create --target lo", "login"),
    ],
)
def test_bash_completes_environments_targets_and_paths(made, line, last):
    """The words that bash makes of it: a blank in a path is no end of a word."""
    (made.work / "gpuenv.yaml").write_text('frameworks: [torch]\ntargets: {login: {driver: "535.129.03"}}\n')
    words, text = in_bash(made, line)
    expected = last.replace("HOME", str(made.folder / "home"))
    assert words and words[-1] == expected, text


def test_bash_offers_known_environments_and_versions(made):
    _, text = in_bash(made, "gpuenv remove ")
    assert all(x in text for x in ("envs/tf", "my\\ env", str(made.folder / "home" / "elsewhere"))), text
    _, text = in_bash(made, "gpuenv create --framework torch")
    assert "torch==2.15.0" in text and "torch==1.13.1" in text


def test_bash_completes_files_where_no_environment_fits(made):
    (made.work / "notes.txt").touch()
    words, text = in_bash(made, "gpuenv verify note")
    assert words[-1] == "notes.txt", text


def test_fish_completes_commands_and_environments(made):
    fish = shutil.which("fish")
    if not fish:
        pytest.skip("fish is not installed")

    def offered(line):
        code = f'env _GPUENV_COMPLETE=source_fish gpuenv | source; complete -C "{line}"'
        done = subprocess.run(
            [fish, "--no-config", "-c", code],
            env=made.env,
            cwd=made.work,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()

    assert "my env" in offered("gpuenv remove m") and "envs/tf" in offered("gpuenv remove e")
    (row,) = offered("gpuenv create -f torch==2.15")
    assert row.startswith("torch==2.15.0\tCUDA ")


def test_zsh_completes_commands_and_environments(made):
    """What zsh would hand on to `_arguments`, with the quoting of every word taken off by zsh itself."""
    zsh = shutil.which("zsh")
    if not zsh:
        pytest.skip("zsh is not installed")

    def offered(*words):
        listed = " ".join(f"'{w}'" for w in ("gpuenv", *words))
        code = (
            "compdef() {}; _arguments() { print -rl -- $@ }; _files() { print files }\n"
            'eval "$(env _GPUENV_COMPLETE=source_zsh gpuenv)"\n'
            f"words=({listed}); CURRENT=$#words; _gpuenv_completion"
        )
        done = subprocess.run(
            [zsh, "-f", "-c", code], env=made.env, cwd=made.work, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert '"my env"' in offered("remove", "m") and '"envs/tf"' in offered("remove", "e")
    assert '"torch==2.15.0":"CUDA ' in offered("create", "-f", "torch==2.15")
    assert offered("verify", "no-such") == "files\n"


def test_broken_files_complete_to_nothing_and_show_no_traceback(made):
    (made.work / "gpuenv.yaml").write_text("frameworks: {")
    overlay = made.folder / "config" / "gpuenv" / "profiles"
    overlay.mkdir(parents=True)
    (overlay / "torch.yaml").write_text("- nonsense")
    for words in ("--target", ""), ("--framework", "torch=="):
        env = {**made.env, "_GPUENV_COMPLETE": "complete_bash", "COMP_CWORD": "3",
               "COMP_WORDS": "\n".join(("gpuenv", "create", *words))}  # fmt: skip
        done = subprocess.run(
            [SCRIPTS / "gpuenv"], env=env, cwd=made.work, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr and done.stdout.strip() == ""


def test_a_shell_does_not_wait_for_the_stages(made):
    """Nothing of what builds and proves is imported to complete a word."""
    code = (
        "import sys; sys.argv = ['gpuenv']; sys.path.pop(0)\n"
        "from provision.__main__ import main\n"
        "try: main()\n"
        "finally: print(*(m for m in sys.modules if m.startswith('provision.')), file=sys.stderr)\n"
    )
    for words in ("remove", ""), ("create", "--framework", "torch"), ("create", "--target", ""):
        env = {**made.env, "_GPUENV_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(("gpuenv", *words)),
               "COMP_CWORD": str(len(words))}  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, cwd=made.work, capture_output=True, text=True, check=False
        )
        imported = set(done.stderr.split())
        assert "provision.cli" in imported, done.stderr
        assert not imported & {
            "provision.verify",
            "provision.managers",
            "provision.commands.create_steps",
            "provision.bundle",
        }


def test_versions_come_newest_first_with_their_cuda():
    offered = value_completion.frameworks("torch==")
    assert offered[0][0] > "torch==2.1" and offered[0][1].startswith("CUDA 1")
    versions = [tuple(map(int, name.removeprefix("torch==").split("."))) for name, _ in offered]
    assert versions == sorted(versions, reverse=True) and len(set(versions)) == len(versions)
    assert value_completion.frameworks("nothing") == value_completion.frameworks("nothing==1") == []
    assert [n for n, _ in value_completion.frameworks("")] == ["torch", "tensorflow", "jax", "onnxruntime"]
