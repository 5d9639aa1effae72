"""Removes secrets from every text that gpuenv writes or shows: `clean` is the one door for texts from outside.

A secret is found by its structure: the user of an address, an assignment to a name like TOKEN or DB_PASS, a header,
an option, a line of netrc, a known form of token, a private key, or a long random word. The values of this process's own
variables with such names are secret wherever they stand. Digests, paths, versions, file names and UUIDs are evidence
and stay. References to variables (`${TOKEN}`) are not secret either.
Every function takes linear time, because the texts are untrusted.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from . import grants, process

STARS = "***"
_LEAST = 8
"""The least characters of a variable's value that is searched for."""
# Patterns are texts, which `re` compiles and keeps when a text needs them: most runs write texts that need few.
_CONTROL = (
    r"\x1b\[[0-9;?]{0,32}[ -/]{0,4}[@-~]|\x1b[\]PX^_][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    r"|[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]"  # invisible, or they turn what is shown around
)


class Secret(NamedTuple):
    """A secret in a text, [start, end), and the range to remove with it, [first, last).

    Where the two are the same, `***` takes the secret's place.
    """

    start: int
    end: int
    first: int
    last: int


def clean(text: str, most: int | None = None) -> str:
    """Return a text from outside without secrets and control characters, cut to `most` characters.

    Tabs and line ends stay. Texts are cut here only, because a secret that was cut cannot be recognized.
    """
    return redact_text(remove_controls(text))[:most]


def remove_controls(text: str) -> str:
    """Return a text without terminal escapes, control characters, and marks that turn what is shown around."""
    return text if text.isprintable() else re.sub(_CONTROL, "", text)


def clean_line(text: str, most: int) -> str:
    """Return a text from outside as one line of at most `most` characters, for a message."""
    line = " ".join("".join(c if c.isprintable() else " " for c in clean(text)).split())
    return line if len(line) <= most else line[: most - 3].rstrip() + "..."


def redact_text(text: str) -> str:
    """Return a text without secrets. Control characters stay, which a JSON document escapes."""
    return _redact(text, _own_values())


def _redact(text: str, own: re.Pattern[str] | None) -> str:
    text = grants.restore(text)
    return _replace(text, _secrets(text, own))


def redact_addresses(text: str) -> str:
    """Return a file that is copied, such as a lock, without the credentials of its addresses."""
    text = grants.restore(text)
    return _replace(text, _find_addresses(text))


def redact(url: str) -> str:
    """Return one address without credentials, for the screen, a lock or a report."""
    url = grants.restore(url)
    if "://" not in url:
        return url.partition("?")[0] if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", url) else url
    return _replace(url, _find_in_word(url, 0, exact=True))


def redact_value(value: Any) -> Any:
    """Return a JSON value with all of its texts redacted, and a text whose key is the name of a secret."""
    own = _own_values()  # read once: a lock has thousands of texts

    def redacted(value: Any) -> Any:
        if isinstance(value, str):
            return _redact(value, own)
        if isinstance(value, dict):
            return {
                _redact(k, own) if isinstance(k, str) else k: _redact_variable(k, v, own)
                if isinstance(k, str) and isinstance(v, str) else redacted(v)
                for k, v in value.items()
            }  # fmt: skip
        if isinstance(value, (list, tuple)):
            return [redacted(v) for v in value]
        return value

    return redacted(value)


def redact_variable(name: str, value: str) -> str:
    """Return the value of a variable or a key: `***` if its name is that of a secret."""
    return _redact_variable(name, value, _own_values())


def _redact_variable(name: str, value: str, own: re.Pattern[str] | None) -> str:
    hides = _weigh(name) and _is_secret(value) and (name != "pass" or _looks_random(value))
    return STARS if hides else _redact(value, own)


def find_secrets(text: str) -> list[Secret]:
    """Return the secrets of a text, in order. None overlaps another."""
    return _secrets(text, _own_values())


def _secrets(text: str, own: re.Pattern[str] | None) -> list[Secret]:
    """Find the secrets of a text. `own` matches the values of this process's own variables."""
    of_own = (_make(*match.span()) for match in own.finditer(text)) if own else ()
    found = sorted(
        itertools.chain(
            _find_addresses(text), of_own, _find_assigned(text), _find_labelled(text), _find_forms(text)
        ),
        key=lambda secret: (secret.first, -secret.last),
    )
    apart: list[Secret] = []
    for secret in found:
        reached = apart[-1].last if apart else 0
        if secret.first >= reached:
            apart.append(secret)
        elif secret.last > reached:  # the rest of a secret that begins in another one
            apart.append(_make(reached, secret.last))
    return apart


def _make(start: int, end: int) -> Secret:
    return Secret(start, end, start, end)


def _replace(text: str, secrets: Iterable[Secret]) -> str:
    pieces, reached = [], 0
    for secret in secrets:
        hidden = (secret.start, secret.end) == (secret.first, secret.last)
        pieces += [text[reached : secret.first], STARS if hidden else ""]
        reached = secret.last
    return "".join([*pieces, text[reached:]])


def mask_secrets(data: bytes) -> bytes:
    """Return bytes with `*` in place of each byte of a secret. A part of them can be cut out without a part of a secret."""
    masked = bytearray(data)
    for secret in find_secrets(data.decode("latin-1")):  # one character for each byte
        masked[secret.start : secret.end] = b"*" * (secret.end - secret.start)
    return bytes(masked)


def hide_credentials() -> None:
    """Overwrite the credentials of addresses on this process's command line, which every user can read.

    sys.argv does not change.
    """
    if sys.platform != "linux" or not any("://" in word for word in sys.orig_argv):
        return
    import ctypes

    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    start, end = (
        int(fields[45]),
        int(fields[46]),
    )  # arg_start and arg_end (proc(5)), or 0 if hidden
    if 0 < start < end:
        ctypes.memmove(start, mask_secrets(ctypes.string_at(start, end - start)), end - start)


# --- addresses ---------------------------------------------------------------------------------

_REFERENCES = r"(?:\$\{[A-Z0-9_]+\})+"
_END_OF_QUERY = {True: "#", False: r"[\"'`<>#]"}
_END_OF_AUTHORITY = r"[/?#]"
_CHANNEL = r"/t/([^/?#]+)(?=/|$)(?!/\d+(?![\w-]))"  # but not /t/TITLE/NUMBER of a forum
_PLACEHOLDERS = ("USER", "USER:PASSWORD")
_LONGEST_PASSWORD = 1000
"""The most characters to search for the `@` after a password with a slash."""
_LONGEST_HOST = 255
"""The most characters of a host and its port (RFC 1035): more before a cut are a user."""


def _find_addresses(text: str) -> Iterator[Secret]:
    if "://" in text:
        for word in re.finditer(r"[^\s\0]+", text):
            if "://" in word[0]:
                yield from _find_in_word(word[0], word.start(), exact=False)


def _find_in_word(word: str, offset: int, *, exact: bool) -> Iterator[Secret]:
    """Find the secrets of a word's addresses; an `exact` word is one address and nothing else."""
    at = word.find("://")
    while at >= 0:
        begin = at + len("://")
        following = -1 if exact else word.find("://", begin)
        end = len(word) if following < 0 else following
        scheme = _read_scheme(word, at)
        login, authority_end = _find_user(word, begin, end, scheme)
        path_end, query = _find_query(word, authority_end, end, exact=exact)
        token = _find_token(word, authority_end, path_end) if scheme != "file" else None
        for secret in (login, token, query):
            if secret:
                yield Secret(*(n + offset for n in (secret.start, secret.end, secret.first, secret.last)))
        at = -1 if exact else word.find("://", max(path_end, query.end if query else 0))


def _read_scheme(word: str, at: int) -> str:
    start = at
    while start and re.match("[A-Za-z0-9+.-]", word[start - 1]):
        start -= 1
    return word[start:at].lower()


def _find_user(word: str, begin: int, end: int, scheme: str) -> tuple[Secret | None, int]:
    """Find user and password, and where the host ends."""
    close = re.compile(_END_OF_AUTHORITY).search(word, begin, end)
    authority_end = close.start() if close else end
    at = word.rfind("@", begin, authority_end)
    authority = word[begin:authority_end]
    if at < 0 and ":" in authority and "[" not in authority and not re.search(r":\d*$", authority):
        # No port follows the colon, so the password has a slash, a question mark or a number sign.
        at = word.rfind("@", begin, min(end, begin + _LONGEST_PASSWORD))
        if at >= 0:
            close = re.compile(_END_OF_AUTHORITY).search(word, at, end)
            authority_end = close.start() if close else end
    if at < 0 and authority_end - begin > _LONGEST_HOST:
        return _make(begin, authority_end), authority_end
    if at < 0:
        return None, authority_end
    public = _get_public(word[begin:at], scheme)
    if public == word[begin:at]:
        return None, authority_end
    start = begin + len(public)
    if public:
        return Secret(start + 1, at, start, at), authority_end
    return Secret(start, at, start, at + 1), authority_end


def _get_public(user: str, scheme: str) -> str:
    """Return the public part of `user:password`."""
    name, colon, password = user.partition(":")
    if user in _PLACEHOLDERS or re.fullmatch(_REFERENCES, password if colon else name):
        return user
    return name if scheme.endswith("ssh") else ""


def _find_token(word: str, begin: int, end: int) -> Secret | None:
    token = re.compile(_CHANNEL).search(word, begin, end)
    return Secret(token.start(1), token.end(1), token.start(), token.end()) if token else None


def _find_query(word: str, begin: int, end: int, *, exact: bool) -> tuple[int, Secret | None]:
    """Find where a path ends, and the query behind it. A query may hold another address."""
    pattern = re.compile(_END_OF_QUERY[exact])
    stop = pattern.search(word, begin, end)
    mark = word.find("?", begin, stop.start() if stop else end)
    if mark < 0:
        return (stop.start() if stop else end), None
    stop = pattern.search(word, mark)
    close = stop.start() if stop else len(word)
    if not exact and not stop:
        close = max(mark + 1, len(word.rstrip(")].,:;")))
    pairs = word[mark + 1 : close].split("&")
    if pairs == [""] or all(re.fullmatch(_REFERENCES, pair.partition("=")[2]) for pair in pairs):
        return mark, None
    return mark, Secret(mark + 1, close, mark, close)


# --- names of secrets --------------------------------------------------------------------------

_PARTS = r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+"
_ALWAYS = ("password", "passwd", "passphrase", "secret", "secrets", "credential", "credentials", "apikey")
_LAST = ("pass", "pwd", "pw", "key", "token", "auth", "authorization", "cookie", "sshpass", "accesskey")
_ABOUT = (
    r"files?|path|dir|folder|sock(et)?|ur[li]|host|type|name|ids?|count|len(gth)?|limit|size|errors?|exception|endpoint|provider|"
    r"method|mode|required|enabled|map|list|index|usage|py|class|manager|store|version"
)
"""Last parts of names that are about a secret, and have none: `TOKEN_FILE`, `secret_name`."""
_OTHER = (
    r"pad|eos|bos|unk|cls|sep|mask|image|video|audio|special|next|stop|start|end|num|per|max|min|first|last|new|second|single|two|"
    r"unexpected|invalid|missing|generated|prompt|public|primary|foreign|cache|sort|partition|group|unique|dict|config|state|"
    r"map|row|lookup|hash|index|column|host|error|registry|forward|backward|by|query|attention|padding|optimization"
)
"""Parts that make another thing of the last one: `eos_token`, `cache_key`, `forward_pass`."""
_PUBLIC = (
    r"(?s:\*+|\$[A-Z_][A-Z0-9_]*|\$\{\{?[^{}=]*\}\}?|\$\([^()=]*\)?|<[^<>=]*>|\{[^{}=]*\}|%\w+%|%[sdr]|\.{3}|-?\d{1,6}|VALUE|TOKEN|PASSWORD|KEY|"
    r"forward|grad_input|grad_weight|[A-Za-z][A-Za-z0-9+.-]{0,20}://.*|(?:self|os|args|cfg|config|settings|kwargs|environ)[.\[(].*|get\w*\(.*|"
    r"(?:~|\.{1,2}|/(?:home|root|usr|etc|run|var|tmp|opt|mnt|srv|data|dev|proc|Users|workspace))/[\w./~+@-]*|"
    r"(?i:true|false|none|null|yes|no|on|off|nil|required|missing|set|unset|not|is|was|and|or|str|int|bool|bytes|any|string))"
)
"""Values that are no secret: references, placeholders, passes of a convolution, switches, small numbers, paths. Addresses have rules of their own."""


@functools.lru_cache(maxsize=4096)
def _weigh(name: str) -> int:
    """Return 2 if a name is that of a secret, 1 if it is one word that may be (`token`), and 0 otherwise."""
    parts = [part.lower().rstrip("0123456789") for part in re.split(_PARTS, name)]
    *before, last = ("", *filter(None, parts))
    if last in ("value", "base", "ro", "rw", "prod", "dev") and before[1:]:  # SECRET_KEY_BASE
        last = before.pop()
    always = any(part.endswith(_ALWAYS) for part in (*before, last))
    if not (always or last in _LAST or last.endswith("token")) or re.fullmatch(_ABOUT, last):
        return 0
    if always:
        return 2
    if re.fullmatch(_OTHER, before[-1]):
        return 0
    if before[-1] or last in ("sshpass", "accesskey", "authorization"):
        return 2
    return last != "key" or name.isupper()


def _is_secret(value: str) -> bool:
    return bool(value) and not re.fullmatch(_PUBLIC, value)


def _looks_random(value: str) -> bool:
    """Return whether a word is no word of a sentence: it mixes letters with digits, or is long."""
    return len(value) >= 20 or (
        len(value) >= 6 and value.upper() != value.lower() and bool(re.search(r"\d", value))
    )


@functools.lru_cache(maxsize=8)
def _read_own(variables: frozenset[tuple[str, str]]) -> re.Pattern[str] | None:
    values = {
        value
        for name, value in variables
        if len(value) >= _LEAST and _weigh(name) and _is_secret(value) and not os.path.exists(value)  # noqa: PTH110  # Path raises for a long one
    }
    forms = sorted(
        {form for value in values for form in (value, quote(value, safe=""))}, key=len, reverse=True
    )
    return re.compile("|".join(map(re.escape, forms))) if forms else None


def _own_values() -> re.Pattern[str] | None:
    """Return a pattern for the values of this process's own variables whose names are those of secrets."""
    return _read_own(frozenset(process.environ().items()))


# --- assignments, options, headers, netrc ------------------------------------------------------

_ASSIGNMENT = r"(?<![\w/-])([\w-]{1,100})(\\?[\"']?[ \t]{0,20}(?::=|=>|=(?!=)|:(?![:/\\]))[ \t]{0,20})"
_OPTION = r"(?<![\w-])(--[A-Za-z][\w-]{0,60})(?:[\"'],)?[ \t\0]{1,20}(?=[^\s-])"
_USER = r"(?<![\w-])(?:-u|--(?:proxy-)?user)(?:[\"'],)?[ \t\0=]{0,20}(?=[^\s=)-])"
_NETRC = (
    r"(?im)(?<![\w-])(?:machine[ \t]{1,20}\S{1,300}\s{1,20})?login[ \t]{1,20}(\S{1,300})(?<![,.;:])\s{1,20}(?:password|passwd)[ \t]{1,20}(\S{1,300})|"
    r"(?<![\w-])machine[ \t]{1,20}\S{1,300}[ \t]{1,20}login[ \t]{1,20}(\S{1,300})|"
    r"^[ \t]{0,20}(?:login|password|passwd)[ \t]{1,20}(\S{1,300})[ \t]{0,20}$"
)
_SAID = r"(?i)(?<![\w-])(?:password|passwd|passphrase)[ \t]{1,20}(?:(?:is|was)[ \t]{1,20})?(?=[\w\"'])"
_HEADER = r"(?i)-*(?:proxy-)?authorization|(?:set-)?cookie2?"
_QUOTED = r"(\\?[\"'])((?:(?!\1)(?:\\[^\n]|[^\\\n]))*)"
_BARE = r"(?:[^\s\0\"'`]|[\"'`](?![\s\0,:;)\]}>]|\Z))+"
_AFTER_VALUE = ")]},.;:\"'`>"
_OPENING = {")": "(", "]": "[", "}": "{", ">": "<"}
_SAMPLE = 200
"""Characters of a value that show whether it is secret."""


def _find_assigned(text: str) -> Iterator[Secret]:
    values, reached = _Values(text), 0
    for match in re.finditer(_ASSIGNMENT, text):
        name, sign = match[1], match[2]
        if match.start() < reached or not (weight := _weigh(name)):
            continue
        start, end = values.read(match.end())
        is_colon, is_key = ":" in sign and "=" not in sign, sign[0] in "\\\"'"
        if re.fullmatch(_HEADER, name) and not is_key:
            start, end = match.end(), values.end_of_line(match.end())
            mark = text[match.start() - 1 : match.start()]  # the quote of `-H 'Cookie: ...'`
            close = text.find(mark, start, end) if mark in ("'", '"') else -1
            end = end if close < 0 else close
        elif weight == 1 and is_colon and (name == "pass" or not is_key):
            if name == "PASS" or not _looks_random(values.sample(start, end)):
                continue  # a word of a sentence
        elif is_colon and start == match.end() and _begins_line(text, match.start()):  # YAML
            end = start + len(text[start : values.end_of_line(start)].partition(" #")[0].rstrip())
        value = values.sample(start, end)
        if _is_secret(value) and value.lower() != name.lower():
            reached = end
            yield _make(start, end)


def _find_labelled(text: str) -> Iterator[Secret]:
    """Find what an option, a line of netrc or a sentence says."""
    values, lower = _Values(text), text.lower()
    for match in re.finditer(_OPTION, text) if "--" in text else ():
        if _weigh(match[1]):
            start, end = values.read(match.end())
            if _is_secret(values.sample(start, end)):
                yield _make(start, end)
    for match in re.finditer(_USER, text) if "-u" in text else ():
        start, end = values.read(match.end())
        user, _, password = values.sample(start, end).partition(":")
        if password and user != password and not password.isdigit() and not user.startswith("$"):
            yield _make(start, end)
    for match in re.finditer(_NETRC, text) if "login" in lower or "passw" in lower else ():
        yield from (_make(*match.span(i)) for i in range(1, 5) if match[i] and _is_secret(match[i]))
    for match in re.finditer(_SAID, text) if "pass" in lower else ():
        start, end = values.read(match.end())
        if _looks_random(values.sample(start, end)):
            yield _make(start, end)


@dataclass
class _Values:
    """Finds the ends of values. It keeps the end of the last word and line: a long one may hold thousands of names."""

    text: str
    word: tuple[int, int] = (0, -1)
    line: tuple[int, int] = (0, -1)

    def read(self, at: int) -> tuple[int, int]:
        """Return where a value starts and ends: all of a quoted one, or a word."""
        if quoted := re.compile(_QUOTED).match(self.text, at):
            return quoted.span(2)
        if not self.word[0] <= at < self.word[1]:
            bare = re.compile(_BARE).match(self.text, at)
            self.word = (at, bare.end() if bare else at)
        end = self.word[1]
        while end > max(at + 1, self.word[1] - 8) and (last := self.text[end - 1]) in _AFTER_VALUE:
            if last in _OPENING and self.text.find(_OPENING[last], at, min(end, at + _SAMPLE)) >= 0:
                break  # ${NAME}
            end -= 1
        return at, end

    def sample(self, start: int, end: int) -> str:
        return self.text[start : min(end, start + _SAMPLE)]

    def end_of_line(self, at: int) -> int:
        if not self.line[0] <= at <= self.line[1]:
            end = self.text.find("\n", at)
            self.line = (at, len(self.text) if end < 0 else end)
        return self.line[1]


def _begins_line(text: str, at: int) -> bool:
    before = text[max(0, at - 40) : at]
    return not before.rpartition("\n")[2].strip(" \t-") and (at <= 40 or "\n" in before)


# --- words that are secret by themselves -------------------------------------------------------

_PEM = r"(?s)-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z ]{0,60}-----|\Z)"
_BEARER = r"(?i)(?<![\w-])(?:bearer|basic)[ \t]{1,20}(?=\S{0,300}\d)([A-Za-z0-9+/=._~-]{8,})"
_FORMS = {
    "gh": r"gh[pousr]_\w{16,}",
    "github_pat_": r"github_pat_\w{16,}",
    "glpat-": r"glpat-[\w-]{10,}",
    "hf_": r"hf_\w{16,}",
    "pypi-": r"pypi-[\w-]{16,}",
    "npm_": r"npm_\w{16,}",
    "sk-": r"sk-(?=[\w-]{0,60}\d)[\w-]{16,}",
    "xox": r"xox[abeprs]-[\w-]{8,}",
    "IA": r"A[KS]IA[0-9A-Z]{12,}",
    "eyJ": r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]+\.[\w-]*",
    "nvapi-": r"nvapi-[\w-]{16,}",
    "wandb_": r"wandb_\w{16,}",
    "dckr_pat_": r"dckr_pat_[\w-]{8,}",
    "AIza": r"AIza[\w-]{30,}",
    "SG.": r"SG\.[\w-]{16,}\.[\w-]{16,}",
}
"""The forms of tokens, by a part of each."""
_RANDOM = r"(?<![\w/.+@%~-])(?:[A-Za-z0-9_-]{32,}|[A-Za-z0-9+/]{32,})={0,2}(?![\w/+-]|\.\w)"
_DIGEST = r"(?i)(?:sha\d{1,3}|md5|blake2b?|digest|integrity)[=:\- ]\Z"
_LOGIN = (
    r"(?<![\w/@.+%:-])(?!(?i:sha\d+|mailto|pkg|from|to|cc|by|e?-?mail|author|contact|maintainer|\d+):)[\w.+%-]{1,64}:(?!//)"
    r"([^\s@\"'`<>()]{1,128})@([A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,9})(:\d{2,5}(?!\w))?"
)
_HOST = r"localhost|.*\.[a-z]{2,}|(?:\d{1,3}\.){3}\d{1,3}"


def _find_forms(text: str) -> Iterator[Secret]:
    lower = text.lower()
    for match in re.finditer(_PEM, text) if "-----BEGIN" in text else ():
        yield _make(*match.span())
    for part, form in _FORMS.items():
        if part in text:
            yield from (_make(*match.span()) for match in re.finditer(rf"(?<![A-Za-z0-9]){form}", text))
    if "bearer" in lower or "basic" in lower:
        yield from (_make(*match.span(1)) for match in re.finditer(_BEARER, text))
    for match in re.finditer(_LOGIN, text) if "@" in text else ():
        if (match[3] or re.fullmatch(_HOST, match[2])) and _is_secret(match[1]):
            yield _make(*match.span(1))
    for match in re.finditer(_RANDOM, text):
        if _is_random(match[0]) and not re.compile(_DIGEST).search(
            text, max(0, match.start() - 12), match.start()
        ):
            yield _make(*match.span())


_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"


def _is_random(word: str) -> bool:
    """Return whether a long word looks like a key of base64.

    A random key changes between lower case, upper case and digits at 0.62 of its steps. The name of a function or a
    folder changes only at each new word. A hexadecimal number has only two of the three.
    """
    if re.search(_UUID, word):  # of a GPU: evidence
        return False
    kinds = ["u" if c.isupper() else "l" if c.islower() else "d" for c in word if c.isalnum()]
    steps = sum(a != b for a, b in itertools.pairwise(kinds))
    is_aws = len(word) == 40 and not re.search("[_-]", word)
    return (
        len(set(kinds)) == 3 and not word.startswith("_Z") and steps > (0.3 if is_aws else 0.4) * len(kinds)
    )
