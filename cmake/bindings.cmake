# libballast: the C ABI of include/ballast.h as a shared library that exports its functions alone.
set(c_sources src/bindings/options.cc src/bindings/c/cache.cc src/bindings/c/codec.cc
  src/bindings/c/status.cc)
if(BALLAST_ENGINE)
  list(APPEND c_sources src/bindings/c/model.cc src/bindings/c/library.cc)
endif()
add_library(ballast_c SHARED ${c_sources})
set_target_properties(ballast_c PROPERTIES EXPORT_NAME c OUTPUT_NAME ballast
  VERSION ${PROJECT_VERSION} SOVERSION 0 VISIBILITY_INLINES_HIDDEN ON
  LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/bindings/c/exports.map)
target_include_directories(ballast_c
  PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>
  PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
# The static libraries are inside, so whoever links it needs none of them.
target_link_libraries(ballast_c PRIVATE
  $<BUILD_INTERFACE:$<IF:$<BOOL:${BALLAST_ENGINE}>,ballast_library,ballast_core>>
  $<BUILD_INTERFACE:ballast_warnings> $<BUILD_INTERFACE:fmt::fmt>)
if(NOT APPLE)  # whose linker has neither option
  target_link_options(ballast_c PRIVATE
    -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/src/bindings/c/exports.map)
endif()
add_library(ballast::c ALIAS ballast_c)

# The Python package. Its files are linked beside the module: build/python is ready to import from.
if(BALLAST_PYTHON)
  if(NOT BALLAST_ENGINE)
    message(FATAL_ERROR "BALLAST_PYTHON needs the engine: leave BALLAST_ENGINE on")
  endif()
  # Debian's own interpreter, which has the headers, unless another is named.
  if(NOT DEFINED Python_EXECUTABLE AND NOT DEFINED SKBUILD AND EXISTS /usr/bin/python3)
    set(Python_EXECUTABLE /usr/bin/python3)
  endif()
  find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
  set(PYBIND11_FINDPYTHON ON)
  find_package(pybind11 REQUIRED)
  file(GLOB python_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/bindings/python/*.cc)
  pybind11_add_module(ballast_python NO_EXTRAS ${python_sources} src/bindings/options.cc)
  set_target_properties(ballast_python PROPERTIES OUTPUT_NAME _ballast
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/python/ballast)
  target_include_directories(ballast_python PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_link_libraries(ballast_python PRIVATE ballast_hub ballast_library ballast_warnings
    fmt::fmt nlohmann_json::nlohmann_json)
  # It fetches no models, and needs no library for that.
  target_link_options(ballast_python PRIVATE $<$<NOT:$<PLATFORM_ID:Darwin>>:-Wl,--as-needed>)
  target_compile_options(ballast_python PRIVATE $<$<CONFIG:Release>:-O1>)
  file(GLOB package_files CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/python/ballast
    ${CMAKE_CURRENT_SOURCE_DIR}/python/ballast/*.py ${CMAKE_CURRENT_SOURCE_DIR}/python/ballast/*.pyi
    ${CMAKE_CURRENT_SOURCE_DIR}/python/ballast/py.typed)
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/python/ballast)
  foreach(file ${package_files})
    file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/python/ballast/${file}
         ${CMAKE_CURRENT_BINARY_DIR}/python/ballast/${file} SYMBOLIC)
  endforeach()
endif()
