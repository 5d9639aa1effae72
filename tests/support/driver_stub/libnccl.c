/* libnccl.so.2 with NCCL's ABI (nccl.h): ranks on one host, which pass their numbers through files.
 * "Device memory" is the host's, as in libcudart.c. */
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spec.h"

typedef struct { char internal[128]; } ncclUniqueId;
struct ncclComm { char folder[128]; int count, rank, sums; };


EXPORT const char *ncclGetErrorString(int code)
{
    return code == 2 ? "unhandled system error" : code ? "internal error" : "no error";
}

EXPORT int ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "%s/nccl-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(id->internal) ? 0 : 2;
}

EXPORT int ncclCommInitRank(struct ncclComm **comm, int count, ncclUniqueId id, int rank)
{
    if (spec_read()->nccl_hangs && !getenv("NCCL_P2P_DISABLE"))
        pause();
    if (getenv("NCCL_SOCKET_IFNAME")) {
        fprintf(stderr, "NCCL WARN Bootstrap : no socket interface found\n");
        return 2;
    }
    if (getenv("NCCL_NET"))
        return 5;
    *comm = calloc(1, sizeof **comm);
    snprintf((*comm)->folder, sizeof (*comm)->folder, "%s", id.internal);
    (*comm)->count = count, (*comm)->rank = rank;
    return 0;
}

EXPORT int ncclGroupStart(void) { return 0; }
EXPORT int ncclGroupEnd(void) { return 0; }

static void name(char *path, struct ncclComm *comm, const char *what, int from, int to)
{
    snprintf(path, 256, "%s/%s-%d-%d", comm->folder, what, from, to);
}

static int put(struct ncclComm *comm, const char *what, int to, const void *data, size_t bytes)
{
    char path[256], part[264];
    name(path, comm, what, comm->rank, to);
    snprintf(part, sizeof part, "%s.part", path);
    int file = open(part, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int wrong = file < 0 || write(file, data, bytes) != (ssize_t)bytes;
    close(file);
    return wrong || rename(part, path) ? 2 : 0;
}

static int get(struct ncclComm *comm, const char *what, int from, int to, void *data, size_t bytes)
{
    char path[256];
    int file;
    name(path, comm, what, from, to);
    while ((file = open(path, O_RDONLY)) < 0)
        usleep(1000);
    int wrong = read(file, data, bytes) != (ssize_t)bytes;
    close(file);
    return wrong ? 2 : 0;
}

EXPORT int ncclSend(const void *data, size_t count, int type, int peer, struct ncclComm *comm, void *stream)
{
    (void)type, (void)stream;
    return put(comm, "sent", peer, data, count * sizeof(float));
}

EXPORT int ncclRecv(void *data, size_t count, int type, int peer, struct ncclComm *comm, void *stream)
{
    (void)type, (void)stream;
    return get(comm, "sent", peer, comm->rank, data, count * sizeof(float));
}

EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, struct ncclComm *comm, void *stream)
{
    float *sum = to, *other = malloc(count * sizeof(float));
    int code = put(comm, "all", 0, from, count * sizeof(float));
    (void)type, (void)op, (void)stream;
    memset(sum, 0, count * sizeof(float));
    for (int rank = 0; rank < comm->count && !code; rank++) {
        code = get(comm, "all", rank, 0, other, count * sizeof(float));
        for (size_t i = 0; i < count; i++)
            sum[i] += other[i];
    }
    sum[0] += (float)spec_read()->nccl_wrong;
    free(other);
    return code;
}
