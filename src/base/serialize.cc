#include "ballast/serialize.h"

#include <cstring>

#include "base/fail.h"

namespace ballast {

void ByteReader::read(void* out, std::size_t size) {
  require(size <= left(), "{}: ends at byte {}, {} more were expected", what_, bytes_.size(),
          size - left());
  if (size != 0) std::memcpy(out, bytes_.data() + at_, size);
  at_ += size;
}

std::string ByteReader::get_text() {
  const auto size = get<std::uint64_t>();
  require(size <= left(), "{}: a text of {} bytes at byte {} runs past the end", what_, size, at_);
  std::string text(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
  at_ += size;
  return text;
}

std::size_t ByteReader::get_count(std::size_t limit, const char* name) {
  const auto count = get<std::uint64_t>();
  require(count <= limit, "{}: {} is {}, at most {} is possible", what_, name, count, limit);
  return count;
}

}  // namespace ballast
