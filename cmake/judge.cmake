# The tolerance rule: not in the library, shared by the command and the tests.
file(GLOB judge_sources CONFIGURE_DEPENDS src/judge/*.cpp)
add_library(falchion_judge STATIC ${judge_sources})
target_link_libraries(falchion_judge PUBLIC falchion_internal PRIVATE falchion_warnings)
