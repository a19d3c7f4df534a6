# libballast: the C ABI of include/ballast.h as a shared library that exports its functions alone.
set(c_sources src/bindings/options.cc src/bindings/c/cache.cc src/bindings/c/status.cc)
if(BALLAST_ENGINE)
  list(APPEND c_sources src/bindings/session.cc src/bindings/c/model.cc)
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
  $<BUILD_INTERFACE:$<IF:$<BOOL:${BALLAST_ENGINE}>,ballast_engine,ballast_core>>
  $<BUILD_INTERFACE:ballast_warnings> $<BUILD_INTERFACE:fmt::fmt>)
target_link_options(ballast_c PRIVATE
  -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/src/bindings/c/exports.map)
add_library(ballast::c ALIAS ballast_c)
