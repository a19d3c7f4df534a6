# `cmake --build build --target format` rewrites; `format-check` only reports.
find_program(CLANG_FORMAT NAMES clang-format clang-format-14)
if(CLANG_FORMAT)
  file(GLOB_RECURSE formatted CONFIGURE_DEPENDS
    ${CMAKE_CURRENT_SOURCE_DIR}/include/*.h ${CMAKE_CURRENT_SOURCE_DIR}/src/*.h
    ${CMAKE_CURRENT_SOURCE_DIR}/src/*.cc ${CMAKE_CURRENT_SOURCE_DIR}/tests/*.h
    ${CMAKE_CURRENT_SOURCE_DIR}/tests/*.cc ${CMAKE_CURRENT_SOURCE_DIR}/lab/*.h
    ${CMAKE_CURRENT_SOURCE_DIR}/lab/*.cc
    ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/*.h ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/*.cc
    ${CMAKE_CURRENT_SOURCE_DIR}/examples/*.cc
    ${CMAKE_CURRENT_SOURCE_DIR}/examples/*.h)
  # What `./lab/bench.sh` installs to compare with is not ours.
  list(FILTER formatted EXCLUDE REGEX "/node_modules/")
  add_custom_target(format COMMAND ${CLANG_FORMAT} -i ${formatted})
  add_custom_target(format-check COMMAND ${CLANG_FORMAT} --dry-run -Werror ${formatted})
endif()
