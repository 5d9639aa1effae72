/* libcudnn.so.9, as much of it as one convolution needs, on top of the stub driver, whose device memory is
 * the host's: the convolution is really computed. NVIDIA's header comes only with the whole library (most
 * of a gigabyte), so the declarations here are written after the public API documentation of cuDNN 9
 * (cudnn_graph, cudnn_ops, cudnn_cnn: enums are ints, handles and descriptors pointers). */
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>

#include "spec.h"

typedef int cudnnStatus_t;
enum {
    CUDNN_STATUS_SUCCESS = 0,
    CUDNN_STATUS_NOT_INITIALIZED = 1001,
    CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED = 1008,
    CUDNN_STATUS_BAD_PARAM = 2000,
    CUDNN_STATUS_NOT_SUPPORTED = 3000,
    CUDNN_STATUS_INTERNAL_ERROR = 4000,
};
enum { CUDNN_DATA_FLOAT = 0, CUDNN_TENSOR_NCHW = 0, CUDNN_CROSS_CORRELATION = 1 };

/* One shape serves tensors (n c h w), filters (k c h w) and convolutions (pad, stride, dilation). */
typedef struct descriptor {
    int at[7];
} *descriptor;

static char last[256];

static cudnnStatus_t fail(cudnnStatus_t status, const char *why)
{
    snprintf(last, sizeof last, "%s", why);
    return status;
}

EXPORT size_t cudnnGetVersion(void)
{
    return (size_t)spec_read()->cudnn;
}

EXPORT size_t cudnnGetCudartVersion(void)
{
    return (size_t)spec_read()->cudart;
}

EXPORT const char *cudnnGetErrorString(cudnnStatus_t status)
{
    switch (status) {
    case CUDNN_STATUS_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
        return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED:
        return "CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED";
    case CUDNN_STATUS_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR:
        return "CUDNN_STATUS_INTERNAL_ERROR";
    default:
        return "CUDNN_UNKNOWN_STATUS";
    }
}

EXPORT void cudnnGetLastErrorString(char *text, size_t length)
{
    if (length)
        snprintf(text, length, "%s", last);
}

/* As the real one: without a working driver the status is NOT_INITIALIZED, whatever the reason; on a
 * full GPU it is INTERNAL_ERROR. */
EXPORT cudnnStatus_t cudnnCreate(void **handle)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*init)(unsigned int) = driver ? (CUresult(*)(unsigned int))dlsym(driver, "cuInit") : NULL;
    CUresult (*memory)(size_t *, size_t *) =
        driver ? (CUresult(*)(size_t *, size_t *))dlsym(driver, "cuMemGetInfo_v2") : NULL;
    size_t free_bytes, total;
    *handle = NULL;
    if (spec_read()->cudnn_create)
        return fail(spec_read()->cudnn_create, "the spec says so");
    if (!init || !memory || init(0) || memory(&free_bytes, &total))
        return fail(CUDNN_STATUS_NOT_INITIALIZED, "no CUDA context");
    if (free_bytes < (size_t)64 << 20)
        return fail(CUDNN_STATUS_INTERNAL_ERROR, "no memory for the handle's workspace");
    *handle = malloc(1);
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnDestroy(void *handle)
{
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t create(descriptor *made)
{
    *made = calloc(1, sizeof **made);
    return *made ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR;
}

static cudnnStatus_t destroy(descriptor made)
{
    free(made);
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnCreateTensorDescriptor(descriptor *made)
{
    return create(made);
}

EXPORT cudnnStatus_t cudnnCreateFilterDescriptor(descriptor *made)
{
    return create(made);
}

EXPORT cudnnStatus_t cudnnCreateConvolutionDescriptor(descriptor *made)
{
    return create(made);
}

EXPORT cudnnStatus_t cudnnDestroyTensorDescriptor(descriptor made)
{
    return destroy(made);
}

EXPORT cudnnStatus_t cudnnDestroyFilterDescriptor(descriptor made)
{
    return destroy(made);
}

EXPORT cudnnStatus_t cudnnDestroyConvolutionDescriptor(descriptor made)
{
    return destroy(made);
}

static cudnnStatus_t set(descriptor made, int type, int format, int a, int b, int c, int d)
{
    int values[] = {a, b, c, d};
    if (!made || a < 1 || b < 1 || c < 1 || d < 1)
        return fail(CUDNN_STATUS_BAD_PARAM, "a dimension is not positive");
    if (type != CUDNN_DATA_FLOAT || format != CUDNN_TENSOR_NCHW)
        return fail(CUDNN_STATUS_NOT_SUPPORTED, "the stub knows float32 in NCHW only");
    memcpy(made->at, values, sizeof values);
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetTensor4dDescriptor(descriptor made, int format, int type, int n, int c, int h, int w)
{
    return set(made, type, format, n, c, h, w);
}

EXPORT cudnnStatus_t cudnnSetFilter4dDescriptor(descriptor made, int type, int format, int k, int c, int h, int w)
{
    return set(made, type, format, k, c, h, w);
}

EXPORT cudnnStatus_t cudnnSetConvolution2dDescriptor(descriptor made, int pad_h, int pad_w, int u, int v,
                                                     int dilation_h, int dilation_w, int mode, int type)
{
    int values[] = {pad_h, pad_w, u, v, dilation_h, dilation_w, mode};
    if (!made || type != CUDNN_DATA_FLOAT || mode != CUDNN_CROSS_CORRELATION)
        return fail(CUDNN_STATUS_NOT_SUPPORTED, "the stub knows float32 cross-correlation only");
    memcpy(made->at, values, sizeof values);
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(void *handle, descriptor x, descriptor w, descriptor conv,
                                                             descriptor y, int algorithm, size_t *bytes)
{
    (void)algorithm;
    if (!handle || !x || !w || !conv || !y)
        return fail(CUDNN_STATUS_BAD_PARAM, "a descriptor is missing");
    *bytes = 4096; /* not needed, but callers must be able to give one */
    return CUDNN_STATUS_SUCCESS;
}

/* One output element: over channels and the filter's window, in double. */
static double element(const float *x, const float *w, const descriptor dx, const descriptor dw, const descriptor conv,
                      int n, int k, int row, int column)
{
    int channels = dx->at[1], height = dx->at[2], width = dx->at[3];
    double sum = 0;
    for (int c = 0; c < channels; c++)
        for (int a = 0; a < dw->at[2]; a++)
            for (int b = 0; b < dw->at[3]; b++) {
                int i = row * conv->at[2] - conv->at[0] + a * conv->at[4];
                int j = column * conv->at[3] - conv->at[1] + b * conv->at[5];
                if (i >= 0 && i < height && j >= 0 && j < width)
                    sum += (double)x[((n * channels + c) * height + i) * width + j] *
                           w[((k * channels + c) * dw->at[2] + a) * dw->at[3] + b];
            }
    return sum;
}

EXPORT cudnnStatus_t cudnnConvolutionForward(void *handle, const void *alpha, descriptor dx, const void *x,
                                             descriptor dw, const void *w, descriptor conv, int algorithm,
                                             void *workspace, size_t bytes, const void *beta, descriptor dy, void *y)
{
    float *out = y;
    (void)algorithm, (void)bytes;
    if (!handle || !workspace || !x || !w || !y || dx->at[1] != dw->at[1] || dy->at[1] != dw->at[0])
        return fail(CUDNN_STATUS_BAD_PARAM, "shapes or pointers do not fit");
    for (int n = 0; n < dy->at[0]; n++)
        for (int k = 0; k < dy->at[1]; k++)
            for (int i = 0; i < dy->at[2]; i++)
                for (int j = 0; j < dy->at[3]; j++, out++) {
                    float before = *(const float *)beta ? *(const float *)beta * *out : 0;
                    *out = (float)(*(const float *)alpha * element(x, w, dx, dw, conv, n, k, i, j)) + before;
                }
    if (spec_read()->cudnn_wrong)
        *(float *)y += 1;
    return CUDNN_STATUS_SUCCESS;
}
