"""Folders of files and programs for tests of detect."""

from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "detect"


def tree(root, files):
    for path, text in files.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path
