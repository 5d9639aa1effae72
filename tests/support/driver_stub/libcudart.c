/* libcudart.so.12 with NVIDIA's ABI (cuda_runtime_api.h) on top of the stub libcuda, which it opens by
 * its soname as the real one does. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdint.h>

#include "spec.h"

static void *driver;
static __thread int chosen;
static __thread cudaError_t last;

static void *function(const char *name)
{
    if (!driver)
        driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    return driver ? dlsym(driver, name) : NULL;
}

static cudaError_t keep(int code)
{
    if (code)
        last = (cudaError_t)code;
    return (cudaError_t)code;
}

/* Most codes have one number in both interfaces; without a driver the runtime says 35, and a driver that
 * speaks an older CUDA major than the runtime is insufficient too. */
static cudaError_t start(void)
{
    int version = 0;
    CUresult (*init)(unsigned int) = (CUresult(*)(unsigned int))function("cuInit");
    CUresult (*get)(int *) = (CUresult(*)(int *))function("cuDriverGetVersion");
    if (!init || !get)
        return cudaErrorInsufficientDriver;
    if (!get(&version) && version / 1000 < spec_read()->cudart / 1000)
        return cudaErrorInsufficientDriver;
    return (cudaError_t)init(0);
}

static cudaError_t enter(void)
{
    CUcontext context;
    CUresult (*retain)(CUcontext *, CUdevice) = (CUresult(*)(CUcontext *, CUdevice))function("cuDevicePrimaryCtxRetain");
    CUresult (*set)(CUcontext) = (CUresult(*)(CUcontext))function("cuCtxSetCurrent");
    cudaError_t code = start();
    if (!code)
        code = (cudaError_t)retain(&context, chosen);
    return code ? code : (cudaError_t)set(context);
}

EXPORT cudaError_t CUDARTAPI cudaRuntimeGetVersion(int *version)
{
    *version = spec_read()->cudart;
    return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaDriverGetVersion(int *version)
{
    CUresult (*get)(int *) = (CUresult(*)(int *))function("cuDriverGetVersion");
    *version = 0;
    if (get)
        get(version);
    return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaGetDeviceCount(int *count)
{
    CUresult (*get)(int *) = (CUresult(*)(int *))function("cuDeviceGetCount");
    cudaError_t code = start();
    *count = 0;
    return keep(code ? (int)code : (int)get(count));
}

EXPORT cudaError_t CUDARTAPI cudaGetDevice(int *device)
{
    *device = chosen;
    return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaSetDevice(int device)
{
    int count = 0;
    cudaError_t code = cudaGetDeviceCount(&count);
    if (!code && (device < 0 || device >= count))
        code = cudaErrorInvalidDevice;
    if (code)
        return keep(code);
    chosen = device;
    return keep(enter());
}

EXPORT cudaError_t CUDARTAPI cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    CUresult (*get)(int *, CUdevice_attribute, CUdevice) =
        (CUresult(*)(int *, CUdevice_attribute, CUdevice))function("cuDeviceGetAttribute");
    cudaError_t code = start();
    return keep(code ? (int)code : (int)get(value, (CUdevice_attribute)attribute, device));
}

EXPORT cudaError_t CUDARTAPI cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    CUresult (*get)(size_t *, size_t *) = (CUresult(*)(size_t *, size_t *))function("cuMemGetInfo_v2");
    cudaError_t code = enter();
    return keep(code ? (int)code : (int)get(free_bytes, total));
}

EXPORT cudaError_t CUDARTAPI cudaMalloc(void **pointer, size_t bytes)
{
    CUresult (*get)(CUdeviceptr *, size_t) = (CUresult(*)(CUdeviceptr *, size_t))function("cuMemAlloc_v2");
    CUdeviceptr address = 0;
    int code = enter();
    if (!code)
        code = (int)get(&address, bytes);
    *pointer = (void *)(uintptr_t)address;
    return keep(code);
}

EXPORT cudaError_t CUDARTAPI cudaFree(void *pointer)
{
    CUresult (*give)(CUdeviceptr) = (CUresult(*)(CUdeviceptr))function("cuMemFree_v2");
    cudaError_t code = enter();
    return keep(code || !pointer ? (int)code : (int)give((CUdeviceptr)(uintptr_t)pointer));
}

EXPORT cudaError_t CUDARTAPI cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t code = enter();
    (void)kind;
    if (!code)
        memcpy(to, from, bytes);
    return keep(code);
}

EXPORT cudaError_t CUDARTAPI cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    cudaError_t code = enter();
    if (!code)
        *can = device != peer;
    return keep(code);
}

EXPORT cudaError_t CUDARTAPI cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes)
{
    cudaError_t code = cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice);
    (void)to_device, (void)from_device;
    if (!code && spec_read()->peer_wrong)
        *(char *)to ^= 1;
    return code;
}

EXPORT cudaError_t CUDARTAPI cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    (void)peer, (void)flags;
    return keep(enter());
}

EXPORT cudaError_t CUDARTAPI cudaMallocHost(void **pointer, size_t bytes)
{
    *pointer = malloc(bytes);
    return keep(enter());
}

EXPORT cudaError_t CUDARTAPI cudaMemset(void *to, int value, size_t bytes)
{
    cudaError_t code = enter();
    if (!code)
        memset(to, value, bytes);
    return keep(code);
}

EXPORT cudaError_t CUDARTAPI cudaDeviceSynchronize(void)
{
    return keep(enter());
}

EXPORT cudaError_t CUDARTAPI cudaDeviceReset(void)
{
    return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaGetLastError(void)
{
    cudaError_t code = last;
    last = cudaSuccess;
    return code;
}

EXPORT cudaError_t CUDARTAPI cudaPeekAtLastError(void)
{
    return last;
}

static const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorStubLibrary, "cudaErrorStubLibrary", "CUDA driver is a stub library"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorSystemNotReady, "cudaErrorSystemNotReady", "system not yet initialized"},
    {cudaErrorSystemDriverMismatch, "cudaErrorSystemDriverMismatch",
     "system has unsupported display driver / cuda driver combination"},
};

static const char *words(cudaError_t code, int names)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code)
            return names ? errors[i].name : errors[i].text;
    return names ? "cudaErrorUnknown" : "unknown error";
}

EXPORT const char *CUDARTAPI cudaGetErrorName(cudaError_t code)
{
    return words(code, 1);
}

EXPORT const char *CUDARTAPI cudaGetErrorString(cudaError_t code)
{
    return words(code, 0);
}
