#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "ballast/pack.h"
#include "base/checks.h"
#include "base/fail.h"
#include "base/fnv.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "storage/round.h"

// The file of a basis is little-endian, without padding.
//
//   8 bytes, u32     magic BALLASTB, version 2
//   text             key of the model
//   4 × u64          layers, kv_heads, key_dim, value_dim
//   u64              groups; each:
//     u64, u32[n]      layers
//     f32[=N]          mean
//     each matrix      f32 scale, then f16 elements divided by it: the lower triangle, row by row
//     u64              directions k
//     f32[=k], f32[=k] variances, scales of the basis
//     i8[=k·N]         basis
//     u64, i8[=r·N]    r fine rows
//     u64              s: scores, 0 or layers · KV heads
//     f32[=s], f32[=s·k]  their offsets, their weights
//   u64              presets; each: u32 divisor, f32 step, f32 loss
//   u32              CRC-32 of all bytes before it
namespace ballast {
namespace {

constexpr std::array<char, 8> kMagic = {'B', 'A', 'L', 'L', 'A', 'S', 'T', 'B'};
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kMostDim = 4096;  // of a head

template <typename T>
void add_all(Fnv& hash, const std::vector<T>& values) {
  hash.add(values.size());
  hash.add(std::as_bytes(std::span(values)));
}

/// action(size, first element) for each matrix of a group's metric.
template <typename Action>
void for_each_matrix(const PackBasis& basis, const PackGroup& group, const Action& action) {
  std::size_t at = 0;
  for (std::size_t l = 0; l < group.layers.size(); ++l) {
    for (std::size_t dim : {basis.key_dim, basis.value_dim}) {
      for (std::size_t h = 0; h < basis.kv_heads; ++h) {
        action(dim, at);
        at += dim * dim;
      }
    }
  }
}

void put_matrix(ByteWriter& out, std::size_t size, std::span<const float> matrix) {
  float most = 0;
  for (float x : matrix) most = std::max(most, std::fabs(x));
  int exponent = 0;
  std::frexp(most, &exponent);  // a power of two, so that only f16 rounds
  const float scale = most > 0 ? std::ldexp(1.0f, exponent) : 1.0f;
  out.put(scale);
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      out.put(kernels::f16_encode(matrix[i * size + j] / scale));
    }
  }
}

void get_matrix(ByteReader& in, std::size_t size, std::span<float> matrix) {
  const auto scale = in.get<float>();
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      const float x = kernels::f16_decode(in.get<std::uint16_t>()) * scale;
      matrix[i * size + j] = matrix[j * size + i] = x;
    }
  }
}

std::uint32_t crc_of(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

std::uint64_t PackBasis::hash() const {
  Fnv hash;
  hash.add(std::as_bytes(std::span(model)));
  for (std::size_t n : {layers, kv_heads, key_dim, value_dim, groups.size()}) hash.add(n);
  for (const PackGroup& group : groups) {
    add_all(hash, group.layers);
    add_all(hash, group.mean);
    add_all(hash, group.metric);
    add_all(hash, group.variance);
    add_all(hash, group.basis);
    add_all(hash, group.basis_scale);
    add_all(hash, group.fine);
  }
  return hash.value();
}

bool PackBasis::has_scores() const {
  return std::ranges::none_of(groups, [](const PackGroup& g) { return g.score_offsets.empty(); });
}

void PackBasis::check(const std::string& name) const {
  require(layers > 0 && kv_heads > 0 && key_dim > 0 && value_dim > 0 && key_dim <= kMostDim &&
              value_dim <= kMostDim,
          "{}: a basis for {} layers of {} KV heads, keys of {} and values of {} elements", name,
          layers, kv_heads, key_dim, value_dim);
  std::vector<bool> found(layers);
  const auto positive = [](float x) { return x > 0 && std::isfinite(x); };
  for (const PackGroup& group : groups) {
    for (std::size_t layer : group.layers) {
      require(layer < layers && !found[layer], "{}: layer {} of {} is in two groups, or is none",
              name, layer, layers);
      found[layer] = true;
    }
    const std::size_t n = group.layers.size() * layer_width(), k = group.directions();
    const std::size_t scores = group.score_offsets.size();
    require(std::ranges::is_sorted(group.layers) && n > 0 && group.mean.size() == n &&
                group.metric.size() == group.layers.size() * metric_size() && k > 0 && k <= n &&
                group.basis_scale.size() == k && group.basis.size() == k * n &&
                group.fine.size() % n == 0 && group.fine.size() <= k * n &&
                (scores == 0 || scores == group.layers.size() * kv_heads) &&
                group.score_weights.size() == scores * k,
            "{}: a group of {} layers has sizes that do not fit together", name,
            group.layers.size());
    require(first_not_finite(group.mean) == n &&
                first_not_finite(group.metric) == group.metric.size() &&
                std::ranges::all_of(group.variance, positive) &&
                std::ranges::all_of(group.basis_scale, positive) &&
                first_not_finite(group.score_offsets) == scores &&
                first_not_finite(group.score_weights) == scores * k,
            "{}: an element is not finite, or a variance or scale not positive", name);
  }
  require(std::ranges::count(found, true) == static_cast<std::ptrdiff_t>(layers),
          "{}: a layer is in no group", name);
  for (const PackPreset& preset : presets) {
    require(preset.divisor > 0 && positive(preset.step) && preset.loss >= 0 &&
                std::isfinite(preset.loss),
            "{}: a preset of 1/{} has step {} and loss {}", name, preset.divisor, preset.step,
            preset.loss);
  }
}

void PackBasis::save(const std::filesystem::path& path) const {
  check(path.string());
  MemoryWriter out;
  out.put(kMagic);
  out.put(kVersion);
  out.put_text(model);
  for (std::size_t n : {layers, kv_heads, key_dim, value_dim, groups.size()}) {
    out.put<std::uint64_t>(n);
  }
  for (const PackGroup& group : groups) {
    out.put<std::uint64_t>(group.layers.size());
    for (std::size_t layer : group.layers) out.put(static_cast<std::uint32_t>(layer));
    out.put_all<float>(group.mean);
    for_each_matrix(*this, group, [&](std::size_t size, std::size_t at) {
      put_matrix(out, size, std::span(group.metric).subspan(at, size * size));
    });
    out.put<std::uint64_t>(group.directions());
    out.put_all<float>(group.variance);
    out.put_all<float>(group.basis_scale);
    out.put_all<std::int8_t>(group.basis);
    out.put<std::uint64_t>(group.fine.size() / group.width());
    out.put_all<std::int8_t>(group.fine);
    out.put<std::uint64_t>(group.score_offsets.size());
    out.put_all<float>(group.score_offsets);
    out.put_all<float>(group.score_weights);
  }
  out.put<std::uint64_t>(presets.size());
  for (const PackPreset& preset : presets) {
    out.put(preset.divisor);
    out.put(preset.step);
    out.put(preset.loss);
  }
  out.put(crc_of(out.bytes));
  OutputFile file(path);
  file.write(out.bytes);
  file.commit();
}

PackBasis PackBasis::load(const std::filesystem::path& path) {
  const MappedFile file(path);
  return parse(file.bytes(), path.string());
}

PackBasis PackBasis::parse(std::span<const std::byte> bytes, const std::string& name) try {
  constexpr std::size_t head = sizeof(kMagic) + sizeof(kVersion), tail = sizeof(std::uint32_t);
  require(
      bytes.size() >= head + tail && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0,
      "{}: not a basis for packing; make one with: ballast calibrate", name);
  ByteReader in(bytes.subspan(sizeof(kMagic), bytes.size() - sizeof(kMagic) - tail), name);
  const auto version = in.get<std::uint32_t>();
  require(version == kVersion, ErrorCode::unsupported,
          "{}: a basis of version {}, this program reads version {}: calibrate again", name,
          version, kVersion);
  std::uint32_t stored = 0;
  std::memcpy(&stored, bytes.data() + bytes.size() - tail, tail);
  require(stored == crc_of(bytes.first(bytes.size() - tail)),
          "{}: damaged: its checksum does not fit its content", name);
  PackBasis out;
  out.model = in.get_text();
  // Every layer has elements in the file, which bounds what is allocated.
  out.layers = in.get_count(in.left(), "the number of layers");
  out.kv_heads = in.get_count(in.left(), "the number of KV heads");
  out.key_dim = in.get_count(kMostDim, "the key dimension");
  out.value_dim = in.get_count(kMostDim, "the value dimension");
  const std::size_t groups = in.get_count(out.layers, "the number of groups");
  for (std::size_t g = 0; g < groups; ++g) {
    PackGroup& group = out.groups.emplace_back();
    group.layers.resize(in.get_count(std::min(out.layers, in.left() / sizeof(std::uint32_t)),
                                     "the number of layers of a group"));
    for (std::size_t& layer : group.layers) layer = in.get<std::uint32_t>();
    const std::size_t most = in.left() / std::max<std::size_t>(group.layers.size(), 1);
    require(out.layer_width() <= most / sizeof(float) && out.metric_size() / 2 <= most,
            "{}: {} layers of {} elements cannot be in {} bytes", name, group.layers.size(),
            out.layer_width(), in.left());
    group.mean.resize(group.layers.size() * out.layer_width());
    in.get_all<float>(group.mean);
    group.metric.resize(group.layers.size() * out.metric_size());
    for_each_matrix(out, group, [&](std::size_t size, std::size_t at) {
      get_matrix(in, size, std::span(group.metric).subspan(at, size * size));
    });
    const std::size_t width = std::max<std::size_t>(group.width(), 1);
    const std::size_t k = in.get_count(in.left() / width, "the number of directions");
    group.variance.resize(k);
    group.basis_scale.resize(k);
    group.basis.resize(k * group.width());
    in.get_all<float>(group.variance);
    in.get_all<float>(group.basis_scale);
    in.get_all<std::int8_t>(group.basis);
    group.fine.resize(in.get_count(in.left() / width, "the number of fine rows") * group.width());
    in.get_all<std::int8_t>(group.fine);
    const std::size_t most_scores = in.left() / sizeof(float) / (1 + k);
    group.score_offsets.resize(in.get_count(most_scores, "the number of scores"));
    group.score_weights.resize(group.score_offsets.size() * k);
    in.get_all<float>(group.score_offsets);
    in.get_all<float>(group.score_weights);
  }
  out.presets.resize(in.get_count(in.left() / 12, "the number of presets"));
  for (PackPreset& preset : out.presets) {
    preset.divisor = in.get<std::uint32_t>();
    preset.step = in.get<float>();
    preset.loss = in.get<float>();
  }
  require(in.left() == 0, "{}: {} bytes too many", name, in.left());
  out.check(name);
  return out;
} catch (const Error& error) {
  rethrow_from_file(error);
}

}  // namespace ballast
