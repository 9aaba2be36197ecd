# The falchion command. A subcommand has one file, or a folder where one file is too small. Everything except main.cpp is a
# library, so that tests link what they test.
find_package(CLI11 REQUIRED)
find_package(fmt REQUIRED)
# fmt's formatting is compiled once, in its library: as headers alone it takes the compiler two seconds more in each of 60
# files. A command that must run without anything installed has it compiled in nevertheless.
set(falchion_fmt $<IF:$<BOOL:${FALCHION_STATIC_RUNTIME}>,fmt::fmt-header-only,fmt::fmt>)
find_package(nlohmann_json REQUIRED)
file(GLOB tool_sources CONFIGURE_DEPENDS tools/*.cpp tools/*/*.cpp tools/verify/*/*.cpp)
list(FILTER tool_sources EXCLUDE REGEX "/tools/main(_demo)?\\.cpp$")
set(demo_sources ${tool_sources})
list(FILTER demo_sources INCLUDE REGEX "/tools/(demo|explain|info|(command|measure|picture|problem)/[^/]+)\\.cpp$")
list(REMOVE_ITEM tool_sources ${demo_sources})
# What `./dev demo` builds of the tools. Everything else needs it too.
add_library(falchion_demo_tools STATIC ${demo_sources})
target_link_libraries(falchion_demo_tools PUBLIC falchion_io falchion_judge falchion_internal CLI11::CLI11
  ${falchion_fmt} nlohmann_json::nlohmann_json PRIVATE falchion_warnings falchion_openmp)
target_include_directories(falchion_demo_tools PUBLIC tools)
add_library(falchion_tools STATIC ${tool_sources})
target_link_libraries(falchion_tools PUBLIC falchion_demo_tools falchion_layout PRIVATE falchion_warnings falchion_openmp)
# With -O1 a file takes 0.6 of the time, and the command waits for the library. What measures, or fills tensors for
# storms, is optimised as the library is; what parses the command line, once a run, is not optimised, because CLI11 in it
# takes the compiler longest of all.
target_compile_options(falchion_demo_tools PRIVATE $<$<CONFIG:Release>:-O1>)
target_compile_options(falchion_tools PRIVATE $<$<CONFIG:Release>:-O1>)
set_source_files_properties(tools/measure/peak.cpp tools/measure/measure_gpu.cpp tools/problem/tensors.cpp
  tools/ladder/gemm_problem.cpp tools/verify/contents.cpp tools/verify/image.cpp tools/verify/storage.cpp PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
set_source_files_properties(tools/command/start.cpp tools/command/command.cpp tools/command/completion.cpp PROPERTIES
  COMPILE_OPTIONS $<$<CONFIG:Release>:-O0>)

add_executable(falchion_command tools/main.cpp)
set_target_properties(falchion_command PROPERTIES OUTPUT_NAME falchion)
target_compile_options(falchion_command PRIVATE $<$<CONFIG:Release>:-O1>)
target_link_libraries(falchion_command PRIVATE falchion_tools falchion_warnings falchion_openmp)
add_executable(falchion_demo EXCLUDE_FROM_ALL tools/main_demo.cpp)
target_link_libraries(falchion_demo PRIVATE falchion_demo_tools falchion_warnings falchion_openmp)
if(SKBUILD)  # As the library of a wheel. auditwheel puts libfmt beside libgomp: so the objects are those of other builds.
  target_sources(falchion_command PRIVATE tools/wheel/arc4random.c)
  target_link_options(falchion_command PRIVATE -static-libstdc++ -Wl,--gc-sections,--exclude-libs,libstdc++.a -s)
endif()
# The commit beside the command, for the results that it writes (`git describe`; empty outside a checkout).
add_custom_command(TARGET falchion_command POST_BUILD VERBATIM
  COMMAND sh -c "git describe --always --dirty 2>/dev/null >$0 || true" $<TARGET_FILE_DIR:falchion_command>/commit
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
