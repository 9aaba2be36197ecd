# Tests of the GPU variants that need no GPU, with the label cuda-build. tests/smNN_X_test.cpp walk layouts and schedulers
# on the host and are compiled by the host's compiler. resources_test.sh reads what ptxas reported of each variant.
function(falchion_gpu_test source)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_include_directories(${name} PRIVATE tests)
  target_include_directories(${name} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_INCLUDE_DIRS}/cccl)
  target_compile_options(${name} PRIVATE -O1 -Wno-missing-field-initializers)  # -O3 takes twice as long to compile
  target_link_libraries(${name} PRIVATE falchion_internal falchion_cuda_flags falchion_warnings GTest::gtest_main)
  gtest_discover_tests(${name} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 120 PROPERTIES LABELS cuda-build TIMEOUT 600)
endfunction()

foreach(source IN LISTS gpu_test_sources)
  falchion_gpu_test(${source})
endforeach()

set(resources ${PROJECT_SOURCE_DIR}/tests/resources_test.sh)
add_test(NAME resources COMMAND ${resources} ${PROJECT_BINARY_DIR})
add_test(NAME resources.can_fail COMMAND ${resources} --can-fail ${PROJECT_SOURCE_DIR}/cmake/keep_ptxas_report.sh
  ${CMAKE_CUDA_COMPILER} ${falchion_ptxas_flags} ${falchion_spill_flags})
set_tests_properties(resources resources.can_fail PROPERTIES LABELS cuda-build SKIP_RETURN_CODE 77 TIMEOUT 300)

# Checks that src/layout/kernels.inc, which `falchion layout explain` reads, is what CuTe prints of the kernels today.
add_executable(layout_kernels_gen tests/layout_kernels_gen.cpp)
set_target_properties(layout_kernels_gen PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_include_directories(layout_kernels_gen PRIVATE tests)
target_include_directories(layout_kernels_gen SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_INCLUDE_DIRS}/cccl)
target_compile_options(layout_kernels_gen PRIVATE -O0 -Wno-missing-field-initializers)
target_link_libraries(layout_kernels_gen PRIVATE falchion_internal falchion_cuda_flags falchion_warnings)
add_test(NAME layout.kernels
  COMMAND ${PROJECT_SOURCE_DIR}/tests/layout_kernels_test.sh $<TARGET_FILE:layout_kernels_gen>)
set_tests_properties(layout.kernels PROPERTIES LABELS cuda-build TIMEOUT 300)
