"""What diagnose says of lines of text, for tests."""

import functools

from known import KNOWN

from provision import diagnose
from provision.resolve import resolve

_plan = functools.cache(lambda request, target: resolve(request, target, KNOWN))


def _resolve(request, target, profiles):
    """The plans are a third of the time: ten texts have the same question."""
    return _plan(request, target) if profiles is KNOWN else resolve(request, target, profiles)


def diagnosis_of(texts, profiles=KNOWN, machine=None, verdict=None, **known):
    """What diagnose says of texts (name, pieces of bytes), with what is known beside them."""
    beside = diagnose.Circumstances(resolve=_resolve, machine=machine, verdict=verdict, **known)
    return diagnose.find_causes(texts, profiles, beside)


def findings_of(*texts_and_known, **known):
    return diagnosis_of(*texts_and_known, **known).findings


def found(*lines, machine=None, verdict=None, **known):
    """Findings of a text given as lines."""
    return findings_of([("log", ["\n".join(lines).encode()])], KNOWN, machine, verdict, **known)


def causes(*lines, **kwargs):
    return [f.cause for f in found(*lines, **kwargs)]
