# The oracles of src/layout. The same questions are put to it (layout_evaluate), to pycute and, with FALCHION_CUDA, which
# finds CUTLASS, to CuTe itself, compiled by the host's compiler. An oracle that is not there is skipped.
set(oracle ${PROJECT_SOURCE_DIR}/tests/layout_oracle)
add_executable(layout_evaluate ${oracle}/evaluate.cpp)
set_target_properties(layout_evaluate PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_link_libraries(layout_evaluate PRIVATE falchion_layout falchion_warnings)

find_program(FALCHION_PYTHON3 python3)
if(FALCHION_PYTHON3)
  set(pycute "")
  set(label fast)
  if(cutlass_include)
    set(label cuda-build)
    get_filename_component(pycute ${cutlass_include}/../../.. ABSOLUTE)  # the wheel has it beside cutlass_library
  endif()
  falchion_script(layout.pycute LABEL ${label}
    COMMAND ${FALCHION_PYTHON3} ${oracle}/pycute_test.py $<TARGET_FILE:layout_evaluate> ${pycute})
endif()

if(FALCHION_CUDA AND FALCHION_PYTHON3)
  set(cases ${PROJECT_BINARY_DIR}/generated/layout_cute_cases.cpp)
  add_custom_command(OUTPUT ${cases} COMMAND ${FALCHION_PYTHON3} ${oracle}/cute_cases.py ${oracle}/cases.txt ${cases}
    DEPENDS ${oracle}/cute_cases.py ${oracle}/cases.txt VERBATIM)
  add_executable(layout_cute ${cases})
  set_target_properties(layout_cute PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests CXX_STANDARD 17)
  target_include_directories(layout_cute SYSTEM PRIVATE ${cutlass_include} ${CUDAToolkit_INCLUDE_DIRS}
    ${CUDAToolkit_INCLUDE_DIRS}/cccl)
  target_compile_options(layout_cute PRIVATE -O0 -w)  # a thousand templates, run once
  add_executable(layout_atoms_cute ${oracle}/atoms_cute.cpp)
  add_executable(layout_random_cute ${oracle}/random_cute.cpp)
  foreach(target layout_atoms_cute layout_random_cute)
    target_include_directories(${target} SYSTEM PRIVATE ${cutlass_include} ${CUDAToolkit_INCLUDE_DIRS}
      ${CUDAToolkit_INCLUDE_DIRS}/cccl)
    target_compile_options(${target} PRIVATE -O0 -w)
  endforeach()
  add_executable(layout_atoms_ours ${oracle}/atoms_ours.cpp)
  target_link_libraries(layout_atoms_ours PRIVATE falchion_layout falchion_warnings)
  set_target_properties(layout_atoms_cute layout_atoms_ours layout_random_cute PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  falchion_script(layout.atoms LABEL cuda-build
    COMMAND bash -c "diff <($<TARGET_FILE:layout_atoms_cute>) <($<TARGET_FILE:layout_atoms_ours>) && echo atoms agree")
  falchion_script(layout.cute LABEL cuda-build
    COMMAND ${oracle}/cute_test.sh $<TARGET_FILE:layout_cute> $<TARGET_FILE:layout_random_cute>
      $<TARGET_FILE:layout_evaluate>)
endif()
