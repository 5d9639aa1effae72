/* What the stubs answer: a small text file named by GPUENV_STUB, one "key value" per line.
 *
 *   driver 580.159.04        version that NVML tells
 *   cuda 13000               number that cuDriverGetVersion and NVML tell
 *   nvml_init 18             what nvmlInit returns (nvmlReturn_t; 0 when absent)
 *   nvml_sleep 60            seconds that nvmlInit takes
 *   cu_init 803              what cuInit returns (CUresult; 0 when absent)
 *   cu_version 34            what cuDriverGetVersion returns (0 when absent)
 *   cu_init_sleep 60         seconds that cuInit takes
 *   cu_init_signal 11        a signal that cuInit dies of
 *   cuda_error 46            what everything that needs a context returns
 *   cudart 12080             number that cudaRuntimeGetVersion tells
 *   cudnn 91400              number that cudnnGetVersion tells
 *   cudnn_create 1001        what cudnnCreate returns
 *   cudnn_wrong 1            the convolution's first number is wrong
 *   peer_wrong 1             a copy between GPUs loses its first byte
 *   nccl_hangs 1             NCCL never answers unless NCCL_P2P_DISABLE is set
 *   nccl_wrong 1             NCCL's sums are off by one
 *   gpu name=NVIDIA H200|cc=9.0|memory_mib=143771|free_mib=143000|uuid=GPU-...|mig=MIG-...,MIG-...|handle_error=4|mode=3|holder=4711|throttled=64|lanes=8|remap=1|memory_error=999
 *
 * One gpu line per board, in PCI order. handle_error is what NVML returns for its handle; libcuda
 * does not show such a board. cuda_bytes is the memory that libcuda tells, which is somewhat less than
 * NVML's (as much as NVML's when absent), mode the compute mode (0 default, 3 exclusive process), holder
 * the process that holds all memory that is not free, throttled the bits of NVML's reasons, lanes the width
 * of its PCIe link (of 16), remap whether rows wait for a reset, memory_error
 * what cuDeviceTotalMem returns (-1: it hangs). Without GPUENV_STUB there is a driver without GPUs.
 */
#ifndef GPUENV_STUB_SPEC_H
#define GPUENV_STUB_SPEC_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_GPUS 16
#define MAX_MIG 8

struct stub_gpu {
    char name[96];
    int major, minor;
    unsigned long long memory_mib, free_mib, cuda_bytes;
    char uuid[96];
    int mig_count;
    char mig[MAX_MIG][96];
    int handle_error, mode, holder, throttled, lanes, remap, memory_error;
};

struct stub_spec {
    char driver[80];
    int cuda, cudart, nvml_init, nvml_sleep, cu_init, cu_version, cu_init_sleep, cu_init_signal, cuda_error;
    int cudnn, cudnn_create, cudnn_wrong;
    int peer_wrong, nccl_hangs, nccl_wrong;
    int gpu_count;
    struct stub_gpu gpus[MAX_GPUS];
};

static void spec_field(struct stub_gpu *gpu, char *field)
{
    char *value = strchr(field, '='), *part, *rest;
    if (!value)
        return;
    *value++ = '\0';
    if (!strcmp(field, "name"))
        snprintf(gpu->name, sizeof gpu->name, "%s", value);
    else if (!strcmp(field, "cc"))
        sscanf(value, "%d.%d", &gpu->major, &gpu->minor);
    else if (!strcmp(field, "memory_mib"))
        gpu->memory_mib = strtoull(value, NULL, 10);
    else if (!strcmp(field, "free_mib"))
        gpu->free_mib = strtoull(value, NULL, 10);
    else if (!strcmp(field, "cuda_bytes"))
        gpu->cuda_bytes = strtoull(value, NULL, 10);
    else if (!strcmp(field, "uuid"))
        snprintf(gpu->uuid, sizeof gpu->uuid, "%s", value);
    else if (!strcmp(field, "handle_error"))
        gpu->handle_error = atoi(value);
    else if (!strcmp(field, "mode"))
        gpu->mode = atoi(value);
    else if (!strcmp(field, "holder"))
        gpu->holder = atoi(value);
    else if (!strcmp(field, "throttled"))
        gpu->throttled = atoi(value);
    else if (!strcmp(field, "lanes"))
        gpu->lanes = atoi(value);
    else if (!strcmp(field, "remap"))
        gpu->remap = atoi(value);
    else if (!strcmp(field, "memory_error"))
        gpu->memory_error = atoi(value);
    else if (!strcmp(field, "mig"))
        for (part = strtok_r(value, ",", &rest); part && gpu->mig_count < MAX_MIG; part = strtok_r(NULL, ",", &rest))
            snprintf(gpu->mig[gpu->mig_count++], sizeof gpu->mig[0], "%s", part);
}

static void spec_gpu(struct stub_spec *spec, char *value)
{
    struct stub_gpu *gpu = &spec->gpus[spec->gpu_count++];
    char *rest, *field;
    for (field = strtok_r(value, "|", &rest); field; field = strtok_r(NULL, "|", &rest))
        spec_field(gpu, field);
    if (!gpu->cuda_bytes)
        gpu->cuda_bytes = gpu->memory_mib << 20;
    if (!gpu->free_mib)
        gpu->free_mib = gpu->memory_mib;
}

static void spec_line(struct stub_spec *spec, char *line)
{
    char *value = strchr(line, ' ');
    if (line[0] == '#' || !value)
        return;
    *value++ = '\0';
    value[strcspn(value, "\r\n")] = '\0';
    if (!strcmp(line, "driver"))
        snprintf(spec->driver, sizeof spec->driver, "%s", value);
    else if (!strcmp(line, "cuda"))
        spec->cuda = atoi(value);
    else if (!strcmp(line, "cudart"))
        spec->cudart = atoi(value);
    else if (!strcmp(line, "nvml_init"))
        spec->nvml_init = atoi(value);
    else if (!strcmp(line, "nvml_sleep"))
        spec->nvml_sleep = atoi(value);
    else if (!strcmp(line, "cu_init"))
        spec->cu_init = atoi(value);
    else if (!strcmp(line, "cu_version"))
        spec->cu_version = atoi(value);
    else if (!strcmp(line, "cu_init_sleep"))
        spec->cu_init_sleep = atoi(value);
    else if (!strcmp(line, "cu_init_signal"))
        spec->cu_init_signal = atoi(value);
    else if (!strcmp(line, "cuda_error"))
        spec->cuda_error = atoi(value);
    else if (!strcmp(line, "cudnn"))
        spec->cudnn = atoi(value);
    else if (!strcmp(line, "cudnn_create"))
        spec->cudnn_create = atoi(value);
    else if (!strcmp(line, "cudnn_wrong"))
        spec->cudnn_wrong = atoi(value);
    else if (!strcmp(line, "peer_wrong"))
        spec->peer_wrong = atoi(value);
    else if (!strcmp(line, "nccl_hangs"))
        spec->nccl_hangs = atoi(value);
    else if (!strcmp(line, "nccl_wrong"))
        spec->nccl_wrong = atoi(value);
    else if (!strcmp(line, "gpu") && spec->gpu_count < MAX_GPUS)
        spec_gpu(spec, value);
    else {
        fprintf(stderr, "driver stub: unknown line: %s\n", line);
        abort();
    }
}

static struct stub_spec *spec_read(void)
{
    static struct stub_spec spec;
    static int done;
    char line[4096], *path = getenv("GPUENV_STUB");
    FILE *file;
    if (done || !path)
        return &spec;
    done = 1;
    file = fopen(path, "r");
    if (!file) {
        perror(path);
        abort();
    }
    while (fgets(line, sizeof line, file))
        spec_line(&spec, line);
    fclose(file);
    return &spec;
}

#endif
