"""The answers of the page: what `provision.resolve` says for one question of each class."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from provision.model import FRAMEWORKS, AvailableWheels, Plan, Profiles
from provision.resolve import resolve
from provision.resolve.objections import floor_of
from provision.resolve.question import Question
from provision.resolve.versions import version
from provision.show.plan import folded

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


@dataclass
class Answers:
    """Every answer, written small: texts and answers once each, then for each system and framework the class of each
    pair of driver and capability, and the answers of each class."""

    known: Profiles
    texts: Numbered = field(default_factory=Numbered)
    answers: Numbered = field(default_factory=Numbered)

    def all(self) -> dict[str, Any]:
        """The document that the page embeds."""
        pythons = pythons_of(self.known)
        tables = {s.key: {f: self._table(Questions(self.known, s, f)) for f in FRAMEWORKS} for s in SYSTEMS}
        return {
            "profiles": digest(self.known),
            "gpus": [[g.capability, g.generation, int(g.tegra), list(g.boards)] for g in self.known.gpus],
            "branches": [b.branch for b in self.known.branches],
            "pythons": pythons,
            "systems": [self._system(s) for s in SYSTEMS],
            "texts": self.texts.values,
            "answers": self.answers.values,
            "tables": tables,
        }  # fmt: skip

    def _system(self, system: System) -> dict[str, Any]:
        asked = Questions(self.known, system, FRAMEWORKS[0])
        return {
            "key": system.key, "title": system.title, "platform": system.platform, "driver_os": system.driver_os,
            "floors": [i.floor for i in asked.intervals[2:]], "speaks": [i.speaks for i in asked.intervals],
            "glibc": [g.floor for g in asked.glibcs], "capabilities": asked.capabilities,
            "needs": self._needs(system),
        }  # fmt: skip

    def _needs(self, system: System) -> dict[str, str]:
        """The oldest driver for each CUDA release of a build."""
        asked = Questions(self.known, system, FRAMEWORKS[0])
        target = asked.target(asked.intervals[0], "9.0", Glibc(None, None))
        question = Question(asked.request(None), target, self.known, AvailableWheels())
        cudas = sorted({b.cuda for b in self.known.builds if b.cuda}, key=version)
        return {cuda: floor for cuda in cudas if (floor := floor_of(question, cuda))}

    def _table(self, asked: Questions) -> dict[str, Any]:
        classes, rows = Numbered(), Numbered()
        answered: list[list[list[int]]] = []
        pairs = []
        for interval in asked.intervals:
            row = []
            for capability in asked.capabilities:
                one = classes.of(asked.class_of(interval, capability))
                if one == len(answered):
                    answered.append(self._answered(asked, interval, capability))
                row.append(one)
            pairs.append(rows.of(tuple(row)))
        return {"rows": rows.values, "pairs": pairs, "classes": answered}

    def _answered(self, asked: Questions, interval: Interval, capability: str) -> list[list[int]]:
        """The answers of a class, a row for each glibc, in it one for each Python."""
        return [
            [self._answer(asked, interval, capability, g, p) for p in pythons_of(self.known)]
            for g in asked.glibcs
        ]

    def _answer(
        self, asked: Questions, interval: Interval, capability: str, glibc: Glibc, python: str | None
    ) -> int:
        plan = resolve(asked.request(python), asked.target(interval, capability, glibc), self.known)

        def number(text: str) -> int:
            return self.texts.of(asked.plain(text, interval, glibc, python))

        return self.answers.of(_document(plan, number))


def _document(plan: Plan, number: Any) -> Hashable:
    """An answer: version, CUDA, index, cuDNN, Python, and the numbers of its texts: why not newer, notes, hint."""
    build = plan.builds[0] if plan.builds else None
    head = (build.version, build.cuda, build.index, plan.cudnn, plan.python) if build else (None,) * 5
    hint = number(plan.hint) if plan.hint else -1
    return (*head, tuple(map(number, folded(plan))), tuple(map(number, plan.notes)), hint)


def pythons_of(known: Profiles) -> list[str | None]:
    """Any Python, then every minor that a CUDA build is made for."""
    return [None, *sorted({p for b in known.builds if b.cuda for p in b.python}, key=version)]


def digest(known: Profiles) -> str:
    """A digest of all rows that answers depend on."""
    rows = (
        known.builds,
        known.cudnn,
        known.toolkits,
        known.gpus,
        known.cuda,
        known.majors,
        known.branches,
        known.known_bad,
    )
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]
