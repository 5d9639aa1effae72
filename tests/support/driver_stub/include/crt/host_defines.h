/* cuda_runtime_api.h includes this header, which NVIDIA ships with the compiler (nvcc) and not with the
 * runtime's wheel. For a C compiler that makes host code, its macros stand for nothing or for gcc's own. */
#ifndef GPUENV_STUB_HOST_DEFINES_H
#define GPUENV_STUB_HOST_DEFINES_H
#define __host__
#define __device__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __align__(n) __attribute__((aligned(n)))
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDART_CB
#endif
