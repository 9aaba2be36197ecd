# The Python package. Its module _fal is written in C on CPython's limited API, so that one binary serves every CPython
# from 3.11 on, and it needs the library's C API alone. In the build folder the package lies as python/falchion, made of
# the module and of links to the sources, and the tests import it from there. pyproject.toml makes a wheel of it.
find_package(Python 3.11 COMPONENTS Interpreter Development.Module)
if(NOT Python_Development.Module_FOUND)
  if(SKBUILD)
    message(FATAL_ERROR "Python's headers are missing. Debian has them as python3-dev, Fedora as python3-devel.")
  endif()
  message(STATUS "falchion: no headers of Python 3.11 or newer (python3-dev), so the Python package is left out")
  return()
endif()
if(BUILD_SHARED_LIBS)
  set(library falchion)
elseif(TARGET falchion_shared)
  set(library falchion_shared)
else()
  message(FATAL_ERROR "FALCHION_PYTHON needs the shared library: BUILD_SHARED_LIBS=ON or FALCHION_SHARED=ON")
endif()

file(GLOB python_sources CONFIGURE_DEPENDS python/*.c python/*/*.c)
add_library(falchion_python MODULE ${python_sources})
set(package ${PROJECT_BINARY_DIR}/python/falchion)
set_target_properties(falchion_python PROPERTIES OUTPUT_NAME _fal PREFIX "" SUFFIX .abi3.so C_STANDARD 99
  C_EXTENSIONS OFF C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${package} INSTALL_RPATH "$ORIGIN/lib")
# Signatures and docstrings stand in _fal.pyi; the extension includes them as strings of C.
set(docstrings ${PROJECT_BINARY_DIR}/generated/python/docstrings.inc)
add_custom_command(OUTPUT ${docstrings}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/generated/python
  COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/python/docstrings.py --c ${docstrings}
  DEPENDS python/docstrings.py python/falchion/_fal.pyi VERBATIM)
target_sources(falchion_python PRIVATE ${docstrings})
target_include_directories(falchion_python PRIVATE ${PROJECT_BINARY_DIR}/generated/python)
target_compile_definitions(falchion_python PRIVATE Py_LIMITED_API=0x030b0000 _GNU_SOURCE)
target_include_directories(falchion_python PRIVATE python)
target_include_directories(falchion_python SYSTEM PRIVATE ${Python_INCLUDE_DIRS} ${PROJECT_SOURCE_DIR}/third_party/dlpack)
target_link_libraries(falchion_python PRIVATE ${library} Threads::Threads)
target_compile_options(falchion_python PRIVATE -Wall -Wextra)  # not pedantic: a slot of a type keeps a function as void*
install(TARGETS falchion_python LIBRARY DESTINATION . COMPONENT python EXCLUDE_FROM_ALL)
add_subdirectory(python/xla)  # falchion.jax

# The command goes into the package, as bin/falchion, and the console entry of a wheel runs it (falchion/_console.py). Its
# libraries (CLI11, fmt, nlohmann_json) need not be there to install the package: then it lacks the command. It has the
# kernels once more, so that a wheel with those of GPUs leaves it out.
if(SKBUILD AND FALCHION_TOOLS)
  find_package(CLI11 QUIET)
  find_package(fmt QUIET)
  find_package(nlohmann_json QUIET)
  if(FALCHION_CUDA OR NOT CLI11_FOUND OR NOT fmt_FOUND OR NOT nlohmann_json_FOUND)
    message(STATUS "falchion: the package is built without the command, which has the kernels once more (with "
      "FALCHION_CUDA) or lacks CLI11, fmt or nlohmann_json (Debian: libcli11-dev libfmt-dev nlohmann-json3-dev)")
    set(FALCHION_TOOLS OFF)
  endif()
endif()
set(falchion_package_targets ${library} falchion_python falchion_xla)
if(FALCHION_TOOLS)
  list(APPEND falchion_package_targets falchion_command)
endif()

if(SKBUILD)
  # With the C++ runtime inside, a wheel also runs where that is older than here, as on RHEL 9 (manylinux_2_34). Of the
  # runtime only what is used stays, or its random numbers would ask for glibc 2.36. A static libgcc would for 2.35.
  target_link_options(${library} PRIVATE -static-libstdc++ -Wl,--gc-sections)
else()
  file(GLOB_RECURSE python_files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/python/falchion
    python/falchion/*.py python/falchion/*.pyi python/falchion/py.typed)
  foreach(file IN LISTS python_files)
    get_filename_component(folder ${package}/${file} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/falchion/${file} ${package}/${file} SYMBOLIC)
  endforeach()
  file(MAKE_DIRECTORY ${package}/lib ${package}/bin)
  file(CREATE_LINK ${PROJECT_BINARY_DIR}/falchion ${package}/bin/falchion SYMBOLIC)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/include ${package}/include SYMBOLIC)
  file(CREATE_LINK ${PROJECT_BINARY_DIR}/libfalchion.so.${falchion_soversion}
    ${package}/lib/libfalchion.so.${falchion_soversion} SYMBOLIC)
endif()

add_custom_target(falchion_package DEPENDS ${falchion_package_targets})  # what a wheel is built of
