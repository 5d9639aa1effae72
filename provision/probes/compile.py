"""Compiles modules; run by the environment's own Python with -I -S, so that nothing installed there is executed.

Reads [[source, compiled, kept], ...] as JSON from stdin: each source is compiled into the file `compiled`, which
gets a second name, `kept`, unless that is "". With the word `idle` all of it waits for whatever else there is to
do. A source that no bytecode can be made of (a template, a module for another Python), or for (a file stands where
its folder would be), is passed over, as compileall does. Prints why compiled files could not be kept, if so; a disk
that is full ends the program with 1 and the reason on stderr.

What is written is what the standard library's py_compile writes (PEP 552, by time and size of the source), without
what that and compileall do besides for each file, which for thousands of modules is a twentieth of the time.
"""

import concurrent.futures
import contextlib
import importlib.util
import json
import marshal
import multiprocessing
import os
import shutil
import struct
import sys
import warnings


def compiled(source):
    """The bytecode file of a source, with the mode that it has to get; (None, 0) where there is none."""
    try:
        with open(source, "rb") as file:
            found, text = os.fstat(file.fileno()), file.read()
        code = compile(text, source, "exec", dont_inherit=True)
    except Exception:  # what a text can raise in the compiler has no end: Python tells whoever imports it
        return None, 0
    low = 0xFFFFFFFF
    head = struct.pack(
        "<4s3I", importlib.util.MAGIC_NUMBER, 0, int(found.st_mtime) & low, found.st_size & low
    )
    return head + marshal.dumps(code), found.st_mode & 0o666 | 0o200


def written(data, path, mode):
    """A file appears whole, also in place of a link that others have. What a killed run left of it goes."""
    draft = path + ".new"
    try:
        number = opened(draft, mode)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        number = opened(draft, mode)
    except FileExistsError:
        os.unlink(draft)
        number = opened(draft, mode)
    try:
        with open(number, "wb") as file:
            file.write(data)
        os.replace(draft, path)
    except OSError:
        os.unlink(draft)
        raise


def opened(path, mode):
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)


def linked(path, name):
    """A second name, or on another disk a copy, which appears whole as well."""
    try:
        os.link(path, name)
    except OSError:
        os.makedirs(os.path.dirname(name), exist_ok=True)
        try:
            os.link(path, name)
        except OSError:
            shutil.copyfile(path, name + ".new")
            os.replace(name + ".new", name)


def one(job):
    """Compile one source; returns why it could not be kept, or ""."""
    source, path, kept = job
    data, mode = compiled(source)
    if data is None:
        return ""
    try:
        written(data, path, mode)
    except (FileExistsError, NotADirectoryError):
        return ""
    try:
        if kept:
            linked(path, kept)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def stand_back():
    """Take only time that nobody else wants: as a process, and as Linux's group of this session (sched(7))."""
    os.nice(19)
    with contextlib.suppress(OSError):  # a system without such groups
        with open("/proc/self/autogroup", "w") as file:
            file.write("19")


def main():
    warnings.simplefilter("ignore")
    if sys.argv[1:] == ["idle"]:
        stand_back()
    jobs = json.load(sys.stdin)
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    with concurrent.futures.ProcessPoolExecutor(count, context) as pool:
        try:
            told = list(pool.map(one, jobs, chunksize=16))
        except OSError as error:
            sys.exit(str(error))
    print(next(filter(None, told), ""))


if __name__ == "__main__":
    main()
