"""What a shell completes, asked in the shells themselves."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from debian import need_programs
from programs import run_program
from rows import rows, sampled

from provision.actions import completion
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


def in_shell(gpuenv, shell, setup, *lines):
    """What an interactive shell shows after each of LINES and two presses of Tab, or those that it ends with: its words,
    and the screen."""
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        shell, stdin=follower, stdout=follower, stderr=follower, cwd=gpuenv.work,
        env={**gpuenv.env, "PS1": "", "TERM": "dumb", "COLUMNS": "200"}, start_new_session=True,
    )  # fmt: skip
    os.close(follower)

    def wait_for(mark):
        seen, deadline = b"", time.monotonic() + 300
        while mark not in seen and time.monotonic() < deadline:
            if select.select([leader], [], [], 0.2)[0]:
                try:
                    seen += os.read(leader, 65536)
                except OSError:
                    break
        return seen

    # zsh drops keys that arrive while it starts.
    os.write(leader, f"{setup}\nprintf %s-%s\\\\n shell ready\n".encode())
    wait_for(b"shell-ready")
    shown = []
    for line in lines:
        # Ctrl-A, and a command in front that prints its words: the line as the shell understands it.
        tabs = "" if line.endswith("\t") else "\t\t"
        os.write(leader, f"{line}{tabs}\x01printf '<%s>\\n' \necho the-end-of-it | tr a-z A-Z\n".encode())
        text = wait_for(b"THE-END-OF-IT").decode(errors="replace").replace("\r", "")
        rows = text.splitlines()
        shown.append(([row[1:-1] for row in rows if row.startswith("<") and row.endswith(">")], text))
    os.write(leader, b"exit\n")
    child.wait(10)
    os.close(leader)
    return shown


def in_bash(gpuenv, *lines):
    setup = (
        "bind 'set enable-bracketed-paste off'; bind 'set completion-query-items 0'; bind 'set page-completions off'\n"
        'eval "$(env _GPUENV_COMPLETE=source_bash gpuenv)"'
    )
    return in_shell(gpuenv, ["bash", "--norc", "--noprofile", "-i"], setup, *lines)


def in_zsh(gpuenv, *lines):
    setup = 'autoload -Uz compinit; compinit -u -D; eval "$(env _GPUENV_COMPLETE=source_zsh gpuenv)"'
    return in_shell(gpuenv, ["zsh", "-f", "-i"], setup, *lines)


ATTACKS = ("$(id>PWNED)", "\\$(id>PWNED)", "`id>PWNED`", "\\`id>PWNED\\`", '"$(id>PWNED)', "')';id>PWNED;('", "a\nid>PWNED",
           "<(id>PWNED)", "=(id>PWNED)", "${(e):-$(id>PWNED)}", "*(e:id>PWNED:)", "&id>PWNED&")  # fmt: skip


def plant(gpuenv):
    """A project whose targets and registered environments have names and paths that shells could evaluate."""
    targets = {f"t{i}": {"file": f"node{text}.json"} for i, text in enumerate(ATTACKS) if "\n" not in text}
    (gpuenv.work / "gpuenv.yaml").write_text(
        "frameworks: [torch]\ntargets: " + json.dumps({**targets, "login": {"driver": "535.129.03"}})
    )
    for text in ATTACKS:
        env = gpuenv.work / "envs" / text.replace("/", "")
        (env / ".gpuenv").mkdir(parents=True)
        registry.add(env)


def marks(gpuenv):
    return [path for path in gpuenv.folder.rglob("PWNED*") if path.is_file()]


@pytest.mark.parametrize("drive", [in_bash, in_zsh])
def test_tab_runs_nothing_that_a_project_or_path_says(made, drive):
    """typer's script of zsh evaluates descriptions and values."""
    need_programs("zsh", packages="zsh")
    plant(made)
    for _, text in drive(made, "gpuenv lock --target ", "gpuenv remove en", "gpuenv verify "):
        assert "THE-END-OF-IT" in text and not marks(made), text


def test_zsh_inserts_targets_and_paths_with_blanks(made):
    need_programs("zsh", packages="zsh")
    (made.work / "gpuenv.yaml").write_text('frameworks: [torch]\ntargets: {login: {driver: "535.129.03"}}\n')
    for (words, text), last in zip(
        in_zsh(made, "gpuenv create --target lo", "gpuenv verify m"), ("login", "my env"), strict=True
    ):
        assert words and words[-1] == last, text


@pytest.mark.parametrize("shell", sampled(["bash", "zsh", "fish", "powershell", "pwsh"], 2))
def test_only_plain_characters_reach_a_shell(made, shell):
    plant(made)
    allowed = {
        "bash": r"[\w@%+=:,./~\\ -]*",
        "fish": r"[\w@%+=:,./~ \t-]*",
        "zsh": r"_files|_arguments '[\w\\@%+=:,./~ \"*()-]*'?|\"[^$`]*",
    }
    for words in (("lock", "--target", ""), ("remove", "")):
        line = " ".join(("gpuenv", *words))
        env = {**made.env, "_GPUENV_COMPLETE": f"complete_{shell}", "COMP_WORDS": "\n".join(("gpuenv", *words)),
               "COMP_CWORD": str(len(words)), "_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}  # fmt: skip
        done = run_program([SCRIPTS / "gpuenv"], env=env, cwd=made.work, check=True)
        assert ("login" if "--target" in words else "tf") in done.stdout and "PWNED" not in done.stdout
        for row in done.stdout.splitlines():
            assert re.fullmatch(
                allowed.get(shell, r"([\w@%+=:,./~-]+|'[\w@%+=:,./~ -]+'):::[\w@%+=:,./~ -]*"), row
            ), row


IN_BASH = {
    "gpuenv remove en": "envs/tf",
    "gpuenv run ./en": "./envs/tf",
    "gpuenv verify m": "my env",
    "gpuenv verify 'm": "my env",
    "gpuenv report ~/el": "HOME/elsewhere",
    "gpuenv verify note": "notes.txt",  # a file, where no environment fits
    "gpuenv resolve -f jax==0.4.3": "jax==0.4.3",
    "gpuenv resolve --framework=torch==2.15": "--framework=torch==2.15.0",
    "gpuenv resolve --framework 'torch>=2.6,<2.15": "torch>=2.6,<2.15.0",
}


def test_bash_inserts_environments_and_versions(made):
    """The words that bash makes of a line: blanks, quotes and `=` are its own business."""
    (made.work / "notes.txt").touch()
    offers = in_bash(
        made, *(f"{line}\t" for line in IN_BASH), "gpuenv remove ", "gpuenv create --framework torch"
    )
    for (words, text), last in zip(offers, IN_BASH.values(), strict=False):
        assert words and words[-1] == last.replace("HOME", str(made.folder / "home")), text
    (_, known), (_, versions) = offers[-2:]
    assert all(x in known for x in ("envs/tf", "my\\ env", str(made.folder / "home" / "elsewhere"))), known
    assert "torch==2.15.0" in versions and "torch==1.13.1" in versions


@rows(
    ("typed", "offered"),
    [
        ("create --framework tens", "tensorflow"),
        ("resolve --framework torch==2.15", "torch==2.15.0"),
        ("create --target lo", "login"),
        ("resolve --cuda 12.9", "12.9"),
        ("resolve --cuda 11.7", "11.7"),
        ("create --python 3.1", "3.1"),
        ("resolve --driver 58", "580"),
        ("resolve --driver 580.6", "580.65.06"),
        ("drop ein", "einops"),
    ],
)
def test_the_only_value_that_fits_is_offered(gpuenv, typed, offered):
    (gpuenv.work / "gpuenv.yaml").write_text(
        'frameworks: [torch]\npackages: ["einops>=0.8"]\ntargets: {login: {driver: "535.129.03"}}\n'
    )
    words = typed.split()
    gpuenv.env |= {"_GPUENV_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(("gpuenv", *words)),
                   "COMP_CWORD": str(len(words))}  # fmt: skip
    found = gpuenv().out.split()
    assert found and all(value.startswith(offered) for value in found), found


def test_fish_completes_commands_and_environments(made):
    need_programs("fish", packages="fish")

    def offered(line):
        code = f'env _GPUENV_COMPLETE=source_fish gpuenv | source; complete -C "{line}"'
        done = run_program(["fish", "--no-config", "-c", code], env=made.env, cwd=made.work, check=True)
        return done.stdout.splitlines()

    assert "my env" in offered("gpuenv remove m") and "envs/tf" in offered("gpuenv remove e")
    (row,) = offered("gpuenv create -f torch==2.15")
    assert row.startswith("torch==2.15.0\tCUDA ")


def test_zsh_completes_commands_and_environments(made):
    """What zsh would hand on to `_arguments`, with the quoting of every word taken off by zsh itself."""
    need_programs("zsh", packages="zsh")

    def offered(*words):
        listed = " ".join(f"'{w}'" for w in ("gpuenv", *words))
        code = (
            "compdef() {}; _arguments() { print -rl -- $@ }; _files() { print files }\n"
            'eval "$(env _GPUENV_COMPLETE=source_zsh gpuenv)"\n'
            f"words=({listed}); CURRENT=$#words; _gpuenv_completion"
        )
        done = run_program(["zsh", "-f", "-c", code], env=made.env, cwd=made.work, check=True)
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
        done = run_program([SCRIPTS / "gpuenv"], env=env, cwd=made.work)
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
        done = run_program([sys.executable, "-c", code], env=env, cwd=made.work)
        imported = set(done.stderr.split())
        assert "provision.cli" in imported, done.stderr
        assert not imported & {
            "provision.verify",
            "provision.conda",
            "provision.actions.build",
            "provision.bundle",
        }


def test_versions_come_newest_first_with_their_cuda():
    offered = completion.complete("frameworks", "torch==")
    assert offered[0][0] > "torch==2.1" and offered[0][1].startswith("CUDA 1")
    versions = [tuple(map(int, name.removeprefix("torch==").split("."))) for name, _ in offered]
    assert versions == sorted(versions, reverse=True) and len(set(versions)) == len(versions)
    assert (
        completion.complete("frameworks", "nothing") == completion.complete("frameworks", "nothing==1") == []
    )
    assert [n for n, _ in completion.complete("frameworks", "")] == [
        "torch",
        "tensorflow",
        "jax",
        "onnxruntime",
    ]
