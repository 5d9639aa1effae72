"""A recorded answer stands for uv only where uv would say the same."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from loopback import Index, serving, wheel_bytes
from uv_answers import Answers

from provision.system import process


class Uv:
    """The module `process` with a uv that counts how often it runs, and names the index in its answer."""

    Finished = process.Finished

    def __init__(self):
        self.runs = 0

    def run(self, argv, *, env, cwd, on_line):
        self.runs += 1
        if "--output-file" in argv:
            Path(argv[argv.index("--output-file") + 1]).write_text("written", encoding="utf-8")
        lines = f"DEBUG a line of {cwd}\nerror: {env['UV_DEFAULT_INDEX']}\n"
        return self.Finished(0, f"{cwd} {env['UV_DEFAULT_INDEX']}", lines, False, None, b"")


@pytest.fixture
def asking(tmp_path):
    """Ask what was asked before, in another folder and of another port, after `change`; return the answer and the runs of uv."""
    uv, folders = Uv(), iter(range(9))

    def ask(answers, change=lambda at: None):
        folder = tmp_path / str(next(folders))
        folder.mkdir()
        with serving(Index()) as index:
            index.add("one", "1.0")
            (folder / "needs.in").write_text("one\n")
            words = ["uv", "pip", "compile", str(folder / "needs.in"), "--format", "pylock.toml", "--output-file",
                     str(folder / "pylock.toml"), "--python", sys.executable]  # fmt: skip
            at = SimpleNamespace(
                index=index, words=words, env={"UV_DEFAULT_INDEX": index.url, "HOME": "/root"}, folder=folder
            )
            change(at)
            lines = []
            done = answers.run(at.words, env=at.env, cwd=folder, on_line=lines.append)
            return done, lines, folder, index.url

    def repeat(change=lambda at: None):
        first = Answers(uv, None)
        ask(first)
        recorded = {key: answers[0] for key, answers in first.asked.items()}
        before = uv.runs
        return *ask(Answers(uv, recorded), change), uv.runs - before

    return repeat


def test_the_same_question_gets_the_same_answer_in_another_folder_and_of_another_port(asking):
    done, lines, folder, url, runs = asking()
    assert runs == 0
    assert done.ok and done.stdout == f"{folder} {url}"
    assert lines == [f"error: {url}"] and done.stderr == f"error: {url}\n"  # without uv's log
    assert (folder / "pylock.toml").read_text() == "written"


def add_links(at, file):
    folder = at.folder / "links"
    folder.mkdir()
    (folder / file).write_bytes(wheel_bytes("one", "2.0"))
    at.env |= {"UV_FIND_LINKS": str(folder)}


CHANGES = {
    "another requirement": lambda at: (at.folder / "needs.in").write_text("one<2\n"),
    "another option": lambda at: at.words.append("--no-deps"),
    "another variable": lambda at: at.env.update(UV_PRERELEASE="allow"),
    "another release": lambda at: at.index.add("one", "2.0"),
    "another wheel of the release": lambda at: at.index.add("one", "1.0", content="x = 1"),
    "another upload time": lambda at: setattr(at.index, "uploaded", "2026-01-01T00:00:00Z"),
    "a withdrawn file": lambda at: at.index.yanked.update({"one-1.0-py3-none-any.whl": "broken"}),
    "a fault": lambda at: at.index.faults.update({"one/": "500"}),
    "a login": lambda at: setattr(at.index, "needs", "Basic eA=="),
    "an archive": lambda at: at.index.wheels["one"].update({"one-1.0.tar.gz": b""}),
    "a folder": lambda at: (at.folder / "needs.in").write_text("-e /project\n"),
    "another server": lambda at: at.env.update(UV_INDEX="http://127.0.0.1:7/simple/"),
    "an index that is not there": lambda at: at.env.update(UV_INDEX="http://127.0.0.1:9/simple/"),
    "a folder of wheels": lambda at: add_links(at, "one-2.0-py3-none-any.whl"),
    "a folder of archives": lambda at: add_links(at, "one-2.0.tar.gz"),
    "a proxy": lambda at: at.env.update(HTTP_PROXY="http://127.0.0.1:9"),
    "the cache alone": lambda at: at.env.update(UV_OFFLINE="1"),
    "another command": lambda at: at.words.__setitem__(2, "install"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_uv_answers_what_anything_else_decides(asking, change):
    assert asking(change)[-1] == 1


def test_what_an_index_was_asked_is_not_told_after_a_recorded_answer():
    index = Index()
    assert not index.requests
    index.answered = True
    with pytest.raises(AssertionError, match="real_uv"):
        assert index.requests
