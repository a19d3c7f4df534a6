# Debian packages by CPack: cmake --preset packages && cmake --build --preset packages
if(NOT PROJECT_IS_TOP_LEVEL OR SKBUILD)
  return()
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The authors of Ballast <ballast@localhost>")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # Depends: of the libraries that the files are linked with
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)

# A package of the component of this name.
function(ballast_package name section summary)
  cmake_parse_arguments(extra "" "DEPENDS;RECOMMENDS" "CONTROL" ${ARGN})
  string(TOUPPER CPACK_DEBIAN_${name} prefix)
  set(${prefix}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(${prefix}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(${prefix}_DESCRIPTION "${summary}" PARENT_SCOPE)
  set(${prefix}_PACKAGE_DEPENDS "${extra_DEPENDS}" PARENT_SCOPE)
  set(${prefix}_PACKAGE_RECOMMENDS "${extra_RECOMMENDS}" PARENT_SCOPE)
  set(${prefix}_PACKAGE_CONTROL_EXTRA "${extra_CONTROL}" PARENT_SCOPE)
  # Where Debian looks for the licence; an installation without packages has its own copy.
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} RENAME copyright
          COMPONENT ${name} EXCLUDE_FROM_ALL)
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${name} PARENT_SCOPE)
endfunction()

set(CPACK_COMPONENTS_ALL)
set(CPACK_DEBIAN_LIBBALLAST0_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
ballast_package(libballast0 libs "small key-value caches for language models - library")
ballast_package(libballast-dev libdevel "small key-value caches for language models - headers"
  DEPENDS "libballast0 (= ${PROJECT_VERSION})"
  # For the static C++ libraries; C programs need none of them.
  RECOMMENDS "libfmt-dev, libhwy-dev, zlib1g-dev, libicu-dev, libsentencepiece-dev, libpng-dev, libturbojpeg0-dev, libwebp-dev")
if(BALLAST_ENGINE)
  ballast_package(ballast utils "small key-value caches for language models - program"
    RECOMMENDS "librsvg2-bin, poppler-utils")
endif()
if(BALLAST_PYTHON)
  set(scripts ${CMAKE_CURRENT_BINARY_DIR}/python-scripts)
  # The interpreter's compiled files come and go with the package.
  file(WRITE ${scripts}/postinst "#!/bin/sh
set -e
if [ \"$1\" = configure ] && command -v py3compile >/dev/null; then
  py3compile -p python3-ballast
fi
")
  file(WRITE ${scripts}/prerm "#!/bin/sh
set -e
if command -v py3clean >/dev/null; then
  py3clean -p python3-ballast
fi
")
  file(CHMOD ${scripts}/postinst ${scripts}/prerm
       PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  math(EXPR next_minor "${Python_VERSION_MINOR} + 1")
  ballast_package(python3-ballast python "small key-value caches for language models - Python"
    DEPENDS "python3 (>= 3.${Python_VERSION_MINOR}), python3 (<< 3.${next_minor}), python3-numpy"
    CONTROL ${scripts}/postinst ${scripts}/prerm)
endif()
include(CPack)
