# What the GPU variants need: nvcc, the CUDA runtime (linked statically), the headers of CUTLASS.
# FALCHION_CUDA_ARCHITECTURES asks for machine code for Ampere (which also runs on Ada) and Hopper, and for PTX for what
# comes after. Where it has Hopper the sm90 variants are built too, for sm_90a alone, because no other architecture has
# wgmma and TMA.
set(FALCHION_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "Architectures of the sm80 variants, as CMAKE_CUDA_ARCHITECTURES")
set(FALCHION_CUTLASS_DIR "" CACHE PATH "Where CUTLASS's include/ is; empty: look for it")

# Another ptxas than the one that these kernels were tuned with may spill. That fails the library's own build, but not
# the builds of its users, nor a wheel that a user builds.
set(strict ${PROJECT_IS_TOP_LEVEL})
if(SKBUILD)
  set(strict OFF)
endif()
option(FALCHION_STRICT "Spills and warnings of ptxas fail the build" ${strict})

find_program(FALCHION_NVCC nvcc)
if(NOT FALCHION_NVCC AND NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
endif()
# The check of all templates compiles each of them for one architecture; ./dev gpu-build compiles for all.
set(falchion_sm80_architectures ${FALCHION_CUDA_ARCHITECTURES})
if(FALCHION_VARIANTS STREQUAL "templates")
  set(falchion_sm80_architectures 80-real)
endif()
set(CMAKE_CUDA_ARCHITECTURES ${falchion_sm80_architectures})
enable_language(CUDA)
find_package(CUDAToolkit 12.8 REQUIRED)
if(FALCHION_STRICT)
  # ptxas's report of each object (registers, stack, spills) is kept beside it, and tests/resources_test.sh reads it.
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/keep_ptxas_report.sh)
  if(FALCHION_CCACHE)
    list(APPEND CMAKE_CUDA_COMPILER_LAUNCHER ${falchion_ccache})
  endif()
endif()

# Finds CUTLASS 4.2 in a given folder, as a CMake package, or as the Python package nvidia-cutlass.
function(falchion_find_cutlass out)
  if(FALCHION_CUTLASS_DIR)
    if(NOT EXISTS ${FALCHION_CUTLASS_DIR}/include/cute/tensor.hpp)
      message(FATAL_ERROR "FALCHION_CUTLASS_DIR = ${FALCHION_CUTLASS_DIR} has no include/cute/tensor.hpp")
    endif()
    set(${out} ${FALCHION_CUTLASS_DIR}/include PARENT_SCOPE)
    return()
  endif()
  find_package(NvidiaCutlass 4.2 QUIET)
  if(NvidiaCutlass_FOUND)
    get_target_property(include nvidia::cutlass::cutlass INTERFACE_INCLUDE_DIRECTORIES)
    set(${out} ${include} PARENT_SCOPE)
    return()
  endif()
  find_program(FALCHION_PYTHON3 python3)
  if(FALCHION_PYTHON3)
    set(find "import importlib.util as u; print(u.find_spec('cutlass_library').submodule_search_locations[0])")
    foreach(python ${PROJECT_BINARY_DIR}/venv/bin/python ${PROJECT_SOURCE_DIR}/build/venv/bin/python ${FALCHION_PYTHON3})
      execute_process(COMMAND ${python} -c "${find}" OUTPUT_VARIABLE package ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
      if(EXISTS ${package}/source/include/cute/tensor.hpp)
        set(${out} ${package}/source/include PARENT_SCOPE)
        return()
      endif()
    endforeach()
  endif()
  message(FATAL_ERROR "CUTLASS's headers are missing. Either\n  pip install --no-deps nvidia-cutlass==4.2.0.0\n"
    "or -DFALCHION_CUTLASS_DIR=<a checkout of CUTLASS 4.2>")
endfunction()
falchion_find_cutlass(cutlass_include)
message(STATUS "falchion: CUDA ${CUDAToolkit_VERSION}, architectures ${FALCHION_CUDA_ARCHITECTURES}")

# The flags of every .cu file of the library. A spill or a warning of ptxas fails the build, and so does C75xx (wgmma
# serialised, setmaxnreg ignored), which the launcher finds. -std is given by hand, because CMake 3.25 does not know that
# nvcc has C++20 (cuda_std_20 is unknown to it). Machine code is compressed: 14.5 MB instead of 44 for all of sm_90.
# The sm90 variants may spill what docs/resources.txt allows them and not a byte more (tests/resources_test.sh). These are
# a few words of the scheduler warp, which has 32 registers and thousands of cycles for each tile, or of what is done
# before a loop.
set(falchion_ptxas_flags "")
set(falchion_spill_flags "")
if(FALCHION_STRICT)
  set(falchion_ptxas_flags -Xptxas=-v,--warning-as-error)
  set(falchion_spill_flags -Xptxas=--warn-on-spills)
endif()
add_library(falchion_cuda_flags INTERFACE)
target_include_directories(falchion_cuda_flags SYSTEM INTERFACE ${cutlass_include})
target_compile_options(falchion_cuda_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --expt-relaxed-constexpr --expt-extended-lambda
  -Xfatbin=-compress-all --compress-mode=size
  ${falchion_ptxas_flags} -Xcompiler=-Wall,-Wextra -diag-suppress=177>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<NOT:$<BOOL:$<TARGET_PROPERTY:FALCHION_MAY_SPILL>>>>:${falchion_spill_flags}>)
target_link_libraries(falchion_cuda_flags INTERFACE CUDA::cudart_static)

# Variants that need no instruction newer than sm_80 are translated once and assembled for each architecture, because 20
# of the 29 s that a variant takes are the translation. They are never started early (gpu/blocks/stream_order.cuh).
set(falchion_translated_once "")
foreach(architecture IN LISTS falchion_sm80_architectures)
  string(REGEX REPLACE "-.*" "" number ${architecture})
  if(NOT architecture MATCHES "-virtual")
    list(APPEND falchion_translated_once -gencode=arch=compute_80,code=sm_${number})
  endif()
  if(NOT architecture MATCHES "-real")
    list(APPEND falchion_translated_once -gencode=arch=compute_80,code=compute_80)
  endif()
endforeach()
list(REMOVE_DUPLICATES falchion_translated_once)
