"""The answers of the page: what `provision.resolve` says for one question of each class."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Hashable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from provision.model import FRAMEWORKS, AvailableWheels, Profiles
from provision.resolve import resolve
from provision.resolve.objections import floor_of
from provision.resolve.question import Question
from provision.resolve.versions import version
from provision.show.plan import list_objections

from .questions import SYSTEMS, Glibc, Interval, Questions, System


@dataclass
class Numbered:
    """Values, each once, by the number under which the page has it."""

    numbers: dict[Hashable, int] = field(default_factory=dict)

    def of(self, value: Hashable) -> int:
        """The number of a value."""
        return self.numbers.setdefault(value, len(self.numbers))

    @property
    def values(self) -> list[Any]:
        """All values, in the order of their numbers."""
        return list(self.numbers)


@dataclass(frozen=True)
class Answer:
    """An answer with its texts. `head` is version, CUDA, index, cuDNN and Python, all None where no build fits."""

    head: tuple[str | None, ...]
    why: tuple[str, ...]
    notes: tuple[str, ...]
    hint: str | None


def all_answers(known: Profiles) -> dict[str, Any]:
    """The document that the page embeds: texts and answers once each, then for each system and framework the class of
    each pair of driver and capability, and the answers of each class. Tables are made in several processes."""
    tasks = [(known, system, framework) for system in SYSTEMS for framework in FRAMEWORKS]
    texts, answers = Numbered(), Numbered()
    tables: dict[str, dict[str, Any]] = {system.key: {} for system in SYSTEMS}
    with ProcessPoolExecutor() as pool:
        for (_, system, framework), made in zip(tasks, pool.map(table, tasks), strict=True):
            numbers = [answers.of(_with_numbers(one, texts)) for one in made["answers"]]
            classes = [[[numbers[n] for n in row] for row in one] for one in made["classes"]]
            tables[system.key][framework] = {"rows": made["rows"], "pairs": made["pairs"], "classes": classes}
    return {
        "profiles": digest(known),
        "gpus": [[g.capability, g.generation, int(g.tegra), list(g.boards)] for g in known.gpus],
        "branches": [b.branch for b in known.branches],
        "pythons": pythons_of(known),
        "systems": [_system(known, s) for s in SYSTEMS],
        "texts": texts.values,
        "answers": answers.values,
        "tables": tables,
    }  # fmt: skip


def _with_numbers(answer: Answer, texts: Numbered) -> Hashable:
    """An answer as the page has it, with numbers in place of texts."""
    hint = texts.of(answer.hint) if answer.hint else -1
    return (*answer.head, tuple(map(texts.of, answer.why)), tuple(map(texts.of, answer.notes)), hint)


def _system(known: Profiles, system: System) -> dict[str, Any]:
    asked = Questions(known, system, FRAMEWORKS[0])
    return {
        "key": system.key, "title": system.title, "platform": system.platform, "driver_os": system.driver_os,
        "floors": [i.floor for i in asked.intervals[2:]], "speaks": [i.speaks for i in asked.intervals],
        "glibc": [g.floor for g in asked.glibcs], "capabilities": asked.capabilities,
        "needs": _needs(known, asked),
    }  # fmt: skip


def _needs(known: Profiles, questions: Questions) -> dict[str, str]:
    """The oldest driver for each CUDA release of a build."""
    target = questions.target(questions.intervals[0], known.gpus[-1].capability, Glibc(None, None))
    question = Question(questions.request(None), target, known, AvailableWheels())
    cudas = sorted({b.cuda for b in known.builds if b.cuda}, key=version)
    return {cuda: floor for cuda in cudas if (floor := floor_of(question, cuda))}


def table(task: tuple[Profiles, System, str]) -> dict[str, Any]:
    """All answers on one framework and one system, numbered among themselves."""
    asked = Questions(*task)
    classes, rows, answers = Numbered(), Numbered(), Numbered()
    answered: list[list[list[int]]] = []
    pairs = []
    for interval in asked.intervals:
        row = []
        for capability in asked.capabilities:
            one = classes.of(asked.class_of(interval, capability))
            if one == len(answered):
                found = _answered(asked, interval, capability)
                answered.append([[answers.of(a) for a in of_glibc] for of_glibc in found])
            row.append(one)
        pairs.append(rows.of(tuple(row)))
    return {"rows": rows.values, "pairs": pairs, "classes": answered, "answers": answers.values}


def _answered(questions: Questions, interval: Interval, capability: str) -> list[list[Answer]]:
    """The answers of a class, a row for each glibc, in it one for each Python."""
    pythons = pythons_of(questions.known)
    return [[_answer(questions, interval, capability, g, p) for p in pythons] for g in questions.glibcs]


def _answer(
    questions: Questions, interval: Interval, capability: str, glibc: Glibc, python: str | None
) -> Answer:
    plan = resolve(questions.request(python), questions.target(interval, capability, glibc), questions.known)
    build = plan.builds[0] if plan.builds else None

    def plain(text: str) -> str:
        return questions.plain(text, interval, glibc, python)

    return Answer(
        head=(build.version, build.cuda, build.index, plan.cudnn, plan.python) if build else (None,) * 5,
        why=tuple(map(plain, list_objections(plan))),
        notes=tuple(map(plain, plan.notes)),
        hint=plain(plan.hint) if plan.hint else None,
    )


def pythons_of(known: Profiles) -> list[str | None]:
    """Any Python, then every minor that a CUDA build is made for."""
    return [None, *sorted({p for b in known.builds if b.cuda for p in b.python}, key=version)]


def digest(known: Profiles) -> str:
    """A digest of all rows that answers depend on."""
    kinds = (
        known.builds, known.cudnn, known.toolkits, known.gpus, known.cuda, known.majors, known.branches, known.known_bad
    )  # fmt: skip
    rows = [[dataclasses.astuple(row) for row in rows] for rows in kinds]
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]
