"""A program that runs another one under a kernel that answers some system calls itself: a file system without hard
links (`link=EPERM`), and one that locks on its own host only (`flock=0`), cannot be mounted on every machine."""

import errno
import platform
import subprocess

SOURCE = r"""
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* filtered NUMBER ERRNO [NUMBER ERRNO...] -- PROGRAM [ARGUMENT...] */
int main(int argc, char **argv) {
    struct sock_filter rules[64] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    unsigned short used = 1;
    int i = 1;
    for (; i + 1 < argc && strcmp(argv[i], "--"); i += 2) {
        rules[used++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, atoi(argv[i]), 0, 1);
        rules[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | atoi(argv[i + 1]));
    }
    rules[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {used, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("prctl");
        return 125;
    }
    execvp(argv[i + 1], argv + i + 1);
    perror(argv[i + 1]);
    return 126;
}
"""
_NUMBERS = {
    "x86_64": {"flock": (73,), "link": (86, 265)},
    "aarch64": {"flock": (32,), "link": (37,)},
}
"""The system calls by the machine's numbers (syscalls(2)); `link` is link and linkat."""


def build(folder):
    """Compile the program; the path of it."""
    (folder / "filtered.c").write_text(SOURCE)
    subprocess.run(
        ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", folder / "filtered.c", "-o", folder / "filtered"],
        check=True,
    )
    return folder / "filtered"


def command(program, **answers):
    """The words before a command that give `answers`: an errno's name, or 0 for a call that does nothing and succeeds."""
    words = [str(program)]
    for call, answer in answers.items():
        for number in _NUMBERS[platform.machine()][call]:
            words += [str(number), str(getattr(errno, answer) if answer else 0)]
    return [*words, "--"]
