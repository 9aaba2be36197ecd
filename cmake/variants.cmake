# Reads src/variants.def, keeps the variants that FALCHION_VARIANTS names and this compiler can build, and writes for each
# one translation unit, and for all of them falchion_variants.inc: VARIANT(op, backend, level, dtype, d).
# FALCHION_VARIANTS = templates keeps each GPU kernel template once instead, and native what this machine's CPU runs, as
# falchion_keep_templates and falchion_keep_native below say.
# Out: falchion_variant_sources (CPU), falchion_sm80_sources, falchion_sm90_sources,
# falchion_translated_once_sources (of sm80), FALCHION_GENERATED_DIR.
include(CheckCXXCompilerFlag)
include(CheckCXXSourceCompiles)
include(${CMAKE_CURRENT_LIST_DIR}/variant_regex.cmake)

set(FALCHION_GENERATED_DIR ${PROJECT_BINARY_DIR}/generated)
set(variants_def ${PROJECT_SOURCE_DIR}/src/variants.def)
set(tiles_def ${PROJECT_SOURCE_DIR}/src/tiles/attention_forward/tiles.def)
file(STRINGS ${tiles_def} tiles_of_80_keys REGEX "^TILE\\(.*\\.keys = 80,")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${variants_def} ${tiles_def}
  ${PROJECT_SOURCE_DIR}/src/variant.in
  ${PROJECT_SOURCE_DIR}/src/variant_gpu.in)

check_cxx_source_compiles("#if !__has_include(<hwy/highway.h>)\n#error\n#endif\nint main() {}" FALCHION_HAS_HIGHWAY)
if(NOT FALCHION_HAS_HIGHWAY)
  unset(FALCHION_HAS_HIGHWAY CACHE)  # so that the next try looks again
  message(FATAL_ERROR "Highway's headers (hwy/highway.h) are missing. Debian and Ubuntu have them as libhwy-dev, Fedora "
    "and RHEL as highway-devel. Where they lie elsewhere, CXXFLAGS=-I<folder> names the folder that has hwy/.")
endif()

# The flags of each CPU level. "no" means that this compiler or target has no such level.
check_cxx_source_compiles("#ifndef __x86_64__\n#error\n#endif\nint main() {}" FALCHION_X86_64)
check_cxx_source_compiles("#ifndef __aarch64__\n#error\n#endif\nint main() {}" FALCHION_AARCH64)
set(level_flags_generic "")
set(level_flags_neon no)
set(level_flags_avx2 no)
set(level_flags_avx512 no)
set(level_flags_vnni no)
set(level_flags_amx no)
set(level_flags_amx_emulated no)
if(FALCHION_AARCH64)
  # With run-time dispatch Highway marks NEON functions as needing AES, and GCC then refuses to inline them into plain
  # ARMv8 code. The library has its own dispatch, and this macro turns Highway's off.
  set(level_flags_neon -DTOOLCHAIN_MISS_SYS_AUXV_H=1)
  set(level_flags_generic ${level_flags_neon})
elseif(FALCHION_X86_64)
  check_cxx_compiler_flag(-march=haswell FALCHION_HAS_HASWELL)
  check_cxx_compiler_flag(-march=skylake-avx512 FALCHION_HAS_SKYLAKE_AVX512)
  check_cxx_compiler_flag(-march=cascadelake FALCHION_HAS_CASCADELAKE)
  check_cxx_compiler_flag(-march=sapphirerapids FALCHION_HAS_SAPPHIRERAPIDS)
  if(FALCHION_HAS_HASWELL)
    # Highway's AVX2 needs AES, which GCC's Haswell does not have. Without this flag Highway would fall back to SSSE3.
    set(level_flags_avx2 -march=haswell -DHWY_DISABLE_PCLMUL_AES=1)
  endif()
  if(FALCHION_HAS_SKYLAKE_AVX512)
    set(level_flags_avx512 -march=skylake-avx512 -mprefer-vector-width=512)
  endif()
  if(FALCHION_HAS_CASCADELAKE)
    set(level_flags_vnni -march=cascadelake -mprefer-vector-width=512)
  endif()
  if(FALCHION_HAS_SAPPHIRERAPIDS)
    set(level_flags_amx -march=sapphirerapids -mprefer-vector-width=512)
    # Extensions that Zen 4 and 5 lack are left out, so that the AMX kernels are tested there too.
    set(level_flags_amx_emulated ${level_flags_amx} -mno-avx512fp16 -mno-avxvnni -DFALCHION_AMX_EMULATED=1)
  endif()
endif()
# -ffast-math is not used, because NaN and Inf mean what docs/contract.md says. A Debug build has no -O3, so that one can
# step through it.
set(kernel_flags $<$<NOT:$<CONFIG:Debug>>:-O3> -fno-math-errno -fno-trapping-math -ffp-contract=fast)

# Of `lines`, which are those of variants.def, it keeps the generic CPU level, and of each GPU template (an operation, back
# end and kind, in f32, 16 or 8 bits) the bf16, f32, e4m3 or i8 variant with head dim 128, or its first variant where it
# has none of that; of linear attention that with 64, which compiles in half the time. It leaves out kinds that are
# another kind's template with other tiles.
function(falchion_keep_templates lines out)
  set(kept "")
  foreach(line IN LISTS lines)
    if(line MATCHES "cpu, generic,")
      list(APPEND kept "${line}")
    elseif(line MATCHES "sm90, (mla|brief|medium|slim|narrow),")
      continue()
    elseif(line MATCHES "^VARIANT\\((.*, sm[0-9]+, [a-z0-9_]+), (bf16|f32|e4m3|i8), ([0-9]+)\\)")
      string(MAKE_C_IDENTIFIER "${CMAKE_MATCH_1} ${CMAKE_MATCH_2}" template)
      if(NOT DEFINED kept_of_${template} OR (CMAKE_MATCH_3 EQUAL 128 AND NOT line MATCHES "linear"))
        set(kept_of_${template} "${line}")
        list(APPEND templates ${template})
      endif()
    endif()
  endforeach()
  list(REMOVE_DUPLICATES templates)
  foreach(template IN LISTS templates)
    list(APPEND kept "${kept_of_${template}}")
  endforeach()
  set(${out} "${kept}" PARENT_SCOPE)
endfunction()

# Of `lines`, the variants that the CPU of this machine can run: those of generic and of each level whose flag
# /proc/cpuinfo has, and no GPU's. That is what `./dev demo` builds.
function(falchion_keep_native lines out)
  set(flags "")
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo flags REGEX "^(flags|Features)" LIMIT_COUNT 1)
  endif()
  set(levels generic)
  foreach(level_and_flag "neon;asimd" "avx2;avx2" "avx512;avx512bw" "vnni;avx512_vnni" "amx;amx_bf16")
    list(GET level_and_flag 0 level)
    list(GET level_and_flag 1 flag)
    if(flags MATCHES "[ \t]${flag}([ \t]|$)")
      list(APPEND levels ${level})
    endif()
  endforeach()
  list(JOIN levels "|" any)
  list(FILTER lines INCLUDE REGEX ", *cpu, *(${any}),")
  set(${out} "${lines}" PARENT_SCOPE)
endfunction()

set(falchion_variant_sources "")
set(falchion_sm80_sources "")
set(falchion_sm90_sources "")
set(falchion_translated_once_sources "")
set(variants "")
set(variant_count 0)
set(skipped "")
file(STRINGS ${variants_def} lines REGEX "^VARIANT\\(")
if(FALCHION_VARIANTS STREQUAL "native")
  falchion_keep_native("${lines}" lines)
elseif(FALCHION_VARIANTS STREQUAL "templates")
  falchion_keep_templates("${lines}" lines)
elseif(NOT FALCHION_VARIANTS STREQUAL "")
  falchion_keep_matching("${lines}" "${FALCHION_VARIANTS}" lines)
endif()
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^VARIANT\\(([a-z0-9_]+), *([a-z0-9]+), *([a-z0-9_]+), *([a-z0-9]+), *([0-9]+)\\)")
    message(FATAL_ERROR "src/variants.def: cannot read '${line}'")
  endif()
  set(op ${CMAKE_MATCH_1})
  set(backend ${CMAKE_MATCH_2})
  set(level ${CMAKE_MATCH_3})
  set(dtype ${CMAKE_MATCH_4})
  set(d ${CMAKE_MATCH_5})

  # The folder of the operation, which both passes of linear attention share, and in it the file that has the kernel.
  string(REGEX REPLACE "^linear_attention_.*" "linear_attention" folder ${op})
  set(entry ${op}/kernel)
  if(NOT backend STREQUAL "cpu")
    set(entry ${op}/${level})
  endif()
  string(REGEX REPLACE "^linear_attention_([a-z]+)/kernel$" "linear_attention/\\1" entry ${entry})
  string(REGEX REPLACE "^linear_attention_([a-z]+)/" "linear_attention/\\1_" entry ${entry})
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/src/${backend}/${entry} AND NOT EXISTS ${PROJECT_SOURCE_DIR}/src/${backend}/${entry}.cuh)
    string(APPEND entry /kernel)  # of a kind that has a folder
  endif()

  if(backend STREQUAL "cpu")
    if(NOT DEFINED level_flags_${level})
      message(FATAL_ERROR "src/variants.def: unknown CPU level '${level}'")
    elseif("${level_flags_${level}}" STREQUAL "no")
      list(APPEND skipped ${level})
      continue()
    endif()
    set(source ${FALCHION_GENERATED_DIR}/variants/${op}_${backend}_${level}_${dtype}_${d}.cpp)
    string(TOUPPER ${level} LEVEL)
    configure_file(${PROJECT_SOURCE_DIR}/src/variant.in ${source} @ONLY)
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${level_flags_${level}};${kernel_flags}")
    list(APPEND falchion_variant_sources ${source})
  elseif(FALCHION_CUDA AND (backend STREQUAL "sm80" OR FALCHION_CUDA_ARCHITECTURES MATCHES "(^|;)90"))
    set(source ${FALCHION_GENERATED_DIR}/variants/${op}_${backend}_${level}_${dtype}_${d}.cu)
    configure_file(${PROJECT_SOURCE_DIR}/src/variant_gpu.in ${source} @ONLY)
    if(backend STREQUAL "sm80" AND (op MATCHES "^linear" OR level STREQUAL "general"))
      list(APPEND falchion_translated_once_sources ${source})
    else()
      list(APPEND falchion_${backend}_sources ${source})
    endif()
    # Tiles of 80 keys: CuTe has products of that width only behind this switch, and the 9 MB of declarations that come
    # with it take nvcc 20 to 30 s in each unit that sets it.
    if(tiles_of_80_keys MATCHES "TILE\\(${op}, ${backend}, ${level}, ${d},")
      set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED)
    endif()
  else()
    list(APPEND skipped ${backend})
    continue()
  endif()
  string(APPEND variants "VARIANT(${op}, ${backend}, ${level}, ${dtype}, ${d})\n")
  math(EXPR variant_count "${variant_count} + 1")
endforeach()

file(CONFIGURE OUTPUT ${FALCHION_GENERATED_DIR}/falchion_variants.inc @ONLY CONTENT
  "// Written by cmake/variants.cmake: the variants of variants.def that this build has.\n@variants@")
list(REMOVE_DUPLICATES skipped)
list(JOIN skipped " " skipped)
if(variant_count EQUAL 0 AND NOT FALCHION_VARIANTS STREQUAL "none")
  message(FATAL_ERROR "FALCHION_VARIANTS = '${FALCHION_VARIANTS}' names no variant that this build can have: ${skipped} is "
    "not for this compiler, this target or its CUDA options (FALCHION_CUDA is '${FALCHION_CUDA}'). 'none' builds none.")
endif()
message(STATUS "falchion: ${variant_count} variants to build (not for this target: ${skipped})")
