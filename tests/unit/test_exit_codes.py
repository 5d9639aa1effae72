"""Exit codes of results: each is found by the name of its class."""

from rows import rows

import provision.model
from provision.cli import exit_codes


@rows("name", exit_codes._OF_RESULTS)
def test_each_name_is_that_of_a_result(name):
    result = getattr(provision.model, name)
    assert result.__name__ == name


def test_other_values_are_successes():
    assert exit_codes.get_exit_code(None, None) == exit_codes.get_exit_code([], None) == 0
