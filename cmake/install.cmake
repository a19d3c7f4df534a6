include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
install(TARGETS ballast_core EXPORT ballast-core-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/ballast DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} PATTERN engine EXCLUDE)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ballast)
install(EXPORT ballast-core-targets NAMESPACE ballast:: DESTINATION ${package_dir})
if(BALLAST_ENGINE)
  install(TARGETS ballast_engine EXPORT ballast-engine-targets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(TARGETS ballast_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY include/ballast/engine DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ballast)
  install(EXPORT ballast-engine-targets NAMESPACE ballast:: DESTINATION ${package_dir})
endif()
configure_package_config_file(cmake/ballast-config.cmake.in ballast-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(ballast-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ballast-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/ballast-config-version.cmake
        DESTINATION ${package_dir})
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs)
