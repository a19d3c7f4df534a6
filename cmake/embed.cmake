# Writes the bytes of INPUT into OUTPUT, the source of ballast::serve::page().
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"serve/page.h\"

namespace ballast::serve {

std::string_view page() {
  static const unsigned char bytes[] = {${bytes}};
  return {reinterpret_cast<const char*>(bytes), sizeof bytes};
}

}  // namespace ballast::serve
")
