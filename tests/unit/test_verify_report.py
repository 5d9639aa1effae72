"""The report page: whole, alone, and harmless whatever a machine's names are."""

import dataclasses
import html.parser
import re
from pathlib import Path

import pytest
from framework_envs import venv

from driver_stub import H200, build, scenario, spec
from provision import templates
from provision.export import pages
from provision.export.pages import verdict_page
from provision.model import (
    DeviceVerdict,
    Evidence,
    Finding,
    FrameworkVerdict,
    GradedResult,
    LibraryFile,
    StageResult,
    Verdict,
)

VOID = {"meta", "br", "hr"}


class Checker(html.parser.HTMLParser):
    """Every element is closed in its order; nothing is fetched and nothing runs."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.labels = [], [], []

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "link", "img", "iframe", "object", "base")
        for name, value in attrs:
            assert name not in ("src", "href", "srcset")
            assert not name.startswith("on")
            if name == "aria-label":
                self.labels.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(text):
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    return checker


def row(error, *, ok):
    return GradedResult(case="conv2d", dtype="tf32", pass_="forward", max_error=error, tolerance=0.002, ok=ok)


NASTY = "</style><script>alert('ü')</script>\x1b[31m & \"quoted\""
VERDICT = Verdict(
    env=NASTY,
    python=NASTY,
    verdict="wrong",
    hint=NASTY,
    stages=(
        StageResult(
            stage="cudnn",
            status="fail",
            detail=NASTY,
            seconds=0.25,
            evidence=(Evidence(text=NASTY, source=NASTY, line=3),),
        ),
    ),
    findings=(
        Finding(
            cause="cudnn_not_found", title=NASTY, fix=NASTY, evidence=(Evidence(text=NASTY, source=NASTY),)
        ),
    ),
    frameworks=(
        FrameworkVerdict(
            name="torch",
            version=NASTY,
            cudnn_loaded=NASTY,
            devices=(
                DeviceVerdict(
                    index=0,
                    name=NASTY,
                    convolutions=(row(0.0002, ok=True), row(0.2, ok=False), row(None, ok=False)),
                ),
            ),
            libraries=(LibraryFile(soname=NASTY, path=NASTY, owner=NASTY, version=NASTY, inside=False),),
        ),
    ),
)


def test_the_page_is_whole_alone_and_harmless():
    text = verdict_page(VERDICT, NASTY)
    checker = read(text)
    shown = "".join(checker.text)
    assert "<script>" not in text
    assert "\x1b" not in text
    assert shown.count("alert('ü')") >= 10 and text.count("<ul class=evidence>") == 2
    assert not re.search(r"https?://|url\(|@import", text)


def test_a_bar_ends_where_its_error_stands_against_the_tolerance():
    text = verdict_page(VERDICT, "x")
    widths = [float(w) for w in re.findall(r"width:([\d.]+)%", text)]
    assert widths == [50.0, 100.0, 100.0]  # a tenth of the tolerance, a hundred times it, not a number
    assert read(text).labels == [
        "forward: error 2.0e-04, at most 0.002: right",
        "forward: error 2.0e-01, at most 0.002: wrong",
        "forward: error NaN, at most 0.002: wrong",
    ]


def test_an_error_of_nothing_has_the_shortest_bar():
    result = GradedResult(case="c", dtype="d", pass_="forward", max_error=0.0, tolerance=0.002, ok=True)
    assert "width:0.5%" in pages._bar(result)


def test_each_device_says_which_results_are_wrong():
    text = verdict_page(VERDICT, "x")
    assert re.search("2 of 3 .*wrong:</b> conv2d tf32 forward, conv2d tf32 forward<", text)
    right = dataclasses.replace(VERDICT.frameworks[0].devices[0], convolutions=(row(0.0002, ok=True),))
    frameworks = (dataclasses.replace(VERDICT.frameworks[0], devices=(right,)),)
    assert "All results are right:</b> 1 of 1" in verdict_page(
        dataclasses.replace(VERDICT, frameworks=frameworks), "x"
    )


def test_the_report_and_the_compatibility_page_have_one_style():
    compatibility = (Path(__file__).parents[2] / "docs" / "compatibility.html").read_text(encoding="utf-8")
    assert templates.read("page.css") in verdict_page(VERDICT, "x")
    assert templates.read("page.css") in compatibility


def test_what_quick_did_not_try_is_not_claimed():
    quick = dataclasses.replace(VERDICT, verdict="works", frameworks=(), hint=None, findings=())
    assert "No framework was tested" in verdict_page(quick, "x")
    assert "<h2>Findings</h2>" in verdict_page(VERDICT, "x")
    assert "<h2>Findings</h2>" not in verdict_page(quick, "x")


@pytest.mark.parametrize("folder", ["", "no such folder"])
def test_the_command_writes_the_page(gpuenv, tmp_path, folder):
    gpuenv.env |= scenario(build(tmp_path / "driver"), spec(driver="580.159.04", cuda=13000, gpus=[H200]))
    venv(tmp_path / "env")
    file = tmp_path / folder / "page.html"
    ran = gpuenv("verify", tmp_path / "env", "--report", file, "--json")
    if folder:
        assert ran.code == 2
        assert "no folder" in ran.json["error"]["message"]
        return
    assert ran.code == 8
    checker = read(file.read_text(encoding="utf-8"))
    assert ran.json["stages"][2]["detail"] in "".join(checker.text)
