# The falchion command: one file a subcommand.
find_package(CLI11 REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
file(GLOB tool_sources CONFIGURE_DEPENDS tools/*.cpp tools/verify/*.cpp)
if(tool_sources)
  add_executable(falchion_command ${tool_sources})
  set_target_properties(falchion_command PROPERTIES OUTPUT_NAME falchion)
  target_link_libraries(falchion_command PRIVATE falchion_layout falchion_io falchion_judge falchion_internal
    falchion_warnings falchion_openmp CLI11::CLI11 fmt::fmt-header-only nlohmann_json::nlohmann_json)
  target_include_directories(falchion_command PRIVATE tools)
endif()
