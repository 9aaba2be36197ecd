# Each tests/X_test.cpp makes an executable X_test, and each of its cases is a CTest case. A test with "Slow" in its name
# gets the label slow, one of a suite Threads the label thread (which the tsan preset runs), and all others are fast.
if(CMAKE_CROSSCOMPILING AND EXISTS /usr/src/googletest/CMakeLists.txt)
  set(BUILD_GMOCK OFF)
  set(INSTALL_GTEST OFF)
  add_subdirectory(/usr/src/googletest ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
else()
  find_package(GTest REQUIRED)
endif()
include(GoogleTest)
file(GLOB test_sources CONFIGURE_DEPENDS tests/*_test.cpp)
set(gpu_test_sources ${test_sources})
list(FILTER gpu_test_sources INCLUDE REGEX "/sm[0-9]+_[a-z0-9]+_test")  # They belong to cmake/tests_gpu.cmake.
list(FILTER test_sources EXCLUDE REGEX "/sm[0-9]+_[a-z0-9]+_test")
list(FILTER test_sources EXCLUDE REGEX "/door_gpu_")  # They belong to cmake/tests_fake_cuda.cmake.
if(NOT FALCHION_TOOLS)  # These tests run the command, test parts of it or need its libraries.
  list(FILTER test_sources EXCLUDE REGEX "/(roofline|roofline_backward|explain_json|print_json|ladder_check|verify_[a-z]+)_test")
  list(FILTER test_sources EXCLUDE REGEX "/(tools|command|command_[a-z]+)_test")
endif()
file(GLOB support_sources CONFIGURE_DEPENDS tests/support/*.cpp)
if(support_sources)
  add_library(falchion_test_support STATIC ${support_sources})
  target_link_libraries(falchion_test_support PUBLIC falchion_judge falchion_internal GTest::gtest PRIVATE falchion_warnings falchion_openmp)
  target_include_directories(falchion_test_support PUBLIC tests)
endif()

# The cases of these tests are judged by references in double, which take most of the time and are the same for every
# level. So the levels of a dtype run in one process, which computes them once. Of ref a sanitizer sees f32 alone, because
# in 16 bits it is the same code, and of the backward pass, where it takes over a minute, only the laws and the contract.
set(tests_that_share_references attention_forward_test attention_backward_test linear_attention_test)
function(falchion_shared_references name)
  set(dtypes f32 f16 bf16)
  if(FALCHION_SANITIZE)  # The presets build no level in f16, which is the code of bf16 with other loads and stores.
    list(REMOVE_ITEM dtypes f16)
  endif()
  foreach(dtype IN LISTS dtypes)
    set(filter "Levels/*.Cases/*_${dtype}:Levels/*.OneThread/*_${dtype}")
    if(FALCHION_SANITIZE AND NOT (dtype STREQUAL "f32" AND NOT name STREQUAL "attention_backward_test"))
      string(APPEND filter "-*/ref_*")
    endif()
    add_test(NAME ${name}.cases_${dtype} COMMAND ${name} --gtest_filter=${filter} --gtest_brief=1)
    set_tests_properties(${name}.cases_${dtype} PROPERTIES LABELS fast TIMEOUT 900)
  endforeach()
endfunction()

function(falchion_test source)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_include_directories(${name} PRIVATE tests)
  target_compile_definitions(${name} PRIVATE FALCHION_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE $<TARGET_NAME_IF_EXISTS:falchion_test_support> falchion_layout falchion_io
    falchion_internal falchion_warnings falchion_openmp GTest::gtest_main)
  set(elsewhere "")
  if(name IN_LIST tests_that_share_references AND NOT CMAKE_CROSSCOMPILING)
    falchion_shared_references(${name})
    set(elsewhere ":Levels/*.Cases/*:Levels/*.OneThread/*")
  endif()
  foreach(kind fast slow thread)
    if(kind STREQUAL "fast")
      set(filter "-*Slow*:Threads.*${elsewhere}")
    elseif(kind STREQUAL "slow")
      set(filter "*Slow*")
    else()
      set(filter "Threads.*-*Slow*")
    endif()
    gtest_discover_tests(${name} TEST_FILTER "${filter}" NO_PRETTY_VALUES DISCOVERY_TIMEOUT 120 TEST_LIST ${name}_${kind}
      PROPERTIES LABELS ${kind} TIMEOUT 600)
  endforeach()
endfunction()

add_custom_target(thread_tests)  # the executables with a suite Threads: all that ./dev tsan builds
foreach(source IN LISTS test_sources)
  falchion_test(${source})
  file(STRINGS ${source} suites_of_threads REGEX "^TEST(_F|_P)?\\(Threads,")
  if(suites_of_threads)
    get_filename_component(name ${source} NAME_WE)
    add_dependencies(thread_tests ${name})
  endif()
endforeach()
# It runs device code on the host, with a header <cuda/atomic> of its own.
target_include_directories(tile_counter_test BEFORE PRIVATE tests/fake_cuda/atomic)
include(cmake/tests_fake_cuda.cmake)
# Tests of parts of the command.
foreach(name verify_storm verify_backward verify_watchdog verify_rule verify_operations verify_trace roofline roofline_backward
    print_json ladder_check command_interrupt)
  if(TARGET ${name}_test)
    target_link_libraries(${name}_test PRIVATE falchion_tools)
  endif()
endforeach()
if(FALCHION_NVTX_DIR AND TARGET command_trace_test)  # a tool that listens to NVTX, which the command loads
  add_library(nvtx_listener MODULE tests/nvtx_listener.cpp)
  target_include_directories(nvtx_listener SYSTEM PRIVATE ${FALCHION_NVTX_DIR})
  set_target_properties(nvtx_listener PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_dependencies(command_trace_test nvtx_listener)
endif()
target_link_libraries(train_gpt_test PRIVATE train_gpt_model)
# The JSON that the library writes is read by another parser than its own.
if(TARGET explain_json_test)
  find_package(nlohmann_json REQUIRED)
  target_link_libraries(explain_json_test PRIVATE nlohmann_json::nlohmann_json)
endif()

if(FALCHION_CUDA)
  include(cmake/tests_cuda.cmake)
  include(cmake/tests_gpu.cmake)
endif()

# The shell tests check the house rules, and what the packages give to their users.
function(falchion_script name)
  cmake_parse_arguments(PARSE_ARGV 1 script "" "LABEL" "COMMAND")
  add_test(NAME ${name} COMMAND ${script_COMMAND} COMMAND_EXPAND_LISTS)
  set_tests_properties(${name} PROPERTIES LABELS ${script_LABEL} SKIP_RETURN_CODE 77 TIMEOUT 900)
endfunction()

if(NOT CMAKE_CROSSCOMPILING)
  include(cmake/tests_layout.cmake)
endif()

if(NOT FALCHION_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  set(tests ${PROJECT_SOURCE_DIR}/tests)
  falchion_script(house.layers LABEL fast COMMAND ${tests}/layers_test.sh)
  falchion_script(house.lint LABEL fast COMMAND ${tests}/lint_test.sh)
  falchion_script(house.variants LABEL fast COMMAND ${CMAKE_COMMAND} -P ${tests}/variants_test.cmake)
  falchion_script(consumer.warnings LABEL fast COMMAND ${tests}/consumer/run.sh warnings ${PROJECT_BINARY_DIR})
  falchion_script(house.headers LABEL fast COMMAND ${tests}/headers_test.sh ${CMAKE_CXX_COMPILER} ${CMAKE_C_COMPILER})
  if(FALCHION_PYTHON3)
    falchion_script(house.docs LABEL fast COMMAND ${FALCHION_PYTHON3} ${tests}/docs_test.py)
    falchion_script(bench.loop_cycles LABEL fast COMMAND ${FALCHION_PYTHON3} ${tests}/loop_cycles_test.py)
    falchion_script(bench.device_report LABEL fast COMMAND ${FALCHION_PYTHON3} ${tests}/device_report_test.py)
    falchion_script(bench.results LABEL fast COMMAND ${FALCHION_PYTHON3} ${tests}/results_test.py)
  endif()
  if(TARGET falchion_command)
    # Some ten seconds of random problems, the same ones each time, on the paths that this machine has: every level of its
    # CPU, and its GPU. A busy machine may be slow, so only a run of two minutes counts as hanging.
    falchion_script(verify.storm LABEL fast
      COMMAND falchion_command verify --random 900 --seed 1 --workers 2 --patience 120)
    if(FALCHION_PYTHON3)
      falchion_script(house.pages LABEL fast
        COMMAND ${FALCHION_PYTHON3} ${tests}/pages_test.py $<TARGET_FILE:falchion_command>)
      falchion_script(layout.browser LABEL fast
        COMMAND ${FALCHION_PYTHON3} ${tests}/layout_browser_test.py $<TARGET_FILE:falchion_command>)
    endif()
    falchion_script(house.demo LABEL fast COMMAND ${tests}/demo_test.sh ${PROJECT_BINARY_DIR})
    falchion_script(layout.pictures LABEL fast
      COMMAND ${PROJECT_SOURCE_DIR}/docs/img/layouts/make.sh --check $<TARGET_FILE:falchion_command>)
  endif()
  if(TARGET falchion_python)
    falchion_script(python.numpy LABEL fast COMMAND ${tests}/python_test.sh ${PROJECT_BINARY_DIR}/python)
  endif()
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    set(objects $<TARGET_OBJECTS:falchion_core>)
    falchion_script(house.levels LABEL fast COMMAND ${tests}/levels_test.sh $<FILTER:${objects},INCLUDE,generated/variants/>)
  endif()
  if(TARGET falchion_shared)
    falchion_script(house.exports LABEL fast COMMAND ${tests}/exports_test.sh $<TARGET_FILE:falchion_shared>)
    if(FALCHION_INSTALL)
      if(TARGET falchion_command)
        falchion_script(consumer.command LABEL consumer COMMAND ${tests}/consumer/command.sh ${PROJECT_BINARY_DIR})
      endif()
      foreach(mode find_package pkg_config add_subdirectory)
        falchion_script(consumer.${mode} LABEL consumer
          COMMAND ${tests}/consumer/run.sh ${mode} ${PROJECT_BINARY_DIR} ${CMAKE_GENERATOR})
      endforeach()
      falchion_script(consumer.minimal LABEL consumer
        COMMAND ${tests}/minimal_test.sh ${PROJECT_BINARY_DIR} ${CMAKE_GENERATOR})
    endif()
  endif()
endif()
