# Tests of what the library asks of CUDA, for machines that have none. tests/fake_cuda/driver.cpp is a library
# libcuda.so.1, which door_test, door_best_test and the door_gpu tests load as an application loads the driver.
add_library(falchion_fake_cuda SHARED tests/fake_cuda/driver.cpp)
target_include_directories(falchion_fake_cuda PRIVATE tests)
target_link_libraries(falchion_fake_cuda PRIVATE falchion_warnings)
set_target_properties(falchion_fake_cuda PROPERTIES PREFIX "" OUTPUT_NAME libcuda SUFFIX ".so.1"
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fake_cuda)
set(fake_cuda_tests door_test door_best_test)

# The library's own runtime_cuda.cpp with a fake runtime, where CUDA's headers are. It is only in builds without GPU
# variants. There the library has runtime_none.cpp, which it replaces in the executable, and no kernel that needs more of
# CUDA.
if(NOT FALCHION_CUDA AND NOT CMAKE_CROSSCOMPILING)
  find_path(FALCHION_CUDA_HEADERS cuda_runtime_api.h HINTS ENV CUDA_PATH /usr/local/cuda/include PATH_SUFFIXES include)
  if(FALCHION_CUDA_HEADERS)
    foreach(test door_gpu_test door_gpu_backward_test door_gpu_merge_test)
      falchion_test(tests/${test}.cpp)
      target_sources(${test} PRIVATE src/runtime/runtime_cuda.cpp tests/fake_cuda/runtime.cpp)
      target_include_directories(${test} SYSTEM PRIVATE ${FALCHION_CUDA_HEADERS})
      list(APPEND fake_cuda_tests ${test})
    endforeach()
  endif()
endif()

foreach(test IN LISTS fake_cuda_tests)
  add_dependencies(${test} falchion_fake_cuda)
  target_compile_definitions(${test} PRIVATE FALCHION_FAKE_CUDA="$<TARGET_FILE:falchion_fake_cuda>")
endforeach()
