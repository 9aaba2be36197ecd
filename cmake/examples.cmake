# The examples that are programs: examples/train_gpt. They see no more of the library than its users do. They are compiled
# for this machine where the compiler can do that, since all but attention is plain C++ in them; but not where they are to
# run on another machine.
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-march=native FALCHION_HAS_NATIVE)
add_library(train_gpt_model INTERFACE)  # its headers, which tests/train_gpt_test.cpp takes too
target_include_directories(train_gpt_model INTERFACE examples/train_gpt)
target_compile_definitions(train_gpt_model INTERFACE TRAIN_GPT_TEXT="${PROJECT_SOURCE_DIR}/examples/smollm2/text.txt")
if(FALCHION_HAS_NATIVE AND NOT FALCHION_STATIC_RUNTIME AND NOT FALCHION_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  target_compile_options(train_gpt_model INTERFACE -march=native)
endif()
target_compile_options(train_gpt_model INTERFACE -Wno-unknown-pragmas)  # omp, in a build without

if(FALCHION_TOOLS)  # It takes the same libraries as the command.
  add_executable(train_gpt examples/train_gpt/main.cpp)
  target_link_libraries(train_gpt PRIVATE train_gpt_model falchion falchion_warnings falchion_openmp CLI11::CLI11
    ${falchion_fmt} nlohmann_json::nlohmann_json)
endif()
