"""What diagnose says of lines of text, for tests."""

from known import KNOWN

from provision.commands.causes import find_causes


def found(*lines, machine=None, verdict=None):
    """Findings of a text given as lines."""
    return find_causes([("log", ["\n".join(lines).encode()])], KNOWN, machine, verdict)


def causes(*lines, **kwargs):
    return [f.cause for f in found(*lines, **kwargs)]
