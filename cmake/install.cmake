# Headers, libraries, falchion-config.cmake, falchion.pc, the command.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/falchion)

set(libraries falchion)
if(TARGET falchion_shared)
  list(APPEND libraries falchion_shared)
endif()
install(TARGETS ${libraries} EXPORT falchion-targets)
install(DIRECTORY include/falchion TYPE INCLUDE FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(EXPORT falchion-targets NAMESPACE falchion:: DESTINATION ${package_dir})
install(FILES LICENSE TYPE DOC)
if(TARGET falchion_command)
  install(TARGETS falchion_command)
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
