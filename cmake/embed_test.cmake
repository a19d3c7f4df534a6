# Installs Ballast into an empty prefix, builds examples/embed against it and runs it.
# Arguments: BUILD (the build folder), SOURCE, WORK (emptied first), GENERATOR, COMPILER, FLAGS
file(REMOVE_RECURSE ${WORK})
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${SOURCE}/examples/embed -B ${WORK}/build -G ${GENERATOR}
    -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCMAKE_CXX_COMPILER=${COMPILER}
    -DCMAKE_CXX_FLAGS=${FLAGS})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/embed)
message("${output}")
if(NOT output MATCHES "summary: 2001 tokens, 54[0-9] entries")
  message(FATAL_ERROR "the example printed something else than expected:\n${output}")
endif()
