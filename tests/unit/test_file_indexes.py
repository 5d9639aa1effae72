"""The index of a locked file, where its address shows it; None where it does not."""

import pytest

from provision.config.options import Choices
from provision.config.sources import read_sources
from provision.errors import UsageError
from provision.index.places import indexes_of_files
from provision.model import LockedPackage, PackageSources

WEB = "https://packages.example/simple"
WEB_FILE = "https://files.example/ab/plain-1.0-py3-none-any.whl"


def package(url, name="plain"):
    return LockedPackage(name=name, version="1.0", url=url)


@pytest.fixture
def folder_index(tmp_path, monkeypatch):
    """Write a page of an index in a folder, which is configured beside the default one."""
    for name in (
        "PIP_EXTRA_INDEX_URL",
        "UV_INDEX",
        "UV_EXTRA_INDEX_URL",
        "UV_FIND_LINKS",
        "UV_DEFAULT_INDEX",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    page = tmp_path / "index" / "simple" / "plain" / "index.html"
    page.parent.mkdir(parents=True)

    def write(*links):
        page.write_text("".join(f'<a href="{link}">file</a>\n' for link in links))
        return page.parent.parent.as_uri()

    return write


def asked(tmp_path, *extra, default=WEB, bound=None, **more):
    """Return the function from packages to their indexes, for these sources."""
    sources = PackageSources(default=default, extra=extra, cache_dir=str(tmp_path / "cache"), **more)
    return lambda packages: indexes_of_files(packages, sources, bound or {})


def test_a_web_file_comes_from_the_only_web_index(tmp_path, folder_index):
    here = folder_index("../../files/plain-1.0-py3-none-any.whl")
    assert asked(tmp_path, here)([package(WEB_FILE)]) == {"plain": WEB}


def test_a_file_of_a_folder_index_is_on_its_page(tmp_path, folder_index):
    here = folder_index("../../files/plain-1.0-py3-none-any.whl#sha256=00")
    file = (tmp_path / "index" / "files" / "plain-1.0-py3-none-any.whl").as_uri()
    assert asked(tmp_path, here)([package(file)]) == {"plain": here}
    assert asked(tmp_path, here)([package(file + "x")]) is None, "no page lists it"
    page = tmp_path / "index" / "simple" / "plain" / "index.html"
    page.unlink()
    page.mkdir()
    assert asked(tmp_path, here)([package(WEB_FILE)]) is None, "a page that cannot be read may list it"


def test_a_file_in_a_folder_of_wheels_comes_from_that_folder(tmp_path, folder_index):
    file = (tmp_path / "wheels" / "plain-1.0-py3-none-any.whl").as_uri()
    places = asked(tmp_path, find_links=(str(tmp_path / "wheels"),))
    assert places([package(file)]) == {"plain": (tmp_path / "wheels").as_uri()}


def test_a_file_that_two_places_can_have_is_left_to_uv(tmp_path, folder_index):
    here = folder_index(WEB_FILE)
    assert asked(tmp_path, here)([package(WEB_FILE)]) is None
    other = "https://other.example/simple"
    assert asked(tmp_path, other)([package(WEB_FILE)]) is None
    pages = asked(tmp_path, find_links=("https://pages.example/torch.html",))
    assert pages([package(WEB_FILE)]) is None


def test_an_option_names_a_folder_or_a_page_of_wheels(tmp_path):
    page = "https://pages.example/torch.html"
    assert read_sources(Choices(find_links=[page, str(tmp_path)])).find_links[:2] == (page, str(tmp_path))
    with pytest.raises(UsageError, match="no such folder"):
        read_sources(Choices(find_links=[str(tmp_path / "none")]))


def test_a_package_that_is_bound_to_an_index_comes_from_there(tmp_path, folder_index):
    bound = {"plain": "https://other.example/simple"}
    places = asked(tmp_path, bound=bound)
    found = places([package(WEB_FILE), package(WEB_FILE, name="free")])
    assert found == {**bound, "free": WEB}


def test_an_address_with_credentials_is_left_to_uv(tmp_path, folder_index):
    places = asked(tmp_path, default="https://me:word@packages.example/simple")
    assert places([package(WEB_FILE)]) is None
