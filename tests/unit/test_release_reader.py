"""The reader of releases: which requirements of a release it keeps."""

import pytest
from loopback import Index, serving

from provision.model import AvailableWheels, PackageSources, Target
from provision.wheels.available_releases import ReleaseReader, RequestedPackage

REQUIRES = [
    "torch>=2.4",
    "  Torch_Vision ; extra == 'vision'",
    "torch-scatter",
    "torch (>=2)",
    "torch>=",
    "other @ https://example.invalid/other-1.0-py3-none-any.whl",
]


@pytest.fixture
def index():
    with serving(Index()) as made:
        yield made


def test_only_valid_requirements_of_relevant_packages_are_kept(index, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    index.add("some", "1.0", requires=REQUIRES)
    sources = PackageSources(default=index.url, cache_dir=str(tmp_path))
    about = frozenset({"torch", "torch-vision"})
    reader = ReleaseReader(sources, AvailableWheels(), Target(platform="linux-x86_64"), ["3.12"], about)
    reader.read([RequestedPackage(name="some")])
    ((release,),) = (package.releases for package in reader.packages)
    assert [text.strip() for text in release.requires] == [
        "torch>=2.4",
        "Torch_Vision ; extra == 'vision'",
        "torch (>=2)",
    ]
