"""docs/compatibility.html is what scripts/compatibility_page.py makes, and its answers are those of resolve."""

import random
import re
import sys
from pathlib import Path

import pytest
from known import KNOWN

from provision.model import FRAMEWORKS, FrameworkRequest, Request, Target, TargetGpu
from provision.resolve import resolve
from provision.resolve.boards import find_gpu
from provision.resolve.pip import install_lines, pip_gaps
from provision.show.plan import list_objections
from provision.system.versions import version

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import compatibility_page as script  # noqa: E402  # scripts/ is no package
from compatibility.answers import digest  # noqa: E402
from compatibility.heat import heat_maps  # noqa: E402
from compatibility.lookup import answer_of, interval_of, system_of  # noqa: E402
from compatibility.questions import SYSTEMS  # noqa: E402

TEXT = script.PAGE.read_text(encoding="utf-8")
DATA = script.read_data(TEXT)
RENEW = "run `make page`"


def test_the_page_has_the_answers_of_these_profiles():
    assert DATA["profiles"] == digest(KNOWN), RENEW


def test_the_page_is_what_the_script_makes_of_its_answers():
    assert "".join(script.changes(TEXT, script.page(DATA))) == "", RENEW
    assert DATA["heat"] == heat_maps(KNOWN, DATA), RENEW


def test_the_page_is_one_small_file_that_fetches_nothing():
    assert len(TEXT.encode()) < 110_000  # at 1.6 Mbit/s, a phone's, half a second
    layout = TEXT.replace(TEXT.partition('id="data">')[2].partition("</script>")[0], "")
    assert not re.search(r"https?://|url\(|@import|\bfetch\(|XMLHttpRequest|WebSocket", layout)
    assert re.findall(r'(?:src|href)="([^"]*)"', layout) == ["data:,"]
    assert "default-src 'none'" in layout


def page_answer(system, framework, capability, driver, glibc, python):
    """What the tables of the page have, with every text as the page shows it."""
    about = system_of(DATA, system)
    newer = [i for i, floor in enumerate(about["glibc"]) if floor is None or version(floor) <= version(glibc)]
    found = answer_of(
        DATA, about, framework, capability, driver, glibc=newer[0], python=DATA["pythons"].index(python)
    )
    *head, pip, uv, gap, why, notes, hint = found
    given = {
        "gpu": f"a GPU of capability {capability}", "driver": driver, "speaks": about["speaks"][interval_of(about, driver)], "glibc": glibc,
        "python": python,
    }  # fmt: skip

    def text(number):
        return re.sub(r"\{(\w+)\}", lambda m: given[m[1]] or "", DATA["texts"][number])

    commands = [None if n < 0 else DATA["texts"][n] for n in (pip, uv, gap)]
    return [
        *head,
        *commands,
        [text(n) for n in why],
        [text(n) for n in notes],
        None if hint < 0 else text(hint),
    ]


def real_answer(system, framework, capability, driver, glibc, python):
    about = next(s for s in SYSTEMS if s.key == system)
    target = Target(
        platform=about.platform, driver_os=about.driver_os, driver=driver, glibc=glibc, gpus=(TargetGpu(capability=capability),)
    )  # fmt: skip
    plan = resolve(
        Request(frameworks=(FrameworkRequest(name=framework),), device="cuda", python=python), target, KNOWN
    )
    build = plan.builds[0] if plan.builds else None
    head = [build.version, build.cuda, build.index, plan.cudnn, plan.python] if build else [None] * 5
    indexes = {row.index: row.url for row in KNOWN.indexes}
    commands = [next(iter(install_lines(tool, plan, KNOWN, indexes)), None) for tool in ("pip", "uv")]
    gap = next(pip_gaps(plan, KNOWN), None)
    return [*head, *commands, gap, list(list_objections(plan)), list(plan.notes), plan.hint]


def random_question(rng):
    """A question as people have it: real drivers lie between floors, on them and a little above."""
    about = rng.choice(DATA["systems"])
    floor = rng.choice(about["floors"])
    driver = rng.choice(
        [None, floor, f"{floor}.3", "390.48", f"{rng.choice(DATA['branches'])}.{rng.randrange(300)}.08"]
    )
    glibc = rng.choice(["2.17", "2.26", "2.27", "2.28", "2.35", "2.41"]) if about["glibc"][0] else None
    return (
        about["key"], rng.choice(FRAMEWORKS), rng.choice(about["capabilities"]), driver, glibc,
        rng.choice(DATA["pythons"]),
    )  # fmt: skip


def test_random_answers_are_those_of_resolve():
    rng = random.Random(24)
    fitting = 0
    for _ in range(50):
        asked = random_question(rng)
        said = page_answer(*asked)
        assert said == real_answer(*asked), (asked, RENEW)
        fitting += said[0] is not None
    assert 6 < fitting < 42  # the questions are neither all hopeless nor all easy


@pytest.mark.slow
def test_the_whole_page_is_what_the_script_makes():
    assert "".join(script.changes(TEXT, script.page(script.made_data()))) == "", RENEW


def test_a_board_is_known_to_gpuenv_by_the_name_that_the_page_has():
    for capability, _, _, boards in DATA["gpus"]:
        for board in boards:
            assert find_gpu(board, KNOWN.gpus) == TargetGpu(capability=capability, name=board)


def test_a_driver_branch_can_mean_the_first_release_of_each_cuda():
    for system in ("linux", "windows"):
        rows = [getattr(row, system) for row in (*KNOWN.cuda, *KNOWN.majors)]
        assert set(DATA["releases"][system]) == {release for release in rows if release}


def test_a_changed_answer_is_named_by_its_question():
    changed = script.read_data(TEXT)
    linux = system_of(changed, "linux")
    was = answer_of(changed, linux, "torch", "9.0", "580.65.06")
    for head in changed["heads"]:
        if head[:5] == was[:5]:
            head[0] = "0.0.1"
    lines = script.changes(TEXT, script.page(changed))
    assert any(
        line.startswith("linux torch, driver 580.65.06, GPU 9.0: 2.") and "-> 0.0.1" in line for line in lines
    )


def test_a_changed_layout_is_seen():
    lines = script.changes(TEXT.replace("<h1>", "<h1 class=x>"), TEXT)
    assert [line for line in lines if line.startswith("+<h1>")]
