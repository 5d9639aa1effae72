"""A controller with the collection installed, for each file of tests."""

import pytest
from fleet_site import Site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A controller that has no hosts yet."""
    made = Site(tmp_path_factory.mktemp("site"))
    made.archive = made.install_collection()
    return made
