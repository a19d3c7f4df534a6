include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
install(TARGETS ballast EXPORT ballast-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET ballast_program)
  install(TARGETS ballast_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY include/ballast DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ballast)
install(EXPORT ballast-targets NAMESPACE ballast:: DESTINATION ${package_dir})
configure_package_config_file(cmake/ballast-config.cmake.in ballast-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(ballast-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ballast-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/ballast-config-version.cmake
        DESTINATION ${package_dir})
