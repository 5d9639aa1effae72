/* libcuda.so.1 with NVIDIA's ABI (cuda.h): the calls that gpuenv makes, answered from GPUENV_STUB.
 * "Device memory" is the host's, so that copies work. compare.py holds the answers against a real one. */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

#include "spec.h"

static int initialized, visible_count, visible[MAX_GPUS];
static const char *slice; /* the MIG device that this process sees: CUDA shows one, the first */
static struct context {
    int device;
} contexts[MAX_GPUS];
static __thread CUcontext current;

/* CUDA_VISIBLE_DEVICES as the driver reads it: ordinals or UUID prefixes; what comes after the first
 * wrong entry is hidden. */
static int visible_entry(struct stub_spec *spec, const int *usable, int usable_count, const char *entry)
{
    char *end;
    long number = strtol(entry, &end, 10);
    if (end != entry && !*end)
        return number >= 0 && number < usable_count ? usable[number] : -1;
    for (int i = 0; i < usable_count; i++) {
        struct stub_gpu *gpu = &spec->gpus[usable[i]];
        if (*entry && !strncmp(gpu->uuid, entry, strlen(entry)))
            return usable[i];
        for (int j = 0; j < gpu->mig_count; j++)
            if (!strcmp(gpu->mig[j], entry)) {
                slice = gpu->mig[j];
                return usable[i];
            }
    }
    return -1;
}

static void choose_visible(struct stub_spec *spec)
{
    int usable[MAX_GPUS], usable_count = 0;
    char list[1024], *rest, *entry, *value = getenv("CUDA_VISIBLE_DEVICES");
    for (int i = 0; i < spec->gpu_count; i++)
        if (!spec->gpus[i].handle_error)
            usable[usable_count++] = i;
    visible_count = 0;
    if (!value) {
        memcpy(visible, usable, sizeof usable);
        visible_count = usable_count;
        return;
    }
    snprintf(list, sizeof list, "%s", value);
    for (entry = strtok_r(list, ",", &rest); entry && visible_count < MAX_GPUS; entry = strtok_r(NULL, ",", &rest)) {
        int gpu = visible_entry(spec, usable, usable_count, entry);
        if (gpu < 0)
            break;
        visible[visible_count++] = gpu;
        if (slice)
            break;
    }
}

static struct stub_gpu *as_gpu(CUdevice device)
{
    return device >= 0 && device < visible_count ? &spec_read()->gpus[visible[device]] : NULL;
}

static struct stub_gpu *of_current(void)
{
    return current ? as_gpu(((struct context *)current)->device) : NULL;
}

#define READY()                                                                                                        \
    if (!initialized)                                                                                                  \
    return spec_read()->cu_init == CUDA_ERROR_STUB_LIBRARY ? CUDA_ERROR_STUB_LIBRARY : CUDA_ERROR_NOT_INITIALIZED
#define GPU(gpu, device)                                                                                               \
    READY();                                                                                                           \
    struct stub_gpu *gpu = as_gpu(device);                                                                             \
    if (!gpu)                                                                                                          \
    return CUDA_ERROR_INVALID_DEVICE
#define CONTEXT()                                                                                                      \
    READY();                                                                                                           \
    if (spec_read()->cuda_error)                                                                                       \
        return (CUresult)spec_read()->cuda_error;                                                                      \
    if (!of_current())                                                                                                 \
    return CUDA_ERROR_INVALID_CONTEXT

EXPORT CUresult CUDAAPI cuInit(unsigned int flags)
{
    struct stub_spec *spec = spec_read();
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (spec->cu_init_sleep)
        sleep((unsigned int)spec->cu_init_sleep);
    if (spec->cu_init_signal)
        raise(spec->cu_init_signal);
    if (spec->cu_init)
        return (CUresult)spec->cu_init;
    choose_visible(spec);
    if (!visible_count)
        return CUDA_ERROR_NO_DEVICE;
    initialized = 1;
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuDriverGetVersion(int *version)
{
    struct stub_spec *spec = spec_read();
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    if (spec->cu_version)
        return (CUresult)spec->cu_version;
    *version = spec->cuda;
    return CUDA_SUCCESS;
}

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_SYSTEM_NOT_READY, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "forward compatibility was attempted on non supported HW"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult error_words(CUresult code, const char **words, int names)
{
    if (!words)
        return CUDA_ERROR_INVALID_VALUE;
    *words = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code)
            *words = names ? errors[i].name : errors[i].text;
    return *words ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult CUDAAPI cuGetErrorName(CUresult code, const char **name)
{
    return error_words(code, name, 1);
}

EXPORT CUresult CUDAAPI cuGetErrorString(CUresult code, const char **text)
{
    return error_words(code, text, 0);
}

EXPORT CUresult CUDAAPI cuDeviceGetCount(int *count)
{
    READY();
    *count = visible_count;
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
    GPU(gpu, ordinal);
    (void)gpu;
    *device = ordinal;
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuDeviceGetName(char *name, int length, CUdevice device)
{
    GPU(gpu, device);
    if (length > 0)
        snprintf(name, (size_t)length, "%s%s", gpu->name, gpu->mig_count ? " MIG 1g.18gb" : "");
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    GPU(gpu, device);
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = gpu->major;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = gpu->minor;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
        *value = gpu->mode;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        *value = visible[device] + 1;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
        *value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* "GPU-8c2c2c9a-..." holds the sixteen bytes in hexadecimal. */
EXPORT CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    GPU(gpu, device);
    const char *digit = strchr(slice ? slice : gpu->mig_count ? gpu->mig[0] : gpu->uuid, '-');
    memset(uuid->bytes, 0, sizeof uuid->bytes);
    for (int i = 0; digit && i < 16; i++) {
        unsigned int byte = 0;
        digit += strspn(digit, "-");
        if (sscanf(digit, "%2x", &byte) != 1)
            break;
        uuid->bytes[i] = (char)byte;
        digit += 2;
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid_v2(uuid, device);
}

EXPORT CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    GPU(gpu, device);
    if (gpu->memory_error < 0)
        pause();
    if (!gpu->memory_error)
        *bytes = (size_t)gpu->cuda_bytes;
    return (CUresult)gpu->memory_error;
}

EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    GPU(gpu, device);
    (void)gpu;
    if (spec_read()->cuda_error)
        return (CUresult)spec_read()->cuda_error;
    contexts[device].device = device;
    *context = (CUcontext)&contexts[device];
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    GPU(gpu, device);
    (void)gpu;
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
    READY();
    current = context;
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuCtxGetCurrent(CUcontext *context)
{
    READY();
    *context = current;
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    CUresult code = cuDevicePrimaryCtxRetain(context, device);
    (void)flags;
    if (!code)
        current = *context;
    return code;
}

EXPORT CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context)
{
    READY();
    if (current == context)
        current = NULL;
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuCtxSynchronize(void)
{
    CONTEXT();
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    CONTEXT();
    *total = (size_t)of_current()->cuda_bytes; /* less than NVML's: the driver keeps some */
    *free_bytes = (size_t)of_current()->free_mib << 20;
    if (*free_bytes > *total)
        *free_bytes = *total;
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    CONTEXT();
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > (size_t)of_current()->free_mib << 20)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = (CUdeviceptr)(uintptr_t)malloc(bytes);
    return *pointer ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult CUDAAPI cuMemFree_v2(CUdeviceptr pointer)
{
    CONTEXT();
    free((void *)(uintptr_t)pointer);
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    CONTEXT();
    memcpy((void *)(uintptr_t)to, from, bytes);
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    CONTEXT();
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t bytes)
{
    CONTEXT();
    memset((void *)(uintptr_t)to, value, bytes);
    return CUDA_SUCCESS;
}

/* The newest form of a call first, as the driver does for the newest version asked for. */
EXPORT CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                                            CUdriverProcAddressQueryResult *status)
{
    char name[256];
    Dl_info self;
    void *library;
    (void)version, (void)flags;
    if (!dladdr((void *)cuGetProcAddress_v2, &self) || !(library = dlopen(self.dli_fname, RTLD_NOLOAD | RTLD_NOW)))
        return CUDA_ERROR_UNKNOWN;
    snprintf(name, sizeof name, "%s_v2", symbol);
    *function = dlsym(library, name);
    if (!*function)
        *function = dlsym(library, symbol);
    dlclose(library);
    if (status)
        *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
