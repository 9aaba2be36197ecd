# Tests of what is asked of CUDA on machines that have none: tests/fake_cuda/driver.cpp is a library libcuda.so.1, which
# door_*_test load as an application loads the driver.
add_library(falchion_fake_cuda SHARED tests/fake_cuda/driver.cpp)
target_include_directories(falchion_fake_cuda PRIVATE tests)
target_link_libraries(falchion_fake_cuda PRIVATE falchion_warnings)
set_target_properties(falchion_fake_cuda PROPERTIES PREFIX "" OUTPUT_NAME libcuda SUFFIX ".so.1"
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fake_cuda)
foreach(test door_test)
  add_dependencies(${test} falchion_fake_cuda)
  target_compile_definitions(${test} PRIVATE FALCHION_FAKE_CUDA="$<TARGET_FILE:falchion_fake_cuda>")
endforeach()
