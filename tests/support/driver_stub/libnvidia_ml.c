/* libnvidia-ml.so.1 with NVIDIA's ABI (nvml.h): the calls that gpuenv makes, answered from GPUENV_STUB.
 * Return codes follow the documentation in nvml.h; compare.py holds them against a real one. */
#include <nvml.h>
#include <unistd.h>

#include "spec.h"

static int references;

/* A handle is the address of a GPU, or of the name of a MIG device inside it. */
static struct stub_gpu *as_gpu(nvmlDevice_t device)
{
    struct stub_spec *spec = spec_read();
    struct stub_gpu *gpu = (struct stub_gpu *)device;
    for (int i = 0; i < spec->gpu_count; i++)
        if (gpu == &spec->gpus[i])
            return gpu;
    return NULL;
}

static const char *as_mig(nvmlDevice_t device)
{
    struct stub_spec *spec = spec_read();
    for (int i = 0; i < spec->gpu_count; i++)
        for (int j = 0; j < spec->gpus[i].mig_count; j++)
            if ((const char *)device == spec->gpus[i].mig[j])
                return spec->gpus[i].mig[j];
    return NULL;
}

static nvmlReturn_t copy(char *to, unsigned int length, const char *from)
{
    if (!to)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(from) + 1 > length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, from);
    return NVML_SUCCESS;
}

#define READY()                                                                                                        \
    if (!references)                                                                                                   \
    return NVML_ERROR_UNINITIALIZED
#define GPU(gpu, device)                                                                                               \
    READY();                                                                                                           \
    struct stub_gpu *gpu = as_gpu(device);                                                                             \
    if (!gpu)                                                                                                          \
    return NVML_ERROR_INVALID_ARGUMENT

EXPORT nvmlReturn_t DECLDIR nvmlInitWithFlags(unsigned int flags)
{
    struct stub_spec *spec = spec_read();
    (void)flags;
    if (spec->nvml_sleep)
        sleep((unsigned int)spec->nvml_sleep);
    if (spec->nvml_init)
        return (nvmlReturn_t)spec->nvml_init;
    references++;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t DECLDIR nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

EXPORT nvmlReturn_t DECLDIR nvmlShutdown(void)
{
    READY();
    references--;
    return NVML_SUCCESS;
}

EXPORT const DECLDIR char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
        return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case NVML_ERROR_LIBRARY_NOT_FOUND:
        return "NVML Shared Library Not Found";
    case NVML_ERROR_GPU_IS_LOST:
        return "GPU is lost";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return "Driver/library version mismatch";
    default:
        return "Unknown Error";
    }
}

EXPORT nvmlReturn_t DECLDIR nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    READY();
    return copy(version, length, spec_read()->driver);
}

EXPORT nvmlReturn_t DECLDIR nvmlSystemGetCudaDriverVersion(int *version)
{
    READY();
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = spec_read()->cuda;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t DECLDIR nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return nvmlSystemGetCudaDriverVersion(version);
}

EXPORT nvmlReturn_t DECLDIR nvmlDeviceGetCount_v2(unsigned int *count)
{
    READY();
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = (unsigned int)spec_read()->gpu_count;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t DECLDIR nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    struct stub_spec *spec = spec_read();
    READY();
    if (!device || index >= (unsigned int)spec->gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (spec->gpus[index].handle_error)
        return (nvmlReturn_t)spec->gpus[index].handle_error;
    *device = (nvmlDevice_t)&spec->gpus[index];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t DECLDIR nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    GPU(gpu, device);
    return copy(name, length, gpu->name);
}

EXPORT nvmlReturn_t DECLDIR nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    if (references && as_mig(device))
        return copy(uuid, length, as_mig(device));
    GPU(gpu, device);
    return copy(uuid, length, gpu->uuid);
}

EXPORT nvmlReturn_t DECLDIR nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    GPU(gpu, device);
    if (!major || !minor)
        return NVML_ERROR_INVALID_ARGUMENT;
    *major = gpu->major;
    *minor = gpu->minor;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t DECLDIR nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    GPU(gpu, device);
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    memory->total = gpu->memory_mib << 20;
    memory->free = gpu->free_mib << 20;
    memory->used = memory->total - memory->free;
    return NVML_SUCCESS;
}

/* A count of 0 asks how many there are. In a container NVML names nobody: then leave the holder out. */
EXPORT nvmlReturn_t DECLDIR nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                                    nvmlProcessInfo_t *infos)
{
    GPU(gpu, device);
    unsigned int room = count ? *count : 0;
    if (!count || (room && !infos))
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = gpu->holder ? 1 : 0;
    if (!gpu->holder)
        return NVML_SUCCESS;
    if (!room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memset(infos, 0, sizeof *infos);
    infos->pid = (unsigned int)gpu->holder;
    infos->usedGpuMemory = (gpu->memory_mib - gpu->free_mib) << 20;
    infos->gpuInstanceId = infos->computeInstanceId = 0xFFFFFFFF;
    return NVML_SUCCESS;
}

/* Only parts that can do MIG (8.0, 9.0, 10.x) know the question. */
EXPORT nvmlReturn_t DECLDIR nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    GPU(gpu, device);
    if (!current || !pending)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (gpu->major < 8 || gpu->minor != 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = gpu->mig_count ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t DECLDIR nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    GPU(gpu, device);
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = gpu->mig_count ? MAX_MIG - 1 : 0; /* an H200 with MIG off says 0 */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t DECLDIR nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                                nvmlDevice_t *mig)
{
    GPU(gpu, device);
    if (!mig || index >= MAX_MIG - 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (index >= (unsigned int)gpu->mig_count)
        return NVML_ERROR_NOT_FOUND;
    *mig = (nvmlDevice_t)gpu->mig[index];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t DECLDIR nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    GPU(gpu, device);
    *reasons = (unsigned long long)gpu->throttled;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t DECLDIR nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *lanes)
{
    GPU(gpu, device);
    *lanes = gpu->lanes ? (unsigned int)gpu->lanes : 16;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t DECLDIR nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *lanes)
{
    GPU(gpu, device);
    *lanes = 16;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t DECLDIR nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
    GPU(gpu, device);
    (void)gpu;
    *current = *pending = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t DECLDIR nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
                                                      unsigned int *pending, unsigned int *failed)
{
    GPU(gpu, device);
    *corrected = *uncorrected = *failed = 0;
    *pending = (unsigned int)gpu->remap;
    return NVML_SUCCESS;
}
