"""Imports modules one after another, and reports their errors. Their requirements come first."""

import importlib


def _chain(error):
    """Return the error and those that led to it, each once. The loader's message is often in the first one."""
    texts, seen = [], []
    while error is not None and error not in seen and len(texts) < 8:
        seen.append(error)
        text = "%s: %s" % (type(error).__name__, error)
        texts.append(text[:4000])
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


def _import(name):
    try:
        importlib.import_module(name)
    except (Exception, SystemExit) as refused:
        return _chain(refused)
    return None


def import_modules():
    for name in ASKED["first"]:
        begin("packages", "importing " + name)
        _import(name)
    for name in ASKED["modules"]:
        begin("packages", "importing " + name)
        tell("imported", module=name, error=_import(name))


import_modules()
finish()
