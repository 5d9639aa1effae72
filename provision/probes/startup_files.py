"""Finds startup files of Python that change a framework's variables, or import a framework.

It runs with -S, and starts `site` itself. Then .pth files, sitecustomize and usercustomize run, while an audit
hook watches os.putenv, os.unsetenv and imports.
"""

import site


def _place(frame):
    """Return the innermost file and line outside the standard library's import system and os.

    Also return the line of the .pth file that led there.
    """
    file, line, pth = None, None, None
    while frame is not None:
        code = frame.f_code
        name = code.co_filename
        if code.co_name == "addpackage" and "fullname" in frame.f_locals:
            pth = [frame.f_locals["fullname"], _number(frame.f_locals)]
        elif (
            file is None
            and name.endswith(".py")
            and not name.endswith(("/os.py", "/site.py", "/_collections_abc.py"))
        ):
            file, line = name, frame.f_lineno
        frame = frame.f_back
    if file is None and pth is not None:
        file, line = pth
        pth = None
    return file, line, pth


def _number(names):
    """Return the number of the line of a .pth file, from 1. Releases of Python count from 0 or from 1."""
    number, line = names.get("n", 0), names.get("line", "").strip()
    with open(names["fullname"], encoding="utf-8", errors="replace") as stream:
        rows = stream.read().splitlines()
    for at in (number - 1, number):
        if 0 <= at < len(rows) and rows[at].strip() == line:
            return at + 1
    return number


def _watch(event, args):
    if event in ("os.putenv", "os.unsetenv") and os.fsdecode(args[0]) in ASKED["variables"]:
        _tell(*map(os.fsdecode, args))
    elif event == "import" and args[0] in ASKED["frameworks"]:
        _tell("import", args[0])


def _tell(what, value=None):
    file, line, pth = _place(sys._getframe(2))
    if file is not None and "importlib" not in file:
        tell("startup", what=what, value=value, file=file, line=line, pth=pth)


sys.addaudithook(_watch)
site.main()
finish()
