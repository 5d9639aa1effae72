"""Credentials in addresses, texts and documents: removed in one place, and in linear time."""

import subprocess
import sys
import time

import pytest
from rows import rows

from provision.diagnose.lines import read_log
from provision.system import process
from provision.system.redaction import clean, clean_line, redact, redact_text, redact_value

USER = "us3r"
WORD = "p'4ss\"w0rd"
SIGNATURE = "s1gn4ture"


@rows(
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


@rows("around", ["{}", "`{}`", "'{}'", '"{}"', "({}).", "x={},", "<{}>", "[{}]: no", "{}\n{}\0{}"])
def test_credentials_are_removed_from_addresses_in_a_text(around):
    secret = f"https://{USER}:{WORD}@host/simple/a-1.whl?X-Sig={SIGNATURE}"
    found = redact_text(around.replace("{}", secret))
    assert not [s for s in (USER, WORD, "4ss", "w0rd", SIGNATURE) if s in found], found
    assert found.count("://host/simple/a-1.whl") == around.count("{}")


def test_a_text_without_secrets_does_not_change():
    text = "see https://host/a, (https://host/b#c) and what? http://USER:PASSWORD@HOST:PORT a@b.example"
    assert redact_text(text) == text


def test_credentials_are_removed_from_values_of_a_document():
    value = {"a": [f"https://{USER}:{WORD}@h/x", 1, None], f"https://{USER}@h": {"b": ("https://h/?s=1",)}}
    assert redact_value(value) == {"a": ["https://h/x", 1, None], "https://h": {"b": ["https://h/"]}}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("machine h login me password a b", "machine h login *** password *** b"),
        ("machine h\n  login me\n  password abc\n", "machine h\n  login ***\n  password ***\n"),
        ("using wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY now", "using *** now"),
        ("OPENAI_KEY=abc-d x", "OPENAI_KEY=*** x"),
        ("DB_PASS=p@ss/w,ord;x rest", "DB_PASS=*** rest"),
        ("export API_SECRET='a \"b\" c' rest", "export API_SECRET='***' rest"),
        ('TOKEN := "a b"', 'TOKEN := "***"'),
        ("curl -u me:pw https://h", "curl -u *** https://h"),
        ("curl --user 'me:p w' https://h", "curl --user '***' https://h"),
        ("['curl', '-u', 'me:pw', '--token', 'abc']", "['curl', '-u', '***', '--token', '***']"),
        ("x --password=a --api-key 'b c'", "x --password=*** --api-key '***'"),
        ("Set-Cookie: a=b; c=d\nnext", "Set-Cookie: ***\nnext"),
        ("curl -H 'Cookie: a=b; c=d' https://h", "curl -H 'Cookie: ***' https://h"),
        ("{'Authorization': 'Bearer abc', 'x': 1}", "{'Authorization': '***', 'x': 1}"),
        ("X-Api-Key: abc", "X-Api-Key: ***"),
        ("//registry.example/:_authToken=abc", "//registry.example/:_authToken=***"),
        ("http_proxy=me:pw@proxy:3128", "http_proxy=me:***@proxy:3128"),
        ("me:pw@db.example.com", "me:***@db.example.com"),
        ('{"api_key": "a\\"b", "gpu": "H100"}', '{"api_key": "***", "gpu": "H100"}'),
        ('{\\"dbPassword\\": \\"abc\\", \\"n\\": 1}', '{\\"dbPassword\\": \\"***\\", \\"n\\": 1}'),
        ("  db_password: two words # why", "  db_password: *** # why"),
        ("ghp_0123456789abcdefghij npm_0123456789abcdefghij AIza" + "aB3-" * 9, "*** *** ***"),
        ("SG." + "aB3-" * 5 + "." + "xY9_" * 10, "***"),
        ("-----BEGIN RSA PRIVATE KEY-----\nab\n-----END RSA PRIVATE KEY-----\nx", "***\nx"),
        ("it is open-sesame-77!", "it is ***!"),
        ("TOKEN=my-open sesame 88 x", "TOKEN=****** x"),  # one secret begins in another
        ("pass\x1b[0mword=abc \x1b]8;;http://h\x07x\u202e", "password=*** x"),
    ],
)
def test_secrets_are_found_by_their_structure(monkeypatch, text, shown):
    monkeypatch.setenv("SOME_SERVICE_TOKEN", "open-sesame-77")
    monkeypatch.setenv("OTHER_TOKEN", "open sesame 88")
    assert clean(text) == shown and clean(shown) == shown


@rows(
    "text",
    [
        "monkey=1 KEYBOARD=us cuda_key_error=3 keyboard: us tokenizers==0.20.1 author=x",
        "max_tokens=512 eos_token_id=2 pad_token='<pad>' key_padding_mask=None num_key_value_heads=8 cache_key=abc",
        "torch-2.6.0.dist-info/RECORD,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0",
        "--hash=sha256:" + "9f86d081884c7d65" * 4 + " commit 1d1e5b8f9b0c4b1f8e6d7a6c5b4a39281726354f",
        "GPU-3f2a9c04-1111-2222-3333-444455556666 cuRAND 10.3.9.90 at 0000:17:00.0",
        "torch-2.14.1+cu126-cp312-cp312-manylinux_2_28_x86_64.whl /usr/lib/x86_64-linux-gnu/libcudnn.so.9.10.2",
        "undefined symbol: _ZN3c104cuda20CUDACachingAllocator9allocatorE, version memcpy@GLIBC_2.14",
        "[[{{node cnn4_2/Conv1D00-f128-ks20/Conv1D}}]] cudnnGetConvolutionForwardAlgorithm_v7",
        "FROM python:3.13-slim-bookworm@sha256:67a1e1f215ccda113cfc024e8639049257e88f273898f595b61476d128d387e8",
        "docker run -u 1000:1000 -u $(id -u):$(id -g) nvcr.io/nvidia/pytorch:24.01-py3@sha256:9f86d081884c7d65",
        "git+ssh://git@github.com:org/repo.git@abc pip install -U 'a @ b:c' From:me@example.com",
        'pkg:pypi/nvidia-cudnn-cu12@9.10.2.21?repository_url=https://host/whl "pass": "forward"',
        "KeyError: 'token' SyntaxError: unexpected token: 'x' AuthenticationError: bad PASS: test_10 pass: 3",
        "/x/auth.py:12: error: password for user me, login failed, password authentication failed",
        "client = OpenAI(api_key=os.environ['X'], token=token, auth=self.auth) def f(api_key: str, key=len)",
        "GPUENV_GRANT='HF_TOKEN=https://host:443' HF_TOKEN=${HF_TOKEN} DB_PASS=$DB_PASS PASSWORD=*** TOKEN=<token>",
        "GOOGLE_APPLICATION_CREDENTIALS=/home/me/key.json PWD=/srv/x TOKEN_FILE=x SSH_AUTH_SOCK=/tmp/a",
    ],
)
def test_evidence_stays(text):
    assert clean(text) == text


def test_a_text_is_cut_after_its_secrets_are_removed():
    text = "see https://me:" + "x" * 300 + "@host/a and more"
    assert clean(text, 20) == "see https://host/a a" and clean_line(text, 18) == "see https://hos..."
    # A log is read up to a bound, and the user of an address can be longer.
    assert "xxx" not in clean(text[:290])


@rows("length", [280, 3000, 4500])
def test_evidence_of_a_log_is_cut_after_the_password_is_removed(length):
    line = f"RuntimeError: CUDA out of memory at https://me:{'x' * length}@host/a"
    (found,) = read_log("-", [line.encode()])
    assert "xxx" not in found.evidence.text


def test_credentials_are_hidden_in_the_process_list(tmp_path):
    """Every user can read it in the process list."""
    code = (
        "import sys; from provision.system import redaction; redaction.hide_credentials();"
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
    "token=",
    "token='",
    "token: ",
    "cookie:",
    "--token ",
    ".-ua",
    "login a password ",
    "password is ",
    "eyJaaaaaaaa-",
    "a:b@",
    "aA1/",
    'password=\\"',
    'KEY="a\\',
    "-----BEGIN PRIVATE KEY-----",
    "\x1b]",
)


@rows("piece", HOSTILE)
def test_redaction_takes_linear_time(piece):
    """Twice the text takes about twice the time; the quadratic forms took four times, and minutes for 1 MB."""

    def seconds(size):
        text = "https://" + piece * (size // len(piece))
        best = min(_timed(text) for _ in range(2))
        return max(best, 1e-3)

    assert seconds(40_000) / seconds(10_000) < 10


def _timed(text):
    began = time.process_time()
    clean(text), redact(text)
    return time.process_time() - began


def test_a_megabyte_without_a_blank_take_seconds():
    text = "token=a;" * (2 << 16)  # 64 times as long: quadratic time would be 4,096 times as long
    assert _timed(text) < 1000 * max(_timed(text[: 1 << 14]), 1e-3)
