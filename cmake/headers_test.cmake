# Compiles every public header by itself, twice in one source, with the strictest warnings.
# ballast.h is C too. Arguments: SOURCE, WORK, COMPILER, C_COMPILER
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
file(WRITE ${WORK}/header.c "#include <ballast.h>\n#include <ballast.h>\n"
     "int main(void) { return ballast_cache_default_params().size == 0; }\n")
foreach(language "-xc;-std=c99" "-xc;-std=c11;-Wstrict-prototypes" "-xc++;-std=c++11" "-xc++;-std=c++20")
  execute_process(
    COMMAND ${C_COMPILER} ${language} -Wall -Wextra -Wpedantic -Wconversion -Werror -fsyntax-only
            -I${SOURCE}/include ${WORK}/header.c
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message("ballast.h as ${language}:\n${output}")
    list(APPEND failed ballast.h)
  endif()
endforeach()
if(failed)
  message(FATAL_ERROR "headers that do not compile alone: ${failed}")
endif()
