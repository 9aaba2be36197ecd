# Headers, libraries, falchion-config.cmake, falchion.pc, the command. A wheel of the Python package has the same, as the
# install component python below the folder of the package: one form of the library, under the one name that programs
# load it by, since a wheel has no symbolic links.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(pc_library "-lfalchion")
set(library_names "")
if(SKBUILD)  # scikit-build-core builds a wheel
  set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME python)
  set(CMAKE_INSTALL_BINDIR bin)
  set(CMAKE_INSTALL_LIBDIR lib)
  set(CMAKE_INSTALL_INCLUDEDIR include)
  set_target_properties(falchion PROPERTIES VERSION ${falchion_soversion})
  set(pc_library "-l:libfalchion.so.${falchion_soversion}")
  set(library_names LIBRARY DESTINATION lib NAMELINK_SKIP)
endif()
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/falchion)

set(libraries falchion)
if(TARGET falchion_shared)
  list(APPEND libraries falchion_shared)
endif()
install(TARGETS ${libraries} EXPORT falchion-targets ${library_names})
install(DIRECTORY include/falchion TYPE INCLUDE FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(EXPORT falchion-targets NAMESPACE falchion:: DESTINATION ${package_dir})
if(NOT SKBUILD)  # which puts it beside the metadata of the wheel
  install(FILES LICENSE TYPE DOC)
endif()
if(TARGET falchion_command)
  install(TARGETS falchion_command)
  install(FILES examples/smollm2/smollm2_qkv.safetensors DESTINATION share/falchion)  # for its demo
endif()

configure_package_config_file(cmake/falchion-config.cmake.in ${PROJECT_BINARY_DIR}/falchion-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/falchion-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/falchion-config.cmake ${PROJECT_BINARY_DIR}/falchion-config-version.cmake
  DESTINATION ${package_dir})

# In the pkg-config file the libraries that a static falchion needs go to Libs.private.
set(pc_private "-lstdc++")
foreach(lib IN LISTS falchion_runtime_libs)
  if(lib MATCHES "^-")
    string(APPEND pc_private " ${lib}")
  else()
    string(APPEND pc_private " -l${lib}")
  endif()
endforeach()
if(FALCHION_CUDA)
  string(APPEND pc_private " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt")
endif()
file(RELATIVE_PATH pc_prefix "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/p")  # the package may be moved
configure_file(cmake/falchion.pc.in ${PROJECT_BINARY_DIR}/falchion.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/falchion.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
