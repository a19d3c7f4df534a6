include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ballast)
# COMPONENT names the Debian package that a file is in: cmake/packages.cmake.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME libballast-dev)
# Targets of a part of find_package(), known to others as ballast::<EXPORT_NAME>.
function(ballast_install part)
  install(TARGETS ${ARGN} EXPORT ballast-${part}-targets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
            COMPONENT libballast0 NAMELINK_COMPONENT libballast-dev)
  install(EXPORT ballast-${part}-targets NAMESPACE ballast:: DESTINATION ${package_dir})
endfunction()

ballast_install(core ballast_core)
install(DIRECTORY include/ballast DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} PATTERN engine EXCLUDE)

ballast_install(c ballast_c)
install(FILES include/ballast.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Relative to the file, so that the prefix may move.
file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/ballast.pc.in ballast.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ballast.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# ballast::testing: headers with which a method from elsewhere is tested (include/ballast/testing).
add_library(ballast_testing INTERFACE)
set_target_properties(ballast_testing PROPERTIES EXPORT_NAME testing)
target_link_libraries(ballast_testing INTERFACE ballast_core GTest::gmock)
ballast_install(testing ballast_testing)

if(BALLAST_ENGINE)
  ballast_install(engine ballast_engine)
  install(TARGETS ballast_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ballast)
  install(DIRECTORY include/ballast/engine DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ballast)
endif()
if(BALLAST_PYTHON)
  # A wheel has the package at its root; Debian's Python looks where the default says.
  if(SKBUILD)
    set(python_dir .)
  else()
    set(python_dir lib/python3/dist-packages)
  endif()
  set(BALLAST_PYTHON_DIR ${python_dir} CACHE STRING "Where the Python package is installed")
  install(TARGETS ballast_python DESTINATION ${BALLAST_PYTHON_DIR}/ballast COMPONENT python3-ballast)
  if(SKBUILD)  # the program that ballast._program starts
    install(TARGETS ballast_program RUNTIME DESTINATION ballast/bin COMPONENT python3-ballast)
  endif()
  install(DIRECTORY python/ballast DESTINATION ${BALLAST_PYTHON_DIR} COMPONENT python3-ballast
          FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed"
          PATTERN "__pycache__" EXCLUDE)
endif()
configure_package_config_file(cmake/ballast-config.cmake.in ballast-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(ballast-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ballast-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/ballast-config-version.cmake
        DESTINATION ${package_dir})
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT ballast)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT ballast)
install(DIRECTORY examples/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT ballast
        PATTERN __pycache__ EXCLUDE)
