#include "codec/chunk_head.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "ballast/serialize.h"
#include "base/fail.h"

namespace ballast {
namespace {

constexpr std::array<char, 8> kMagic = {'B', 'A', 'L', 'L', 'A', 'S', 'T', 'K'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kSummed = 16;  // the checksum is of what follows from here
constexpr std::size_t kPresetBytes = 8;

std::uint32_t crc_of(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

void write_chunk_head(const ChunkInfo& info, std::span<std::byte> chunk) {
  MemoryWriter out;
  out.put(info.bytes);
  out.put(info.model);
  for (std::size_t n : {info.layers, info.kv_heads, info.key_dim, info.value_dim}) {
    out.put(static_cast<std::uint32_t>(n));
  }
  out.put(info.tokens);
  out.put(info.position);
  std::array<char, kPresetBytes> preset{};
  std::copy_n(info.preset.begin(), std::min(info.preset.size(), preset.size()), preset.begin());
  out.put(preset);
  std::copy(out.bytes.begin(), out.bytes.end(), chunk.begin() + kSummed);
  MemoryWriter front;
  front.put(kMagic);
  front.put(kVersion);
  front.put(crc_of(chunk.first(info.bytes).subspan(kSummed)));
  std::copy(front.bytes.begin(), front.bytes.end(), chunk.begin());
}

ChunkInfo read_chunk_head(std::span<const std::byte> chunk) {
  require(
      chunk.size() >= kMagic.size() && std::memcmp(chunk.data(), kMagic.data(), kMagic.size()) == 0,
      ErrorCode::bad_file, "not a chunk of Ballast");
  require(chunk.size() >= kChunkHeadBytes, ErrorCode::bad_file,
          "a chunk is cut: {} bytes, its head alone has {}", chunk.size(), kChunkHeadBytes);
  ByteReader in(chunk.subspan(kMagic.size()), "a chunk");
  const auto version = in.get<std::uint32_t>();
  require(version == kVersion, ErrorCode::bad_file,
          "a chunk of version {}; this program reads version {}", version, kVersion);
  const auto crc = in.get<std::uint32_t>();
  ChunkInfo info;
  info.bytes = in.get<std::uint64_t>();
  require(info.bytes >= kChunkHeadBytes && info.bytes <= chunk.size(), ErrorCode::bad_file,
          "a chunk is cut: {} bytes of {}", chunk.size(), info.bytes);
  require(crc == crc_of(chunk.first(info.bytes).subspan(kSummed)), ErrorCode::bad_file,
          "a chunk is damaged: its checksum does not fit its content");
  info.model = in.get<std::uint64_t>();
  for (std::size_t* n : {&info.layers, &info.kv_heads, &info.key_dim, &info.value_dim}) {
    *n = in.get<std::uint32_t>();
  }
  info.tokens = in.get<std::uint64_t>();
  info.position = in.get<std::int64_t>();
  const auto preset = in.get<std::array<char, kPresetBytes>>();
  info.preset.assign(preset.begin(), std::find(preset.begin(), preset.end(), '\0'));
  return info;
}

}  // namespace ballast
