/* dlpack.h: the part of DLPack 1.x's ABI that the package uses, written out here so that building it needs no header of
 * another project. The names of types and fields are DLPack's (https://github.com/dmlc/dlpack); a struct that we only
 * read from lists its fields up to the last one that we need. */
#ifndef FALCHION_PYTHON_DLPACK_H_
#define FALCHION_PYTHON_DLPACK_H_

#include <stdint.h>

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 }; /* DLDevice.device_type */
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6, DL_FLOAT8_E4M3FN = 10 }; /* DLDataType.code */
enum { DL_MAJOR = 1 }; /* the version that this file is of */
#define DL_FLAG_READ_ONLY ((uint64_t)1)

typedef struct {
  uint32_t major, minor;
} DLPackVersion;

typedef struct {
  int32_t device_type, device_id;
} DLDevice;

typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} DLDataType;

typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape, *strides; /* strides in elements; null before 1.2 where the tensor is dense */
  uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor { /* in a capsule named "dltensor" */
  DLTensor dl_tensor;
} DLManagedTensor;

typedef struct DLManagedTensorVersioned { /* in a capsule named "dltensor_versioned" */
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned*);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

/* The table of functions in the capsule `type.__dlpack_c_exchange_api__`, named "dlpack_exchange_api". */
typedef struct DLPackExchangeAPI {
  DLPackVersion version;
  struct DLPackExchangeAPI* older; /* the same table for an older major version, or null */
  int (*managed_tensor_allocator)(DLTensor* prototype, DLManagedTensorVersioned** out, void* context,
                                  void (*set_error)(void* context, const char* kind, const char* message));
  int (*managed_tensor_from_py_object_no_sync)(void* object, DLManagedTensorVersioned** out);
  int (*managed_tensor_to_py_object_no_sync)(DLManagedTensorVersioned* tensor, void** out);
  int (*dltensor_from_py_object_no_sync)(void* object, DLTensor* out); /* may be null */
  int (*current_work_stream)(int32_t device_type, int32_t device_id, void** out);
} DLPackExchangeAPI;

#endif /* FALCHION_PYTHON_DLPACK_H_ */
