"""What diagnose says of lines of text, for tests."""

from known import KNOWN

from provision import diagnose
from provision.commands.causes import find_causes


def _once(real):
    """The check of gpuenv's own rows is a third of the time that a short text takes: it is made once."""
    own = []

    def check(profiles, *more):
        if profiles is not KNOWN:
            return real(profiles, *more)
        own.extend([] if own else [real(profiles, *more)])
        return own[0]

    return check


diagnose.check = _once(diagnose.check)
diagnose.find_mistakes_in_fixes = _once(diagnose.find_mistakes_in_fixes)


def found(*lines, machine=None, verdict=None):
    """Findings of a text given as lines."""
    return find_causes([("log", ["\n".join(lines).encode()])], KNOWN, machine, verdict)


def causes(*lines, **kwargs):
    return [f.cause for f in found(*lines, **kwargs)]
