# Compiles every public header by itself, twice in one source, with the strictest warnings.
# Arguments: SOURCE, WORK, COMPILER
file(MAKE_DIRECTORY ${WORK})
file(GLOB_RECURSE headers RELATIVE ${SOURCE}/include ${SOURCE}/include/*.h)
if(NOT headers)
  message(FATAL_ERROR "there are no headers in ${SOURCE}/include")
endif()
set(failed)
foreach(header ${headers})
  file(WRITE ${WORK}/header.cc "#include <${header}>\n#include <${header}>\n")
  execute_process(
    COMMAND ${COMPILER} -std=c++20 -Wall -Wextra -Wpedantic -Werror -fsyntax-only
            -I${SOURCE}/include ${WORK}/header.cc
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message("${header} does not compile alone:\n${output}")
    list(APPEND failed ${header})
  endif()
endforeach()
if(failed)
  message(FATAL_ERROR "headers that do not compile alone: ${failed}")
endif()
