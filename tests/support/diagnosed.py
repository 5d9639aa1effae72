"""What diagnose says of lines of text, for tests."""

import functools

from known import KNOWN

from provision import diagnose
from provision.resolve import resolve

_check, _checked = diagnose.check_tables, []
_plan = functools.cache(lambda request, target: resolve(request, target, KNOWN))


def _check_once(profiles):
    """The check of gpuenv's own rows is a third of the time that a short text takes: it is made once."""
    if profiles is not KNOWN or not _checked:
        _check(profiles)
        _checked.append(profiles)


def _advise(request, target, profiles):
    """The plans are another third: ten texts have the same question."""
    return _plan(request, target) if profiles is KNOWN else resolve(request, target, profiles)


diagnose.check_tables = _check_once


def diagnosis_of(texts, profiles=KNOWN, machine=None, verdict=None, **known):
    """What diagnose says of texts (name, pieces of bytes), with what is known beside them."""
    beside = diagnose.Circumstances(advise=_advise, machine=machine, verdict=verdict, **known)
    return diagnose.find_causes(texts, profiles, beside)


def findings_of(*texts_and_known, **known):
    return diagnosis_of(*texts_and_known, **known).findings


def found(*lines, machine=None, verdict=None):
    """Findings of a text given as lines."""
    return findings_of([("log", ["\n".join(lines).encode()])], KNOWN, machine, verdict)


def causes(*lines, **kwargs):
    return [f.cause for f in found(*lines, **kwargs)]
