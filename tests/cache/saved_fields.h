// Where the fields of a saved cache of make_stream()'s shape lie. Rows are f32; the method has no
// shared state, and a summary of SelectionSummary (h2o) or none (streaming-llm, exact).
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "ballast/cache.h"
#include "cache/streams.h"

namespace ballast::test {

struct SavedHead {
  std::size_t begin = 0;  ///< capacity, tokens, sink: u64 each
  std::size_t has_summary = 0;
  std::size_t summary = 0;  ///< entries; 0: none
  std::size_t positions = 0;
  std::size_t window = 0;  ///< capacity, oldest, size: u64 each
  std::size_t end = 0;
};

struct SavedLayer {
  std::size_t begin = 0;   ///< state, finished: u8 each; tokens: u64
  std::size_t budget = 0;  ///< sink, summary, window, step: u64 each
  std::vector<SavedHead> heads;
  std::size_t end = 0;
};

class SavedFields {
 public:
  SavedFields(const Cache& cache, const std::string& bytes) : bytes_(bytes) {
    const CacheShape& s = cache.shape();
    const bool sums = cache.options().policy.needs().attention_sums;
    const std::size_t row = (s.key_dim + s.value_dim) * sizeof(float);
    at_ = 12 + 40;
    scale = at_;
    at_ += 12;
    for (int array = 0; array < 3; ++array) skip(4);
    skip(8);
    at_ += 8;  // one rotation
    skip(4);
    at_ += 5;
    skip(1);
    at_ += 4;
    seed = at_;
    at_ += 16;
    skip(1);
    for (std::size_t l = 0; l < s.layers; ++l) {
      SavedLayer layer;
      layer.begin = at_;
      layer.budget = at_ + 10;
      at_ += 42 + 9;
      for (std::size_t h = 0; h < s.kv_heads; ++h) {
        SavedHead head;
        head.begin = at_;
        at_ += 24 + 10 + number(at_ + 16) * row;  // no means, no first tokens apart
        head.has_summary = at_;
        if (bytes_[at_++] != 0) {
          head.summary = at_;
          const std::size_t n = number(at_);
          head.positions = at_ + 8 + n * row;
          at_ = head.positions + n * 8 + 12 + n * 8;
        }
        head.window = at_;
        at_ += 24 + number(at_ + 16) * (row + (sums ? 4 : 0));
        head.end = at_;
        layer.heads.push_back(head);
      }
      layer.end = at_;
      layers.push_back(layer);
    }
    end = at_;
  }

  std::size_t scale = 0;  ///< f32 scale, f32 soft cap, i32 sliding window
  std::size_t seed = 0;   ///< u64, then u64 expected tokens
  std::vector<SavedLayer> layers;
  std::size_t end = 0;  ///< of the last layer: where the checksum stands

 private:
  std::uint64_t number(std::size_t at) const {
    std::uint64_t x = 0;
    std::memcpy(&x, bytes_.data() + at, sizeof(x));
    return x;
  }
  void skip(std::size_t size) { at_ += 8 + number(at_) * size; }

  const std::string& bytes_;
  std::size_t at_ = 0;
};

inline std::string saved(const Cache& cache) {
  const std::vector<std::byte> bytes = cache.to_bytes("a note");
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename T>
void put(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
}

}  // namespace ballast::test
