# The ladder: the steps from the naive kernel to the library's own. It is only for the command and the test, and never in
# the library. Its .cu files are built only with FALCHION_CUDA, and those for Hopper for sm_90a alone, where that is among
# the architectures. Its exp and division take one instruction each (--use_fast_math), since the steps need not keep the
# contract on NaN, Inf and denormals.
file(GLOB ladder_sources CONFIGURE_DEPENDS src/ladder/*/*.cpp)
set(ladder_sm90_sources "")
if(FALCHION_CUDA)
  file(GLOB ladder_cuda_sources CONFIGURE_DEPENDS src/ladder/*/*.cu)
  if(FALCHION_VARIANTS STREQUAL "templates")  # The last steps show that the ladders compile; nothing is linked.
    list(FILTER ladder_cuda_sources INCLUDE REGEX "/(attention/(09|10)|backward/06|linear/07|gemm/(09|13))_")
  endif()
  set(ladder_sm90_sources ${ladder_cuda_sources})
  list(FILTER ladder_sm90_sources INCLUDE REGEX "/(attention/(0[789]|10)_[a-z_]+|backward/06_warp_roles|gemm/(1[0-9]|branch_split_k|branch_ping)_[a-z_]+)\\.cu$")
  list(REMOVE_ITEM ladder_cuda_sources ${ladder_sm90_sources})
  if(NOT FALCHION_CUDA_ARCHITECTURES MATCHES "(^|;)90")
    set(ladder_sm90_sources "")
  endif()
endif()
add_library(falchion_ladder STATIC ${ladder_sources})
if(ladder_cuda_sources)
  # Translated once and assembled for each architecture, as cmake/cuda.cmake says.
  add_library(falchion_ladder_cuda OBJECT ${ladder_cuda_sources})
  set_target_properties(falchion_ladder_cuda PROPERTIES CUDA_ARCHITECTURES OFF)
  target_compile_options(falchion_ladder_cuda PRIVATE ${falchion_translated_once} --use_fast_math)
  target_link_libraries(falchion_ladder_cuda PRIVATE falchion_internal falchion_cuda_flags)
  target_sources(falchion_ladder PRIVATE $<TARGET_OBJECTS:falchion_ladder_cuda>)
endif()
if(ladder_sm90_sources)
  add_library(falchion_ladder_sm90 OBJECT ${ladder_sm90_sources})
  set_target_properties(falchion_ladder_sm90 PROPERTIES CUDA_ARCHITECTURES 90a-real)
  target_compile_options(falchion_ladder_sm90 PRIVATE --use_fast_math)
  target_link_libraries(falchion_ladder_sm90 PRIVATE falchion_internal falchion_cuda_flags)
  target_sources(falchion_ladder PRIVATE $<TARGET_OBJECTS:falchion_ladder_sm90>)
endif()
target_compile_definitions(falchion_ladder PRIVATE FALCHION_LADDER_CUDA=$<BOOL:${FALCHION_CUDA}>
  FALCHION_LADDER_SM90=$<TARGET_EXISTS:falchion_ladder_sm90>)
target_compile_options(falchion_ladder PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-unknown-pragmas>)  # omp, in a build without
target_link_libraries(falchion_ladder PUBLIC falchion_internal PRIVATE falchion_warnings falchion_openmp
  $<TARGET_NAME_IF_EXISTS:falchion_cuda_flags>)
foreach(user falchion_tools ladder_test ladder_backward_test ladder_gemm_test)
  if(TARGET ${user})
    target_link_libraries(${user} PRIVATE falchion_ladder)
  endif()
endforeach()
