"""What .condarc, rattler's configuration and their credentials say of channels: followed, and kept to
themselves. The servers are real, the channel is one of tiny packages."""

import base64
import json
import re
import sys

import conda_channel as cc
import pytest
from environment_facts import ok, refused
from loopback import authority, proxying
from programs import run_program
from rows import sampled

from provision.conda.engine import read_auth_file, read_configuration

ASKED = ("--manager", "conda", "--framework", "jax", "--device", "cpu")
RESOLVE = ("resolve", *ASKED, "--json")
SECRET = "s3cr3t-w0rd"
BASIC = "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()


@pytest.fixture
def server():
    with cc.serving(cc.small()) as running:
        yield running


def base(server):
    return server.url.rpartition("/")[0]


def condarc(gpuenv, text):
    (gpuenv.folder / "home" / ".condarc").write_text(text)


def channel_of(ran):
    assert ran.code == 0, ran.out + ran.err
    (build,) = ran.json["builds"]
    return build["index"]


# --- reading the files ---------------------------------------------------------------------------


def read(tmp_path, files, **variables):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_configuration({"HOME": str(tmp_path), **variables})


def test_files_are_merged_in_condas_order(tmp_path):
    found = read(
        tmp_path,
        {
            ".config/conda/.condarc": "channels: [far]\ncustom_channels: {a: https://one, b: https://two}\nssl_verify: false\n",
            ".conda/condarc.d/10.yml": "channels: [middle]\n",
            ".condarc": "channels: [near, far]\ncustom_channels: {b: https://mine}\n",
        },
    )[0]
    assert found["channels"] == ["near", "far", "middle"]
    assert found["custom_channels"] == {"a": "https://one", "b": "https://mine"}
    assert found["ssl_verify"] is False


def test_variables_stand_before_files_and_are_expanded_in_them(tmp_path):
    files = {".condarc": "channels: [$PLACE, '$NOT_SET']\nchannel_priority: strict\n"}
    found = read(
        tmp_path, files, PLACE="https://host/x", CONDA_CHANNEL_PRIORITY="disabled", CONDA_CHANNELS="y, z"
    )[0]
    assert found["channels"] == ["y", "z", "https://host/x", "$NOT_SET"]
    assert found["channel_priority"] == "disabled"


def test_keys_of_condarc_that_are_not_followed_are_named(tmp_path):
    text = "client_ssl_cert: /x.pem\nproxy_servers: {http: http://p, 'http://u:pw@only.host': http://q}\noffline: true\n"
    ignored, offline, host = read(tmp_path, {".condarc": text})[1]
    assert ignored.startswith("client_ssl_cert in ") and "offline" in offline
    assert "only.host" in host and "pw" not in host


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("channels: [a\n", ".condarc line 2 is not YAML"),
        ("[" * 5000, ".condarc is nested too deeply"),
        ("- conda-forge\n", "it has no keys"),
        ("channels: {a: b}\n", "channels is not a list"),
        ("custom_channels: [a]\n", "custom_channels is not a map"),
        ("custom_channels: {a: 7}\n", "custom_channels has an invalid address: a"),
        ("mirrored_channels: {a: [7]}\n", "mirrored_channels has an invalid address: a"),
        ("channel_alias: 7\n", "channel_alias is not an address"),
        ("ssl_verify: /nowhere/ca.pem\n", "ssl_verify names /nowhere/ca.pem, which does not exist"),
    ],
)
def test_a_broken_condarc_is_named_with_its_line(tmp_path, text, told):
    with pytest.raises(ValueError, match=re.escape(told)) as raised:
        read(tmp_path, {".condarc": text})
    assert str(raised.value).startswith(f"{tmp_path}/.condarc")


def test_the_files_of_the_active_environment_and_of_condarc_come_last(tmp_path):
    files = {
        ".condarc": "",
        "env/.condarc": "channel_alias: https://env\nchannels: [env]\n",
        "mine": "channels: [mine]\n",
    }
    active = {"CONDA_PREFIX": str(tmp_path / "env")}
    assert read(tmp_path, files)[0] == {}
    assert read(tmp_path, files, **active)[0]["channels"] == ["env"]
    found = read(tmp_path, files, **active, CONDARC=str(tmp_path / "mine"))[0]
    assert found == {"channels": ["mine", "env"], "channel_alias": "https://env"}
    (tmp_path / "mine").write_bytes(b"channels: [\xff]\n")
    with pytest.raises(ValueError, match="mine cannot be read"):
        read(tmp_path, {}, CONDARC=str(tmp_path / "mine"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"h": {}}', None),
        ("", "it is not JSON: line 1"),
        ("[" * 100_000, "it is not JSON$"),
        ("[]", "expected a mapping"),
        (None, "Is a directory|not a regular file"),
    ],
)
def test_an_auth_file_that_cannot_be_read_is_named_without_its_contents(tmp_path, text, told):
    path = tmp_path / "auth.json"
    path.mkdir() if text is None else path.write_text(text)
    environ = {"HOME": str(tmp_path), "RATTLER_AUTH_FILE": str(path)}
    if told is None:
        assert read_auth_file(environ) == ({"h": {}}, None)
    else:
        with pytest.raises(ValueError, match=told):
            read_auth_file(environ)


def test_a_broken_condarc_ends_the_command_without_a_traceback(gpuenv):
    condarc(gpuenv, "channels: {a: b}\n")
    ran = gpuenv(*RESOLVE)
    assert ran.code == 6 and "channels is not a list" in ran.out and ".condarc" in ran.out
    assert "Traceback" not in ran.err


def test_one_word_stands_for_a_list_of_one(tmp_path):
    assert read(tmp_path, {".condarc": "channels: bioconda\n"})[0] == {"channels": ["bioconda"]}


# --- names -----------------------------------------------------------------------------------------


def test_names_lie_where_condarc_puts_them(gpuenv, server):
    where = base(server)
    condarc(
        gpuenv,
        f"custom_channels: {{conda-forge: {where}}}\ncustom_multichannels: {{mine: [conda-forge]}}\n"
        f"default_channels: [{server.url}]\nchannels: [mine, nodefaults]\n",
    )
    for channel in ([], ["--channel", "conda-forge"], ["--channel", "defaults"]):
        ran = gpuenv(*RESOLVE, *channel)
        assert channel_of(ran) == "conda-forge", channel
    condarc(gpuenv, f"channel_alias: {where}/\nchannels: [conda-forge, defaults]\n")
    assert channel_of(gpuenv(*RESOLVE)) == "conda-forge"
    ran = gpuenv(*RESOLVE, "--channel", "defaults")
    assert ran.code == 6 and "default_channels of .condarc, which is empty" in ran.out


def test_mirrors_of_condarc_leave_the_channels_own_address_in_the_lock(gpuenv, server):
    condarc(
        gpuenv,
        f"channel_alias: https://channels.invalid\nmirrored_channels: {{conda-forge: [{server.url}]}}\n",
    )
    ran = ok(gpuenv("create", *ASKED, "--no-verify", "--json"))
    assert {p["index"] for p in ran.json["lock"]["packages"]} == {"https://channels.invalid/conda-forge"}
    assert server.requests


def test_channels_of_the_configuration_of_rattler_are_used(gpuenv, server):
    config = gpuenv.folder / "config" / "rattler" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'default-channels = ["{server.url}"]\n')
    assert channel_of(gpuenv(*RESOLVE)) == "conda-forge"
    config.write_text("default-channels = [\n")
    assert "the configuration of rattler or pixi" in refused(gpuenv(*RESOLVE), 6).out


def test_the_channel_priority_of_condarc_decides(gpuenv, tmp_path):
    """Two channels with one package: only a priority that is disabled takes the newer of the second."""
    first = tmp_path / "first"
    cc.write_package(first, "jaxlib", "0.6.0", "cpu_py311h0_0", ["python 3.11.*"])
    cc.write_package(first, "jax", "0.6.0", "pyh0_0", ["jaxlib 0.6.0"], noarch="generic")
    cc.index(first)
    both = ("--channel", first, "--channel", cc.small())
    taken = {}
    for word in ("strict", "disabled"):
        condarc(gpuenv, f"channel_priority: {word}\n")
        taken[word] = gpuenv(*RESOLVE, *both).json["builds"][0]["version"]
    assert taken == {"strict": "0.6.0", "disabled": "0.7.0"}
    condarc(gpuenv, "channel_priority: sometimes\n")
    assert "expected strict, flexible or disabled" in refused(gpuenv(*RESOLVE, *both), 6).out


def test_a_configuration_that_is_offline_asks_nobody(gpuenv, server):
    condarc(gpuenv, "offline: true\n")
    ran = gpuenv(*RESOLVE, "--channel", server.url)
    assert ran.code == 6 and "is not in the cache" in ran.out and not server.requests


# --- what lets one in ------------------------------------------------------------------------------


def kept(folder, word=SECRET):
    """The files below a folder that hold a word."""
    done = run_program(["grep", "-rlF", word, folder])
    return done.stdout.split()


def assert_used_and_not_shown(gpuenv, *runs):
    for args in runs:
        ran = ok(gpuenv(*args))
        assert SECRET not in ran.out + ran.err
    assert kept(gpuenv.work) == []


@pytest.mark.parametrize("way", sampled(["address", "token"], 2))
def test_credentials_in_channels_of_condarc_are_used_and_not_shown(gpuenv, server, way):
    if way == "token":
        server.token = SECRET
        condarc(gpuenv, f"channels: [{base(server)}/t/{SECRET}/conda-forge]\n")
    else:
        server.needs = BASIC
        condarc(
            gpuenv, f"custom_channels: {{conda-forge: {base(server).replace('://', f'://me:{SECRET}@')}}}\n"
        )
    told = [("export", "--format", "environment.yml"), ("report",)] if way == "token" else []
    assert_used_and_not_shown(
        gpuenv, ("lock", *ASKED), ("create", "--lock", "conda-lock.yml", "--no-verify", "-v"), *told
    )


@pytest.mark.parametrize("way", ["basic", "token", "netrc"])
def test_credentials_of_an_auth_file_and_netrc_are_used_and_not_shown(gpuenv, server, tmp_path, way):
    if way == "netrc":
        server.needs = BASIC
        netrc = tmp_path / "home" / ".netrc"
        netrc.write_text(f"machine 127.0.0.1 login me password {SECRET}\n")
        netrc.chmod(0o600)
    else:
        known = (
            {"CondaToken": SECRET}
            if way == "token"
            else {"BasicHTTP": {"username": "me", "password": SECRET}}
        )
        server.token, server.needs = (SECRET, None) if way == "token" else (None, BASIC)
        auth = tmp_path / "auth.json"
        auth.write_text(json.dumps({"127.0.0.1": known}))
        gpuenv.env["RATTLER_AUTH_FILE"] = str(auth)
    # What asks for packages is what asked for the index; a token stands in the address of each package.
    command = ("create", *ASKED, "--no-verify", "--json") if way == "token" else RESOLVE
    assert_used_and_not_shown(gpuenv, (*command, "--channel", server.url))


@pytest.mark.parametrize("way", ["auth file", "address"])
def test_credentials_of_a_mirror_are_the_mirrors_own(gpuenv, server, tmp_path, way):
    """Not those of the channel that it mirrors, which are nobody's business there."""
    server.needs = BASIC
    auth = tmp_path / "auth.json"
    known = {"channels.invalid": {"BasicHTTP": {"username": "me", "password": "of-the-channel"}}}
    mirror = server.url
    if way == "auth file":
        known["127.0.0.1"] = {"BasicHTTP": {"username": "me", "password": SECRET}}
    else:
        mirror = mirror.replace("://", f"://me:{SECRET}@")
    auth.write_text(json.dumps(known))
    gpuenv.env["RATTLER_AUTH_FILE"] = str(auth)
    condarc(
        gpuenv,
        f"channel_alias: https://channels.invalid\nmirrored_channels: {{conda-forge: ['{mirror}']}}\n",
    )
    assert_used_and_not_shown(gpuenv, ("create", *ASKED, "--no-verify", "-v"))
    assert json.loads(auth.read_text()) == known
    server.needs = "Basic never"
    (gpuenv.folder / "cache" / "rattler").rename(gpuenv.folder / "cache" / "before")
    ran = gpuenv(*RESOLVE)
    assert ran.code == 9 and SECRET not in ran.out + ran.err and "requires credentials for" in ran.out


def test_an_auth_file_that_is_none_is_named(gpuenv, server, tmp_path):
    auth = tmp_path / "auth.json"
    gpuenv.env["RATTLER_AUTH_FILE"] = str(auth)
    auth.write_text(json.dumps({"127.0.0.1": SECRET}))
    ran = gpuenv(*RESOLVE, "--channel", server.url)
    assert ran.code == 6 and f"the auth file {auth} cannot be read" in ran.out
    assert SECRET not in ran.out + ran.err
    auth.unlink()
    ran = gpuenv(*RESOLVE, "--channel", server.url)
    assert ran.code == 0 and f"RATTLER_AUTH_FILE names {auth}, which does not exist" in ran.err


def test_a_mirror_that_is_no_server_is_refused_in_words(gpuenv):
    condarc(gpuenv, f"mirrored_channels: {{conda-forge: ['{cc.small().as_uri()}']}}\n")
    ran = gpuenv(*RESOLVE)
    assert ran.code == 6 and "a mirror must have an http address" in ran.out and "--channel DIR" in ran.out


def test_a_password_with_an_at_sign_is_taken_out_whole(gpuenv, server):
    server.needs = "Basic never"
    word = f"x@{SECRET}"
    ran = gpuenv(*RESOLVE, "--channel", server.url.replace("://", f"://me:{word}@"))
    assert ran.code == 9 and SECRET not in ran.out + ran.err and "requires credentials for" in ran.out


def test_a_token_that_is_wrong_is_refused_in_words(gpuenv, server):
    server.token = "another"
    condarc(gpuenv, f"channels: [{base(server)}/t/{SECRET}/conda-forge]\n")
    ran = gpuenv(*RESOLVE)
    assert ran.code == 9 and "requires credentials for" in ran.out and SECRET not in ran.out + ran.err


# --- the way there -----------------------------------------------------------------------------------


def test_a_proxy_of_condarc_is_used(gpuenv, server):
    with proxying(needs=BASIC) as address:
        condarc(
            gpuenv, f"channels: [{server.url}]\nproxy_servers: {{http: 'http://me:{SECRET}@{address}'}}\n"
        )
        assert channel_of(gpuenv(*RESOLVE)) == "conda-forge"
        condarc(gpuenv, f"channels: [{server.url}]\nproxy_servers: {{http: 'http://{address}'}}\n")
        (gpuenv.folder / "cache" / "rattler").rename(gpuenv.folder / "cache" / "before")
        assert "requires a user name and a password" in refused(gpuenv(*RESOLVE), 9).out


def test_ssl_verify_names_certificates_or_is_off(gpuenv, tmp_path):
    ca, context = authority(tmp_path)
    with cc.serving(cc.small(), tls=context) as server:
        ran = gpuenv(*RESOLVE, "--channel", server.url)
        assert ran.code == 9 and "has a certificate that is not trusted" in ran.out, ran.out
        for told in (ca, "false"):
            condarc(gpuenv, f"channels: [{server.url}]\nssl_verify: {told}\n")
            assert channel_of(gpuenv(*RESOLVE)) == "conda-forge", told


def test_a_stand_alone_worker_answers_from_any_folder(tmp_path):
    """The engine's program finds its own modules and no other of their names."""
    (tmp_path / "rattler.py").write_text("raise SystemExit('the wrong rattler')\n")
    (tmp_path / "provision.py").write_text("raise SystemExit('the wrong provision')\n")
    code = (
        "from provision.conda import engine; from provision.errors import LockError; "
        f"print(engine.ask('index', {{'folder': {str(tmp_path / 'channel')!r}}}, print, LockError))"
    )
    done = run_program(
        [sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", "-c", code], cwd=tmp_path
    )
    assert "indexed" in done.stdout, done.stderr
