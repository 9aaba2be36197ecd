# Tests on the device: contract and case tests compiled once more for the GPU paths (tests/support/paths.hpp), and
# tests/cuda/X_test.cpp, all as executables cuda_X_test. They also run by themselves, without CTest, on a machine that has
# a GPU and no compiler. Their label is cuda, or cuda-slow with "Slow" in the test's name.
add_library(falchion_test_support_cuda STATIC ${support_sources})
target_link_libraries(falchion_test_support_cuda PUBLIC falchion_judge falchion_internal GTest::gtest
  PRIVATE falchion_warnings falchion_openmp)
target_include_directories(falchion_test_support_cuda PUBLIC tests tools)
target_compile_definitions(falchion_test_support_cuda PUBLIC FALCHION_TEST_CUDA=1)

add_library(falchion_test_kernels STATIC tests/cuda/kernels.cu)
target_link_libraries(falchion_test_kernels PRIVATE falchion_cuda_flags)

# falchion_cuda_executable(name sources...) makes one such executable.
function(falchion_cuda_executable name)
  add_executable(${name} ${ARGN} tests/cuda/main.cpp)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_compile_definitions(${name} PRIVATE FALCHION_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE falchion_test_support_cuda falchion_test_kernels CUDA::cudart_static
    falchion_warnings falchion_openmp)
endfunction()

function(falchion_cuda_test source)
  get_filename_component(name ${source} NAME_WE)
  falchion_cuda_executable(cuda_${name} ${source})
  foreach(kind cuda cuda-slow)
    if(kind STREQUAL "cuda")
      set(filter "-*Slow*")
    else()
      set(filter "*Slow*")
    endif()
    gtest_discover_tests(cuda_${name} TEST_PREFIX cuda. TEST_FILTER "${filter}" NO_PRETTY_VALUES DISCOVERY_TIMEOUT 120
      TEST_LIST cuda_${name}_${kind} PROPERTIES LABELS ${kind} TIMEOUT 600)
  endforeach()
endfunction()

file(GLOB cuda_sources CONFIGURE_DEPENDS tests/cuda/*_test.cpp)
list(APPEND cuda_sources tests/attention_forward_test.cpp tests/attention_backward_test.cpp
  tests/backward_laws_test.cpp tests/backward_contract_test.cpp tests/contract_test.cpp tests/contract_memory_test.cpp
  tests/contract_range_test.cpp tests/contract_softmax_test.cpp tests/contract_merge_test.cpp
  tests/contract_drift_test.cpp tests/contract_cache_test.cpp tests/contract_append_test.cpp
  tests/contract_cache_bytes_test.cpp tests/contract_eight_test.cpp
  tests/contract_slice_test.cpp tests/contract_sinks_test.cpp tests/backward_sinks_test.cpp
  tests/empty_extents_test.cpp tests/linear_attention_test.cpp tests/linear_laws_test.cpp
  tests/linear_contract_test.cpp tests/plan_time_test.cpp tests/gemm_test.cpp
  tests/gemm_contract_test.cpp tests/gemm_memory_test.cpp tests/gemm_scaled_test.cpp tests/norm_test.cpp
  tests/norm_contract_test.cpp tests/norm_memory_test.cpp tests/norm_backward_test.cpp
  tests/norm_backward_contract_test.cpp tests/quantise_test.cpp)
foreach(source IN LISTS cuda_sources)
  falchion_cuda_test(${source})
endforeach()

# One executable with all of them, for ./dev device-build. Each executable holds every kernel, so only this one is carried
# to the GPU machine.
falchion_cuda_executable(cuda_all_test ${cuda_sources})
set_target_properties(cuda_all_test PROPERTIES EXCLUDE_FROM_ALL ON)
