"""The sentences of gpuenv, in one file a command: tests/golden/NAME.txt. `make golden` renews them and shows the diff."""

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "golden"
_HEAD = re.compile(r"^=== (.+)\n", re.MULTILINE)


class Golden:
    """What a test says, against its section of a file. With `renew` the section is written."""

    def __init__(self, name: str, *, renew: bool) -> None:
        self._test, self._renew = name, renew

    def __call__(self, command: str, text: str, replaced: dict[str, str] | None = None) -> None:
        """Compare a text. `replaced` names what differs from run to run, such as folders and ports."""
        for changing, word in sorted((replaced or {}).items(), key=lambda pair: -len(pair[0])):
            text = text.replace(changing, word)
        text = "\n".join(line.rstrip() for line in text.strip().splitlines())
        path = FOLDER / f"{command}.txt"
        parts = _HEAD.split(path.read_text(encoding="utf-8"))[1:] if path.exists() else []
        known = {name: part.strip() for name, part in zip(parts[::2], parts[1::2], strict=True)}
        if self._renew:
            known[self._test] = text
            FOLDER.mkdir(exist_ok=True)
            path.write_text(
                "\n\n".join(f"=== {name}\n{known[name]}" for name in sorted(known)) + "\n", encoding="utf-8"
            )
        assert text == known.get(self._test), f"tests/golden/{command}.txt says otherwise; see `make golden`"
