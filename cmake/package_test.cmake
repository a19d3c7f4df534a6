# Installs Ballast into an empty prefix and checks what a program that uses it gets.
# Arguments: BUILD (the build folder), SOURCE, WORK (emptied first), GENERATOR, COMPILER, FLAGS,
# ENGINE (whether the engine was built), C_COMPILER, PYTHON (empty: no test with it)
file(REMOVE_RECURSE ${WORK})
set(prefix ${WORK}/prefix)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()
# The command must fail, and say something that matches.
function(run_failing says)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(status EQUAL 0 OR NOT output MATCHES "${says}")
    message(FATAL_ERROR "${ARGN}\nwas to fail and say '${says}':\n${output}")
  endif()
endfunction()
function(expect_output pattern)
  if(NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "'${pattern}' was expected in the output:\n${output}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})

# What is installed.
file(GLOB_RECURSE installed RELATIVE ${prefix} ${prefix}/*)
foreach(wanted /LICENSE$ /README.md$ /docs/methods.md$ /examples/c/cache.c$ /examples/story.txt$ include/ballast/cache.h$
        include/ballast/serialize.h$ include/ballast/testing/conformance.h$ /libballast-core.a$
        include/ballast.h$ /libballast.so.0$ /pkgconfig/ballast.pc$)
  set(found ${installed})
  list(FILTER found INCLUDE REGEX ${wanted})
  if(NOT found)
    message(FATAL_ERROR "${wanted} is not installed; what is: ${installed}")
  endif()
endforeach()
list(FILTER installed INCLUDE REGEX "(eval|report|/cli/|/src/).*[.](h|a)$")
if(installed)
  message(FATAL_ERROR "experiments are installed: ${installed}")
endif()

# A machine without ICU, SentencePiece and nlohmann-json: pkg-config finds Highway only.
run(pkg-config --variable=pcfiledir libhwy)
string(STRIP "${output}" pcfiledir)
file(COPY ${pcfiledir}/libhwy.pc DESTINATION ${WORK}/pkgconfig)
set(poor ${CMAKE_COMMAND} -E env --unset=PKG_CONFIG_PATH PKG_CONFIG_LIBDIR=${WORK}/pkgconfig
    ${CMAKE_COMMAND})
set(without -DCMAKE_DISABLE_FIND_PACKAGE_ICU=ON -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON)
set(options -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${COMPILER}
    -DCMAKE_CXX_FLAGS=${FLAGS})

# The core inside another program.
run(${poor} -S ${SOURCE}/examples/embed -B ${WORK}/embed ${options} ${without})
run(${CMAKE_COMMAND} --build ${WORK}/embed)
run(${WORK}/embed/embed)
message("${output}")
expect_output("summary: 2001 tokens, 54[0-9] entries")

# A method from outside the tree, with the conformance tests.
run(${poor} -S ${SOURCE}/examples/method -B ${WORK}/method ${options} ${without})
run(${CMAKE_COMMAND} --build ${WORK}/method)
run(${WORK}/method/method_test --gtest_brief=1)
message("${output}")
expect_output("PASSED")

# libballast from C: a CMake project, and one line with pkg-config. Nothing else is needed to link.
run(${CMAKE_COMMAND} -E env --unset=PKG_CONFIG_PATH PKG_CONFIG_LIBDIR=/nonexistent
    ${CMAKE_COMMAND} -S ${SOURCE}/examples/c -B ${WORK}/c -G ${GENERATOR}
    -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_C_COMPILER=${C_COMPILER} -DCMAKE_C_FLAGS=${FLAGS})
run(${CMAKE_COMMAND} --build ${WORK}/c)
run(${WORK}/c/cache)
expect_output("summary: 2001 tokens, 1[67][0-9][0-9] entries")
file(GLOB_RECURSE shared_library ${prefix}/*/libballast.so.0)
get_filename_component(library_dir ${shared_library} DIRECTORY)
run(${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${library_dir}/pkgconfig
    pkg-config --cflags --libs ballast)
string(STRIP "${output}" flags)
separate_arguments(flags)
run(${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${library_dir}/pkgconfig
    pkg-config --variable=libdir ballast)
string(STRIP "${output}" libdir)
run(${C_COMPILER} -std=c99 -Wall -Wextra -Wpedantic -Werror ${FLAGS} ${SOURCE}/examples/c/cache.c
    -o ${WORK}/cache ${flags} -Wl,-rpath,${libdir} -lm)
run(${WORK}/cache)
message("${output}")
expect_output("summary: 2001 tokens, 1[67][0-9][0-9] entries")
if(PYTHON)
  run(${PYTHON} ${SOURCE}/examples/c/cache.py ${shared_library})
  message("${output}")
  expect_output("summary: 2001 tokens, 1[67][0-9][0-9] entries")
endif()
if(ENGINE)
  run(${WORK}/c/generate ${SOURCE}/models/ballast-mini.gguf "one two three" 1/8)
  message("${output}")
  expect_output("[a-z]")
endif()

# A component that does not exist.
file(WRITE ${WORK}/unknown/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)
project(unknown LANGUAGES CXX)\nfind_package(ballast REQUIRED COMPONENTS core cores)\n")
run_failing("no component 'cores'" ${CMAKE_COMMAND} -S ${WORK}/unknown -B ${WORK}/unknown/build
            ${options})

# Ballast itself needs no more for its core.
run(${poor} -S ${SOURCE} -B ${WORK}/core -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
    -DBALLAST_ENGINE=OFF ${without})
run(${CMAKE_COMMAND} --build ${WORK}/core --target help)
expect_output("ballast_core")
if(output MATCHES "ballast_(engine|eval|program)")
  message(FATAL_ERROR "without the engine there are targets of it:\n${output}")
endif()

if(NOT ENGINE)
  return()
endif()
# The engine: refused where its libraries are missing, linked and run where they are not.
run_failing("ICU" ${poor} -S ${SOURCE}/examples/ask -B ${WORK}/poor ${options} ${without})
run_failing("sentencepiece" ${poor} -S ${SOURCE}/examples/ask -B ${WORK}/poor ${options}
            -UCMAKE_DISABLE_FIND_PACKAGE_ICU)
run(${CMAKE_COMMAND} -S ${SOURCE}/examples/ask -B ${WORK}/engine ${options})
run(${CMAKE_COMMAND} --build ${WORK}/engine)
run(${WORK}/engine/ask ${SOURCE}/models/ballast-mini.gguf ${SOURCE}/examples/record.txt
    "What is the register content of line gaudy-dove?")
message("${output}")
expect_output("37211")
