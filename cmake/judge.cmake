# The tolerance rule, which is not in the library; the command and the tests share it.
file(GLOB judge_sources CONFIGURE_DEPENDS src/judge/*.cpp)
add_library(falchion_judge STATIC ${judge_sources})
target_link_libraries(falchion_judge PUBLIC falchion_internal PRIVATE falchion_warnings)
