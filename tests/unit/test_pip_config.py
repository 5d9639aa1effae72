"""The configuration of pip, read from real files."""
# ruff: noqa: F811  # fixtures are imported by their names

import dataclasses
import os
import sys

import pytest
import tomli_w
from index_server import server, wheel  # noqa: F401  # fixtures
from programs import run_program
from rows import rows

from provision.config.options import Choices
from provision.config.sources import read_sources
from provision.errors import LockError, UsageError
from provision.index import places, uv
from provision.index.config import PipConfig, pip_files, pip_settings, uv_variables
from provision.index.places import default_index
from provision.model import PackageSources


@pytest.fixture
def home(tmp_path):
    """An environment whose every pip.conf lies under tmp_path (but /etc/pip.conf, which is named last)."""
    return {
        "HOME": str(tmp_path / "home"),
        "XDG_CONFIG_DIRS": str(tmp_path / "xdg"),
        "VIRTUAL_ENV": str(tmp_path / "venv"),
    }


def conf(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_pip_files_are_read_in_pips_order(tmp_path, home):
    places = [
        "xdg/pip/pip.conf",
        "home/.pip/pip.conf",
        "home/.config/pip/pip.conf",
        "venv/pip.conf",
        "named.conf",
    ]
    for n, place in enumerate(places):
        conf(tmp_path / place, f"[global]\nindex-url = https://{n}/simple\ntimeout = 3\n")
        assert pip_settings(home).index_url == f"https://{min(n, 3)}/simple"
    named = home | {"PIP_CONFIG_FILE": str(tmp_path / "named.conf")}
    assert pip_settings(named).index_url == "https://4/simple"
    assert pip_settings(named | {"PIP_INDEX_URL": "https://env/"}).index_url == "https://env/"
    files = pip_files(named)
    assert tmp_path / "home/.config/pip/pip.conf" not in files  # PIP_CONFIG_FILE stands for the user's
    assert pip_files(home | {"PIP_CONFIG_FILE": "/dev/null"}) == []


def test_all_keys_of_a_pip_conf_are_read(tmp_path, home):
    conf(
        tmp_path / "venv/pip.conf",
        "[global]\nextra_index_url =\n    https://a/simple\n    https://u:p%w@b/simple\nfind-links = /w1 /w2\n"
        "trusted-host = a b:80\ncert = /ca.pem\nproxy = http://p:3128\nno-index = false\n[install]\nno-index = YES\n",
    )
    assert pip_settings(home | {"PIP_TRUSTED_HOST": "c"}) == PipConfig(
        index_url=pip_settings({**home, "VIRTUAL_ENV": ""}).index_url,
        extra_index_urls=("https://a/simple", "https://u:p%w@b/simple"),
        find_links=("/w1", "/w2"),
        trusted_hosts=("c",),
        cert="/ca.pem",
        proxy="http://p:3128",
        no_index=True,
    )


@rows(
    ("timeout", "seconds"),
    [(None, None), ("3", 3), ("2.5", 2.5), ("0", None), ("-1", None), ("1e9", None), ("soon", None), ("nan", None)],
)  # fmt: skip
def test_a_time_out_that_is_no_time_is_none(home, timeout, seconds):
    settings = home | {"PIP_CONFIG_FILE": "/dev/null"} | ({"PIP_TIMEOUT": timeout} if timeout else {})
    assert pip_settings(settings).timeout == seconds


def test_uv_runs_with_the_settings_of_pip():
    own = {"UV_INSECURE_HOST": "mine"}
    sources = PackageSources(cert="/ca.pem", proxy="http://p:3128", trusted=("a", "b:80"), timeout=7, uv=own)
    env = uv.environment(sources, {"HTTPS_PROXY": "http://other:1"})
    assert env["UV_INSECURE_HOST"] == "a b:80 mine" and env["UV_HTTP_TIMEOUT"] == "7"
    assert env["HTTP_PROXY"] == env["HTTPS_PROXY"] == "http://p:3128" and env["SSL_CERT_FILE"] == "/ca.pem"
    assert uv.environment(sources, {"SSL_CERT_FILE": "/own"})["SSL_CERT_FILE"] == "/own"


def test_lists_of_a_uv_toml_are_read(tmp_path, home):
    text = "allow-insecure-host = ['a', 'b']\nno-proxy = ['c', 'd']\n[pip]\nno-build-package = ['e', 'f']\n"
    conf(tmp_path / "uv.toml", text)
    assert uv_variables({**home, "UV_CONFIG_FILE": str(tmp_path / "uv.toml")}) == {
        "UV_INSECURE_HOST": "a b", "NO_PROXY": "c,d", "UV_NO_BUILD_PACKAGE": "e f",
    }  # fmt: skip


def test_a_broken_pip_conf_is_named(tmp_path, home):
    conf(tmp_path / "venv/pip.conf", "index-url = no section\n")
    with pytest.raises(LockError, match=r"venv/pip.conf is not a valid configuration of pip"):
        pip_settings(home)


def test_the_default_index_is_what_is_configured(home):
    assert default_index(home | {"PIP_INDEX_URL": "https://mirror/simple/"}) == "https://mirror/simple"
    assert (
        default_index(home | {"UV_DEFAULT_INDEX": "https://u/s", "PIP_INDEX_URL": "https://p"})
        == "https://u/s"
    )


def test_where_nothing_is_configured_the_default_is_that_of_uv():
    found = default_index({"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"})
    helped = uv.program(), "pip", "compile", "--help"
    said = run_program(helped, check=True).stdout
    assert found.startswith("https://") and f"by default: <{found}>" in " ".join(said.split())


def test_what_configures_a_run_of_uv_has_no_part_in_its_own_index(tmp_path, monkeypatch):
    found, ask = uv.own_index(), uv.own_index.__wrapped__
    for name, value in {
        "UV_HTTP_TIMEOUT": "30s",
        "UV_OFFLINE": "?",
        "UV_CACHE_DIR": "/proc",
        "UV_INDEX_URL": "https://u",
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "uv.toml").write_text("[")
    monkeypatch.chdir(tmp_path)
    assert ask() == found
    for broken in ("/bin/false", str(tmp_path / "none")):
        monkeypatch.setattr(uv, "program", lambda path=broken: path)
        assert ask() == ""


def test_pages_and_files_of_uvs_own_index_are_read_once(server, tmp_path, monkeypatch):
    link = '<a href="/f/idna-3.1-py3-none-any.whl">idna-3.1-py3-none-any.whl</a>'
    server.pages["/simple/idna/"] = (200, {"Content-Type": "text/html"}, link.encode())
    server.pages["/f/idna-3.1-py3-none-any.whl"] = (200, {}, wheel("idna", "3.1"))
    monkeypatch.setattr(uv, "own_index", lambda: f"{server.url}/simple")
    sources = PackageSources(cache_dir=str(tmp_path))
    assert places.cacheable_index(dataclasses.replace(sources, default="https://mirror/simple")) == []
    config, needs = tmp_path / "uv.toml", tmp_path / "needs.in"
    config.write_text(tomli_w.dumps({"index": places.cacheable_index(sources)}))
    needs.write_text("idna\n")
    words = ["pip", "compile", str(needs), "--config-file", str(config)]
    asked = []
    for _ in range(2):
        done = uv.run_uv(words, sources, python=sys.executable)
        assert "idna==3.1" in done.stdout, done.stderr
        asked.append(len(server.seen))
    assert asked[0] == asked[1] > 1


def test_an_option_names_a_folder_or_a_page_of_wheels(tmp_path):
    page = "https://pages.example/torch.html"
    assert read_sources(Choices(find_links=[page, str(tmp_path)])).find_links[:2] == (page, str(tmp_path))
    with pytest.raises(UsageError, match="no such folder"):
        read_sources(Choices(find_links=[str(tmp_path / "none")]))
