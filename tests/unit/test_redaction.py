"""Credentials in addresses, texts and documents: removed in one place, and in linear time."""

import subprocess
import sys
import time

import pytest

from provision.system import process
from provision.system.redaction import find_secrets, redact, redact_text, redact_value

USER = "us3r"
WORD = "p'4ss\"w0rd"
SIGNATURE = "s1gn4ture"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"https://{USER}:{WORD}@host:8443/simple/?t=1#sha256=ab", "https://host:8443/simple/#sha256=ab"),
        ("https://me:with space@host/simple", "https://host/simple"),
        ("https://me:with/slash@host/simple", "https://host/simple"),
        ("https://me:with?mark@host/simple", "https://host/simple"),
        ("https://me:with@at@host/simple", "https://host/simple"),
        ("https://t0ken@host/simple", "https://host/simple"),
        ("https://host/a.whl?X-Amz-Signature=abc&X-Amz-Date=1", "https://host/a.whl"),
        ("https://host/?next=https://other/?sig=abc", "https://host/"),
        ("https://conda.example/t/tk-1-2/chan", "https://conda.example/chan"),
        ("git+ssh://git:t0ken@host/o@0123", "git+ssh://git@host/o@0123"),
        ("git+https://t0ken@host/o@0123#subdirectory=a", "git+https://host/o@0123#subdirectory=a"),
        ("http://me:word@[::1]:80/x", "http://[::1]:80/x"),
        ("http://me:word@[::1/", "http://[::1/"),
        # no secrets
        ("https://${USER_NAME}:${TOKEN}@host/x?sig=${SIG}", None),
        ("https://oauth2:${TOKEN}@host/x", None),
        ("https://host/${TOKEN}/simple", None),
        ("https://discuss.example/t/a-title/1234", None),
        ("https://host/@scope/x@1", None),
        ("https://host:8080/@scope/x", None),
        ("file:///srv/t/a/b@c", None),
        ("/srv/wheels", None),
        ("C:\\wheels", None),
    ],
)
def test_credentials_are_removed_from_one_address(url, shown):
    assert redact(url) == (url if shown is None else shown)
    assert redact(redact(url)) == redact(url)


@pytest.mark.parametrize(
    "around", ["{}", "`{}`", "'{}'", '"{}"', "({}).", "x={},", "<{}>", "[{}]: no", "{}\n{}\0{}"]
)
def test_credentials_are_removed_from_addresses_in_a_text(around):
    secret = f"https://{USER}:{WORD}@host/simple/a-1.whl?X-Sig={SIGNATURE}"
    for stars in (False, True):
        found = redact_text(around.replace("{}", secret), stars=stars)
        assert not [s for s in (USER, WORD, "4ss", "w0rd", SIGNATURE) if s in found], found
        assert found.count("@host" if stars else "://host/simple/a-1.whl") == around.count("{}")


def test_a_text_without_secrets_does_not_change():
    text = "see https://host/a, (https://host/b#c) and what? http://USER:PASSWORD@HOST:PORT a@b.example"
    assert redact_text(text) == text


def test_credentials_are_removed_from_values_of_a_document():
    value = {"a": [f"https://{USER}:{WORD}@h/x", 1, None], f"https://{USER}@h": {"b": ("https://h/?s=1",)}}
    assert redact_value(value) == {"a": ["https://h/x", 1, None], "https://h": {"b": ["https://h/"]}}


def test_credentials_are_hidden_in_the_process_list(tmp_path):
    """Every user can read it in the process list."""
    code = (
        "import sys; from provision.system import process; process.hide_credentials();"
        "sys.stdout.write(open('/proc/self/cmdline', encoding='latin-1').read()); assert '4ss' in sys.argv[1]"
    )
    args = [f"https://{USER}:{WORD}@host/x?sig={SIGNATURE}", f"--index=https://h/x?sig={SIGNATURE}", "pläin"]
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        check=True,
        env=process.environ(),
    )
    shown = done.stdout.decode("utf-8").split("\0")[3:6]
    assert shown[0].startswith("https://*") and "@host/x?sig" not in shown[0] and shown[0].endswith("*")
    assert not [s for s in (USER, "4ss", SIGNATURE) if s in "".join(shown)]
    assert [len(s) for s in shown[:2]] == [len(a) for a in args[:2]]


HOSTILE = (
    "://",
    "://@",
    "://a:b",
    "://a:b/",
    "://?",
    "x://h/t/a",
    "/t/a",
    "https://h?a=b&",
    "://a'?b",
    "${A",
    "a",
    ":a",
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_redaction_takes_linear_time(piece):
    """Twice the text takes about twice the time; the quadratic forms took four times, and minutes for 1 MB."""

    def seconds(size):
        text = "https://" + piece * (size // len(piece))
        best = min(_timed(text) for _ in range(3))
        return max(best, 1e-3)

    assert seconds(400_000) / seconds(100_000) < 10


def _timed(text):
    began = time.process_time()
    list(find_secrets(text)), redact(text)
    return time.process_time() - began
