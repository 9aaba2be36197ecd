/* same_library.c: refuses to work with another libfalchion than this module was built with. Both come in one package,
 * so this happens where files of two releases were mixed, or LD_LIBRARY_PATH names a folder with an older library. */
#include <string.h>

#include "fal.h"

#define TEXT_OF(x) #x
#define DOTTED(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

/* The library returns its own struct by value, which may be longer than ours. A caller hands in the memory for a struct
 * of more than 16 bytes, so this type gives it room. */
typedef union roomy {
  size_t size; /* the first field of every struct that may grow */
  char room[1024];
} roomy;

static int same_size(const char* name, roomy (*init)(void), size_t ours) {
  const roomy theirs = init();
  if (theirs.size == ours) return 1;
  PyErr_Format(PyExc_ImportError,
               "falchion: the library's %s has %zu bytes, and that of falchion._fal has %zu: the "
               "files are of two builds; please install the package anew",
               name, theirs.size, ours);
  return 0;
}

int check_same_library(void) {
  static const char built_with[] = DOTTED(FAL_VERSION_MAJOR, FAL_VERSION_MINOR, FAL_VERSION_PATCH);
  if (strcmp(fal_version(), built_with) != 0) {
    PyErr_Format(PyExc_ImportError,
                 "falchion: the library is version %s, and falchion._fal was built with %s: the files "
                 "are of two releases; please install the package anew",
                 fal_version(), built_with);
    return 0;
  }
  return same_size("fal_attention", (roomy(*)(void))(void (*)(void))fal_attention_init, sizeof(fal_attention)) &&
         same_size("fal_linear_attention", (roomy(*)(void))(void (*)(void))fal_linear_attention_init,
                   sizeof(fal_linear_attention)) &&
         same_size("fal_gemm", (roomy(*)(void))(void (*)(void))fal_gemm_init, sizeof(fal_gemm)) &&
         same_size("fal_norm", (roomy(*)(void))(void (*)(void))fal_norm_init, sizeof(fal_norm)) &&
         same_size("fal_quantise", (roomy(*)(void))(void (*)(void))fal_quantise_init, sizeof(fal_quantise));
}
