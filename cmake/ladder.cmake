# The ladder: the steps from the naive kernel to the library's own, for the command and the test alone; never in the
# library. Its .cu files only with FALCHION_CUDA.
file(GLOB ladder_sources CONFIGURE_DEPENDS src/ladder/*/*.cpp)
if(FALCHION_CUDA)
  file(GLOB ladder_cuda_sources CONFIGURE_DEPENDS src/ladder/*/*.cu)
endif()
add_library(falchion_ladder STATIC ${ladder_sources} ${ladder_cuda_sources})
target_compile_definitions(falchion_ladder PRIVATE FALCHION_LADDER_CUDA=$<BOOL:${FALCHION_CUDA}>)
target_compile_options(falchion_ladder PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-unknown-pragmas>)  # omp, in a build without
# exp and division by one instruction each: the steps are not asked to keep the contract on NaN, Inf and denormals.
target_compile_options(falchion_ladder PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--use_fast_math>)
target_link_libraries(falchion_ladder PUBLIC falchion_internal PRIVATE falchion_warnings falchion_openmp
  $<TARGET_NAME_IF_EXISTS:falchion_cuda_flags>)
foreach(user falchion_command ladder_test)
  if(TARGET ${user})
    target_link_libraries(${user} PRIVATE falchion_ladder)
  endif()
endforeach()
