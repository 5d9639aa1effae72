"""Compiles modules to bytecode.

The environment's own Python runs it with -I -S, so that no installed code runs. It reads [[source, compiled,
kept], ...] as JSON from stdin. Each source is compiled into the file `compiled`, and into the file `kept`
unless that is "". The two files share no data, so a change of one does not change the other. With the argument
`idle` the program takes only idle CPU time.

A source without possible bytecode (a template, a module for another Python) is skipped, as compileall does. So
is a source whose folder for bytecode is a file. The program prints why compiled files could not be kept. A full
disk ends it with 1 and the reason on stderr.

It writes the same bytes as py_compile of the standard library (PEP 552, by time and size of the source). It
skips other work that py_compile and compileall do for each file. For thousands of modules that is a twentieth
of the time.
"""

import contextlib
import importlib.util
import json
import marshal
import os
import struct
import sys
import warnings


AT_ONCE = 16  # jobs that a process takes at a time
WIDTH = 12  # of the number of the first of them in a pipe, in digits: a read takes one, whole


def compiled(source):
    """Return the bytecode file of a source, and its file mode. Return (None, 0) if there is none."""
    try:
        with open(source, "rb") as file:
            found, text = os.fstat(file.fileno()), file.read()
        code = compile(text, source, "exec", dont_inherit=True)
    except Exception:  # the compiler can raise any exception; the import of the module shows it
        return None, 0
    low = 0xFFFFFFFF
    head = struct.pack(
        "<4s3I", importlib.util.MAGIC_NUMBER, 0, int(found.st_mtime) & low, found.st_size & low
    )
    return head + marshal.dumps(code), found.st_mode & 0o666 | 0o200


def written(data, path, mode):
    """Write a file in one step, also over a link that others share. Remove the rest of a killed run."""
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


def one(job):
    """Compile one source. Return why it could not be kept, or ""."""
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
            written(data, kept, mode)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def stand_back():
    """Take only idle CPU time, as a process and as Linux's group of this session (sched(7))."""
    os.nice(19)
    with contextlib.suppress(OSError):  # a system without such groups
        with open("/proc/self/autogroup", "w") as file:
            file.write("19")


def work(jobs, numbers, parent):
    """Compile the jobs of each number that comes through a pipe. Return the exit code.

    It ends when the parent dies, because no other process knows it then.
    """
    why = ""
    try:
        while number := os.read(numbers, WIDTH):
            start = int(number)
            for job in jobs[start : start + AT_ONCE]:
                if os.getppid() != parent:
                    return 1
                why = one(job) or why
        os.write(1, f"{why}\n".encode() if why else b"")
    except OSError as error:
        os.write(2, f"{error}\n".encode())
        return 1
    return 0


def main():
    warnings.simplefilter("ignore")
    if sys.argv[1:] == ["idle"]:
        stand_back()
    jobs = json.load(sys.stdin)
    reading, writing = os.pipe()
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parent, workers = os.getpid(), []
    for _ in range(count):
        worker = os.fork()
        if not worker:
            try:
                os.close(writing)
                os._exit(work(jobs, reading, parent))
            except BaseException:  # must not continue with the parent's code
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        workers.append(worker)
    os.close(reading)
    with contextlib.suppress(BrokenPipeError):  # no worker is left, and each has reported why
        for start in range(0, len(jobs), AT_ONCE):
            os.write(writing, b"%*d" % (WIDTH, start))
    os.close(writing)
    sys.exit(any([os.waitpid(worker, 0)[1] for worker in workers]))


if __name__ == "__main__":
    main()
