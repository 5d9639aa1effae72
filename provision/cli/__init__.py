"""Declare the command line with typer: its options, completion, signals and exit codes."""

from .argument_order import split as split
from .run_command_line import run as run
from .typer_application import app as app
