# Writes OUTPUT, a C++ source with the bytes of files. TARGET_KIND=text: the one file INPUT, as the
# function NAMESPACE::FUNCTION() that HEADER declares. TARGET_KIND=calibration: INPUT is a folder;
# its *.scores, *.txt and packing/*.txt, and those of held-out beside it, become what
# src/model/calibration_data.h declares.
function(hex_of file out)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  set(${out} "${bytes}" PARENT_SCOPE)
endfunction()

if(TARGET_KIND STREQUAL text)
  hex_of(${INPUT} bytes)
  file(WRITE ${OUTPUT} "#include \"${HEADER}\"

namespace ${NAMESPACE} {

std::string_view ${FUNCTION}() {
  static const unsigned char bytes[] = {${bytes}};
  return {reinterpret_cast<const char*>(bytes), sizeof bytes};
}

}  // namespace ${NAMESPACE}
")
  return()
endif()

set(source "#include <array>\n\n#include \"model/calibration_data.h\"\n\nnamespace ballast {\n")
foreach(kind scores texts packing held_out)
  if(kind STREQUAL scores)
    set(function built_in_calibrations)
    file(GLOB files ${INPUT}/*.scores)
  elseif(kind STREQUAL texts)
    set(function calibration_texts)
    file(GLOB files ${INPUT}/*.txt)
  elseif(kind STREQUAL packing)
    set(function packing_texts)
    file(GLOB files ${INPUT}/packing/*.txt)
  else()
    set(function held_out_texts)
    file(GLOB files ${INPUT}/../held-out/*.txt)
  endif()
  list(LENGTH files count)
  set(number 0)
  set(entries "")
  foreach(file ${files})
    hex_of(${file} bytes)
    get_filename_component(name ${file} NAME)
    string(APPEND source
      "namespace { const unsigned char ${kind}_${number}[] = {${bytes}}; }\n")
    string(APPEND entries
      "      BuiltInFile{\"${name}\", std::as_bytes(std::span(${kind}_${number}))},\n")
    math(EXPR number "${number} + 1")
  endforeach()
  string(APPEND source "
std::span<const BuiltInFile> ${function}() {
  static const std::array<BuiltInFile, ${count}> files = {\n${entries}  };
  return files;
}
")
endforeach()
file(WRITE ${OUTPUT} "${source}\n}  // namespace ballast\n")
