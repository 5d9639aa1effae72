"""One test over all rows of a table, in place of one test for each; or a sample of them."""

import functools
import inspect
import traceback

import pytest


def sampled(values, every, *, wide=False):
    """The first of every so many values for `make test`, and the others for `make test-slow`. `wide` ones are rows of
    several cells."""
    slow = [pytest.param(*(v if wide else [v]), marks=pytest.mark.slow) for v in values]
    return [v if i % every == 0 else slow[i] for i, v in enumerate(values)]


def rows(names, values, ids=None):
    """As `pytest.mark.parametrize`, but one test that tries every row and then lists those that fail.

    A case of pytest costs more than most rows do. The rows share the fixtures of the test, so it is for tests
    that leave nothing behind."""
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [
        value.values if hasattr(value, "marks") else value if len(names) > 1 else (value,) for value in values
    ]

    def decorate(test):
        signature = inspect.signature(test)

        def whole(*args, **fixtures):
            failed = []
            for cells in table:
                row = dict(zip(names, cells, strict=True))
                try:
                    test(*args, **row, **fixtures)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # told with its row
                    at = traceback.extract_tb(error.__traceback__)[1:][-1].lineno
                    about = ", ".join(f"{name}={value!r:.300}" for name, value in row.items())
                    failed.append(f"{about}\n    line {at}: {type(error).__name__}: {error}")
            if failed:
                pytest.fail(f"{len(failed)} of {len(table)} rows\n" + "\n".join(failed), pytrace=False)

        functools.update_wrapper(whole, test)
        kept = [p for name, p in signature.parameters.items() if name not in names]
        whole.__signature__ = signature.replace(parameters=kept)
        return whole

    return decorate
