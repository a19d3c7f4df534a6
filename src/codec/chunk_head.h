// The head of a chunk:
//
//   bytes  what
//   8      "BALLASTK"
//   u32    version, 1
//   u32    CRC-32 of all that follows, to the end of the chunk
//   u64    bytes of the chunk
//   u64    Codec::fingerprint()
//   u32 ×4 layers, KV heads, dimension of keys, of values
//   u64    tokens
//   i64    position of the first token; -1: not known
//   u64    preset, as text, filled up with zeros
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ballast/codec.h"

namespace ballast {

inline constexpr std::size_t kChunkHeadBytes = 72;

/// Writes the head in front of the body that the chunk already holds.
void write_chunk_head(const ChunkInfo& info, std::span<std::byte> chunk);
/// Throws Error on anything but the head of a whole chunk with the right checksum. `chunk` may have
/// bytes beyond the chunk.
ChunkInfo read_chunk_head(std::span<const std::byte> chunk);

}  // namespace ballast
