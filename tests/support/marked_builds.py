"""Packages whose build code leaves a mark when it runs."""

import os

import project_packages

_FAILS = """
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    raise RuntimeError("no metadata here")
"""


class Marks:
    """Packages whose build code leaves a mark: `dynamic` ones state no requirements in files.

    With `home`, that of the run, their archives have the same bytes in every run of a test, for recorded answers of uv.
    """

    def __init__(self, folder, home=None):
        self.folder, self._home = folder, home

    def _place(self, name):
        """Where the mark is, as Python."""
        path = self.folder / f"mark-{name}"
        if self._home is None:
            return repr(str(path))
        return f"__import__('os').path.expanduser({'~/' + os.path.relpath(path, self._home)!r})"

    def _code(self, path, name, dynamic, requires):
        project_packages.folder(path, name, "1.0", requires)
        if dynamic:
            stated = str(list(requires)).replace("'", '"')
            text = (path / "pyproject.toml").read_text()
            assert f"dependencies = {stated}" in text
            text = text.replace(f"dependencies = {stated}", 'dynamic = ["dependencies"]')
            (path / "pyproject.toml").write_text(text)
        with (path / "backend.py").open("a") as file:
            file.write(f"\nopen({self._place(name)}, 'w').close()\n")
        return path

    def project(self, name, *, dynamic=True, requires=()):
        return self._code(self.folder / name, name, dynamic, requires)

    def commit(self, name):
        """A git address of a dynamic package."""
        path = self._code(self.folder / name, name, True, ())
        return f"git+file://{project_packages.committed(path)}"

    def archive(self, index, name):
        """A package of the index that has no wheel."""
        path = self._code(self.folder / f"{name}-1.0", name, True, ())
        file, data = project_packages.packed(path, name, "1.0")
        index.wheels[name] = {file: data}

    def stated(self, index, name, version, stated, built=None, *, fails=False, **kinds):
        """A package of the index that has no wheel, whose PKG-INFO states requirements; a build gives `built`.

        With `fails` its wheel can be built, but not its metadata alone.
        """
        folder = self.folder / f"{name}-{version}-{len(list(self.folder.iterdir()))}"
        path = self._code(folder, name, True, stated if built is None else built)
        text = project_packages.about(name, version, *stated, **kinds)
        backend = (path / "backend.py").read_text().replace("'1.0'", repr(version), 1)
        backend += _FAILS if fails else ""
        pyproject = (path / "pyproject.toml").read_text().replace('"1.0"', f'"{version}"')
        files = {
            "PKG-INFO": text,
            "pyproject.toml": pyproject,
            "backend.py": backend,
            f"{name}/__init__.py": "",
        }
        file, data = project_packages.sdist(name, version, files)
        index.wheels.setdefault(name, {})[file] = data

    def left(self):
        return sorted(p.name.removeprefix("mark-") for p in self.folder.glob("mark-*"))
