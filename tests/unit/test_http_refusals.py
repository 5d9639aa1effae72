"""Words and hints of HTTP refusals and network failures: the same for uv, rattler and gpuenv's own requests."""

from __future__ import annotations

import http.client
import re
import socket
import ssl

from rows import rows

from provision.index import refusals
from provision.index.http import DeadlineError, StatusError, explain_error, read_error
from provision.index.refusals import CONDA_CHANNEL, PACKAGE_INDEX

INDEX = "https://index.example/simple"
STATUSES = {
    401: ("Unauthorized", "requires credentials for numpy"),
    403: ("Forbidden", "denies access to numpy"),
    404: ("Not Found", "does not have numpy"),
    407: ("Proxy Authentication Required", "is behind a proxy that requires a user name and a password"),
    410: ("Gone", "has withdrawn numpy"),
    418: ("I'm a teapot", "refused the request for numpy"),
    429: ("Too Many Requests", "rate-limited the request for numpy"),
    503: ("Service Unavailable", "cannot serve numpy now"),
}
EXCEPTIONS = [
    (socket.gaierror(-2, "Name or service not known"), "has a host name that cannot be resolved"),
    (ConnectionRefusedError(111, "Connection refused"), "refuses the connection"),
    (ssl.SSLCertVerificationError("self-signed"), "has a certificate that is not trusted"),
    (TimeoutError("timed out"), "does not respond in time"),
    (http.client.IncompleteRead(b"abc", 5), "ended the response too early"),
    (http.client.RemoteDisconnected("x"), "closed the connection"),
    (ConnectionResetError(104, "x"), "closed the connection"),
]  # fmt: skip
LOGS = [
    ("dns error: failed to lookup address information", "has a host name that cannot be resolved"),
    ("tcp connect error: Connection refused (os error 111)", "refuses the connection"),
    ("tunnel error: failed to create underlying connection\ntcp connect error", "cannot be reached through the proxy"),
    ("invalid peer certificate: UnknownIssuer", "has a certificate that is not trusted"),
    ("operation timed out", "does not respond in time"),
    ("end of file before message length reached", "ended the response too early"),
    ("connection reset by peer", "closed the connection"),
    ("error following redirect: too many redirects", "redirects endlessly"),
    ("error sending request", "does not respond"),
]  # fmt: skip


@rows("code", STATUSES)
def test_a_status_reads_the_same_from_uv_and_from_a_request(code):
    reason, words = STATUSES[code]
    log = f"Failed to download `numpy==2.0`\nHTTP status client error ({code} {reason}) for url ({INDEX}/numpy/)"
    failure = refusals.find_failure(log, {"numpy": INDEX})
    assert failure is not None
    assert failure.message.startswith(f"the package index {INDEX} {words}")
    assert f"(HTTP {code} {reason})" in failure.message
    refusal = explain_error(StatusError(code, reason, {}))
    assert refusal.words.replace("the file", "numpy") == f"{words} (HTTP {code} {reason})"
    assert refusal.hint == failure.hint


@rows(
    ("hint", "words"),
    [
        ("An index URL ({}) could not be queried due to a lack of valid authentication credentials (401 Unauthorized)",
         "requires credentials for jaxlib (HTTP 401 Unauthorized)"),
        ("An index ({}) returned a 403 Forbidden error. Check that the index URL is correct",
         "denies access to jaxlib (HTTP 403 Forbidden)"),
    ],
)  # fmt: skip
def test_a_page_that_uv_may_not_read_names_index_and_package(hint, words):
    """uv calls such a package missing, and the index only in a hint."""
    log = f"cause: Because jaxlib was not found in the package registry and\nyou require jaxlib\n\nhint: {hint.format(INDEX)}"
    failure = refusals.find_failure(log)
    assert failure is not None and failure.message == f"the package index {INDEX} {words}"
    assert failure.address == INDEX and failure.index_unavailable


def test_an_address_without_a_path_names_no_package():
    failure = refusals.find_failure("error sending request for url (https://packages.example/)")
    assert failure is not None and failure.message.endswith("https://packages.example does not respond")


@rows(("error", "words"), EXCEPTIONS, ids=lambda v: type(v).__name__)
def test_an_exception_of_the_network_has_a_message_and_a_hint(error, words):
    failure = read_error(f"{INDEX}/numpy/", error)
    assert failure.message == f"cannot read {INDEX}/numpy/: the server {words}"
    assert failure.hint == next(row.hint for row in refusals._ROWS.values() if row.words == words)


@rows(("log", "words"), LOGS)
def test_a_log_without_a_status_names_the_failure_of_the_network(log, words):
    for server in (PACKAGE_INDEX, CONDA_CHANNEL):
        refusal = refusals.find_refusal(log, server=server)
        assert refusal is not None and refusal.words == words and refusal.hint


def test_an_error_of_its_own_keeps_its_text():
    assert (
        read_error("http://h/a", OSError("ended after 3 bytes")).message
        == "cannot read http://h/a: ended after 3 bytes"
    )
    assert "head of the answer" in read_error("http://h/a", DeadlineError("the head of the answer")).message


def test_a_wheel_that_uv_cannot_read_is_named_with_its_index():
    log = "Failed to download `numpy==2.0`\n  Failed to extract archive\n  Invalid zip file structure"
    for indexes, source in (({"numpy": INDEX}, f" of the package index {INDEX}"), ({}, "")):
        failure = refusals.find_failure(log, indexes)
        assert failure is not None and failure.message == f"numpy{source} is not a readable wheel"


def test_a_version_in_a_log_is_not_a_status():
    assert refusals.find_refusal("Because foo==1.404 Not depends on 500 Bad things") is None


def test_a_wait_that_the_server_requests_is_part_of_the_message():
    error = StatusError(429, "Too Many Requests", {"Retry-After": "3600"})
    assert explain_error(error).words.endswith("(HTTP 429 Too Many Requests; retry after 3600 s)")


def test_hints_are_imperatives_that_a_channel_may_replace():
    verbs = ("put", "set", "name", "check", "wait", "try", "open", "add")
    for cause in refusals._ROWS:
        for server in (PACKAGE_INDEX, CONDA_CHANNEL):
            hint = refusals.explain_cause(cause, server=server).hint
            assert re.match(rf"(?:{'|'.join(verbs)}) ", hint), hint
    assert "pip" not in refusals.explain_status(403, server=CONDA_CHANNEL).hint
