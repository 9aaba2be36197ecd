/* base/dtypes.c: sizes and names of the types of elements. */
#include "fal.h"

int element_size(int dtype) {
  switch (dtype) {
    case FAL_F32:
    case FAL_I32: return 4;
    case FAL_F16:
    case FAL_BF16: return 2;
    case FAL_BOOL:
    case FAL_E4M3:
    case FAL_I8:
    case TYPE_U8: return 1;
    case TYPE_I64:
    case TYPE_U64: return 8;
    default: return 0;
  }
}

const char* type_name(int dtype) {
  switch (dtype) {
    case FAL_F32: return "float32";
    case FAL_F16: return "float16";
    case FAL_BF16: return "bfloat16";
    case FAL_BOOL: return "bool";
    case FAL_E4M3: return "float8_e4m3fn";
    case FAL_I8: return "int8";
    case FAL_I32: return "int32";
    case TYPE_I64: return "int64";
    case TYPE_U64: return "uint64";
    case TYPE_U8: return "uint8";
    default: return NULL;
  }
}

const char* dtype_name(const array* array) {
  const char* name = type_name(array->dtype);
  return name != NULL ? name : array->other_type;
}
