"""Compute the answers of the page: the plan of `provision.resolve` for each class of questions."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from provision.model import FRAMEWORKS, AvailableWheels, Profiles
from provision.resolve import resolve
from provision.resolve.boards import FORMS, MAKERS
from provision.resolve.pip import install_lines, pip_gaps
from provision.resolve.question import Question
from provision.show.plan import list_objections
from provision.system.versions import version

from .questions import SYSTEMS, Glibc, Interval, Questions, System


@dataclass
class Numbered:
    """Distinct values, each with its number on the page."""

    numbers: dict[Hashable, int] = field(default_factory=dict)

    def of(self, value: Hashable) -> int:
        """Return the number of a value."""
        return self.numbers.setdefault(value, len(self.numbers))

    @property
    def values(self) -> list[Any]:
        """All values in the order of their numbers."""
        return list(self.numbers)


@dataclass(frozen=True)
class PageAnswer:
    """An answer with its texts.

    `head` is version, CUDA, index, cuDNN and Python, all None if no build fits. `pip` and `uv` are the commands that
    install the build, and `gap` is what they leave undone.
    """

    head: tuple[str | None, ...]
    why: tuple[str, ...]
    notes: tuple[str, ...]
    hint: str | None
    pip: str | None
    uv: str | None
    gap: str | None


def all_answers(known: Profiles) -> dict[str, Any]:
    """Return the document that the page embeds.

    It has each text and answer once, and each line of answers, one for each Python. For each system and framework it
    has the class of each pair of driver and capability, and for each class its line for each glibc. The tables are computed in several processes.
    """
    tasks = [(known, system, framework) for system in SYSTEMS for framework in FRAMEWORKS]
    texts, heads, answers, lines = Numbered(), Numbered(), Numbered(), Numbered()
    tables: dict[str, dict[str, Any]] = {system.key: {} for system in SYSTEMS}
    with ProcessPoolExecutor() as pool:
        for (_, system, framework), part in zip(tasks, pool.map(table, tasks), strict=True):
            numbers = [answers.of(_with_numbers(one, texts, heads)) for one in part["answers"]]
            classes = [[lines.of(tuple(numbers[n] for n in row)) for row in one] for one in part["classes"]]
            tables[system.key][framework] = {"rows": part["rows"], "pairs": part["pairs"], "classes": classes}
    return {
        "profiles": digest(known),
        "gpus": [[g.capability, g.generation, int(g.tegra), list(g.boards)] for g in known.gpus],
        "names": [MAKERS.pattern, FORMS.pattern],
        "branches": [b.branch for b in known.branches],
        "releases": {name: first_releases(known, name) for name in ("linux", "windows")},
        "pythons": pythons_of(known),
        "systems": [_system(known, s) for s in SYSTEMS],
        "texts": texts.values,
        "heads": heads.values,
        "answers": answers.values,
        "lines": lines.values,
        "tables": tables,
    }  # fmt: skip


def _with_numbers(answer: PageAnswer, texts: Numbered, heads: Numbered) -> Hashable:
    """Return an answer with numbers instead of texts, and of its build with the command."""

    def number(text: str | None) -> int:
        return texts.of(text) if text else -1

    head = heads.of((*answer.head, number(answer.pip), number(answer.uv), number(answer.gap)))
    return (head, tuple(map(texts.of, answer.why)), tuple(map(texts.of, answer.notes)), number(answer.hint))


def first_releases(known: Profiles, driver_os: str) -> list[str]:
    """Return the drivers that a branch ("580") can mean: the first release for each CUDA, oldest first."""
    return sorted(known.list_driver_floors(windows=driver_os == "windows"), key=version)


def _system(known: Profiles, system: System) -> dict[str, Any]:
    questions = Questions(known, system, FRAMEWORKS[0])
    return {
        "key": system.key, "title": system.title, "platform": system.platform, "driver_os": system.driver_os,
        "floors": [i.floor for i in questions.intervals[2:]], "speaks": [i.speaks for i in questions.intervals],
        "glibc": [g.floor for g in questions.glibcs], "capabilities": questions.capabilities,
        "needs": _needs(known, questions),
    }  # fmt: skip


def _needs(known: Profiles, questions: Questions) -> dict[str, str]:
    """Return the oldest driver for each CUDA release of a build."""
    target = questions.target(questions.intervals[0], known.gpus[-1].capability, Glibc(None, None))
    question = Question(questions.request(None), target, known, AvailableWheels())
    cudas = sorted({b.cuda for b in known.builds if b.cuda}, key=version)
    return {cuda: floor for cuda in cudas if (floor := question.find_driver_floor(cuda))}


def table(task: tuple[Profiles, System, str]) -> dict[str, Any]:
    """Return all answers on one framework and one system, with their own numbers."""
    questions = Questions(*task)
    classes, rows, answers = Numbered(), Numbered(), Numbered()
    answered: list[list[list[int]]] = []
    pairs = []
    for interval in questions.intervals:
        row = []
        for capability in questions.capabilities:
            one = classes.of(questions.class_of(interval, capability))
            if one == len(answered):
                by_glibc = _answered(questions, interval, capability)
                answered.append([[answers.of(a) for a in of_glibc] for of_glibc in by_glibc])
            row.append(one)
        pairs.append(rows.of(tuple(row)))
    return {"rows": rows.values, "pairs": pairs, "classes": answered, "answers": answers.values}


def _answered(questions: Questions, interval: Interval, capability: str) -> list[list[PageAnswer]]:
    """Return the answers of a class: a row for each glibc, with one answer for each Python."""
    pythons = pythons_of(questions.known)
    return [[_answer(questions, interval, capability, g, p) for p in pythons] for g in questions.glibcs]


def _answer(
    questions: Questions, interval: Interval, capability: str, glibc: Glibc, python: str | None
) -> PageAnswer:
    plan = resolve(questions.request(python), questions.target(interval, capability, glibc), questions.known)
    build = plan.builds[0] if plan.builds else None

    def plain(text: str) -> str:
        return questions.plain(text, interval, glibc, python)

    return PageAnswer(
        head=(build.version, build.cuda, build.index, plan.cudnn, plan.python) if build else (None,) * 5,
        why=tuple(map(plain, list_objections(plan))),
        notes=tuple(map(plain, plan.notes)),
        hint=plain(plan.hint) if plan.hint else None,
        pip=next(iter(install_lines("pip", plan, questions.known, questions.indexes)), None),
        uv=next(iter(install_lines("uv", plan, questions.known, questions.indexes)), None),
        gap=next(pip_gaps(plan, questions.known), None),
    )


def pythons_of(known: Profiles) -> list[str | None]:
    """Return None for any Python, then every minor version of a CUDA build."""
    return [None, *sorted({p for b in known.builds if b.cuda for p in b.python}, key=version)]


def digest(known: Profiles) -> str:
    """Return a digest of all rows that answers depend on."""
    kinds = (
        known.builds, known.cudnn, known.toolkits, known.gpus, known.cuda, known.majors, known.branches, known.known_bad
    )  # fmt: skip
    rows = [[tuple(row) for row in rows] for rows in kinds]
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]
