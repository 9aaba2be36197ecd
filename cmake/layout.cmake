# The layout algebra of `falchion layout`: plain C++, no CUDA.
file(GLOB layout_sources CONFIGURE_DEPENDS src/layout/*.cpp)
add_library(falchion_layout STATIC ${layout_sources})
target_include_directories(falchion_layout PUBLIC src)
target_compile_features(falchion_layout PUBLIC cxx_std_20)
target_link_libraries(falchion_layout PRIVATE falchion_warnings)
