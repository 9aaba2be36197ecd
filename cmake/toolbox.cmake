# Build type, ccache, warnings, sanitizers, OpenMP, and how a library is put together.
if(PROJECT_IS_TOP_LEVEL)
  get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
  if(NOT multi_config AND NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)  # CMake's Release is -O3 -DNDEBUG
  endif()
  find_program(FALCHION_CCACHE ccache)
  # Paths below the source folder are hashed as relative ones, and the build folder's name not at all, so that a second
  # clone finds what the first one has compiled. What the environment says of these goes first.
  set(falchion_ccache ${FALCHION_CCACHE})
  if(FALCHION_CCACHE AND NOT DEFINED ENV{CCACHE_BASEDIR})
    set(falchion_ccache ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${FALCHION_CCACHE})
  endif()
  if(FALCHION_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_C_COMPILER_LAUNCHER ${falchion_ccache})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${falchion_ccache})
  endif()
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
endif()

add_library(falchion_warnings INTERFACE)
target_compile_options(falchion_warnings INTERFACE "$<$<COMPILE_LANGUAGE:CXX,C>:-Wall;-Wextra;-Wpedantic>"
  $<$<AND:$<COMPILE_LANGUAGE:CXX,C>,$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)  # false alarms, GCC PR105651

if(FALCHION_SANITIZE)
  list(JOIN FALCHION_SANITIZE "," sanitize)
  add_compile_options(-fsanitize=${sanitize} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${sanitize})
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=gold FALCHION_HAS_GOLD)  # links a hundred tests in less time than GNU ld
  if(FALCHION_HAS_GOLD)
    add_link_options(-fuse-ld=gold)
  endif()
endif()
if(FALCHION_STATIC_RUNTIME)  # of executables; a shared falchion keeps its shared runtimes
  add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-static-libgcc$<SEMICOLON>-static-libstdc++>)
endif()

# Threads. falchion_openmp has the compile flag; falchion_runtime_libs are plain library names, written into the
# package files as they are, so that a consumer in plain C needs to look nothing up.
set(THREADS_PREFER_PTHREAD_FLAG OFF)
find_package(Threads REQUIRED)
add_library(falchion_openmp INTERFACE)
set(falchion_runtime_libs "")
if(FALCHION_OPENMP)
  find_package(OpenMP COMPONENTS CXX)
  if(OpenMP_CXX_FOUND)
    separate_arguments(openmp_flags NATIVE_COMMAND "${OpenMP_CXX_FLAGS}")
    target_compile_options(falchion_openmp INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${openmp_flags}>)
    target_compile_definitions(falchion_openmp INTERFACE FALCHION_OPENMP=1)
    set(falchion_runtime_libs ${OpenMP_CXX_LIB_NAMES})
    list(REMOVE_ITEM falchion_runtime_libs pthread)
  else()
    message(STATUS "falchion: no OpenMP here, its own thread pool is used")
  endif()
endif()
list(APPEND falchion_runtime_libs ${CMAKE_THREAD_LIBS_INIT} ${CMAKE_DL_LIBS} m)

# The libraries that a program needs which links a static falchion. A C program also needs the C++ runtime.
function(falchion_link_runtime target)
  set(build_libs ${falchion_runtime_libs})
  get_target_property(type ${target} TYPE)
  if(FALCHION_STATIC_RUNTIME AND type STREQUAL "STATIC_LIBRARY")
    list(TRANSFORM build_libs REPLACE "^gomp$" "-l:libgomp.a")
  endif()
  target_link_libraries(${target} PRIVATE "$<BUILD_INTERFACE:${build_libs}>" "$<INSTALL_INTERFACE:${falchion_runtime_libs}>"
    $<$<LINK_LANGUAGE:C>:stdc++>)
  if(FALCHION_CUDA)
    target_link_libraries(${target} PRIVATE CUDA::cudart_static)  # found again by falchion-config.cmake
  endif()
endfunction()

set(falchion_soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

# Makes one packed form of falchion_core, which users know as falchion::<name>.
function(falchion_library target name)
  add_library(falchion::${name} ALIAS ${target})
  target_sources(${target} PRIVATE ${falchion_objects})
  falchion_link_runtime(${target})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME falchion EXPORT_NAME ${name} LINKER_LANGUAGE CXX
    POSITION_INDEPENDENT_CODE ON VERSION ${PROJECT_VERSION} SOVERSION ${falchion_soversion})
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "SHARED_LIBRARY" AND NOT FALCHION_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/falchion.map -Wl,--no-undefined)
    set_property(TARGET ${target} PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/falchion.map)
  endif()
endfunction()
