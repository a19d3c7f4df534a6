#include "ballast/engine/calibration.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "ballast/engine/model.h"
#include "ballast/serialize.h"
#include "base/checks.h"
#include "base/fail.h"
#include "base/fnv.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "base/thread_pool.h"
#include "model/calibration_data.h"
#include "model/weights.h"
#include "simd/vector_math.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

constexpr std::array<char, 8> kMagic = {'B', 'A', 'L', 'L', 'A', 'S', 'T', 'S'};
constexpr std::uint32_t kVersion = 1;

/// log |head h|, where a row has `heads` of them.
float log_norm(std::span<const float> row, std::size_t heads, std::size_t h) {
  const std::size_t dim = row.size() / heads;
  const std::span<const float> head = row.subspan(h * dim, dim);
  return 0.5f * std::log(std::max(kernels::dot(head, head), 1e-30f));
}

std::size_t features(const ModelConfig& c) { return c.width + 2 * c.kv_heads; }

}  // namespace

void fill_features(std::span<const float> input, std::span<const float> keys,
                   std::span<const float> values, std::size_t heads, std::span<float> out) {
  std::ranges::copy(input, out.begin());
  for (std::size_t h = 0; h < heads; ++h) {
    out[input.size() + h] = log_norm(keys, heads, h);
    out[input.size() + heads + h] = log_norm(values, heads, h);
  }
}

void Calibration::score(std::size_t layer, ConstMatrix inputs, ConstMatrix keys, ConstMatrix values,
                        MutableMatrix out) const {
  const Layer& of = layers_.at(layer);
  const std::size_t heads = of.weights.rows(), count = of.weights.cols();
  require(inputs.cols + 2 * heads == count && out.cols == heads && out.rows == inputs.rows,
          "scores of {} KV heads from {} features are asked of {} and {}", heads, count, out.cols,
          inputs.cols + 2 * heads);
  constexpr std::size_t kParallelWork = 256 * 1024;
  parallel_for(
      inputs.rows,
      [&](std::size_t t) {
        thread_local std::vector<float> row;
        row.resize(count);
        fill_features(inputs[t], keys[t], values[t], heads, row);
        for (std::size_t h = 0; h < heads; ++h) {
          const float log_score = of.offsets[h] + kernels::dot(of.weights[h], row);
          out[t][h] = std::exp(std::clamp(log_score, -40.0f, 40.0f));
        }
      },
      inputs.rows * heads * count >= kParallelWork);
}

std::shared_ptr<const Calibration> Calibration::part(std::size_t first, std::size_t count) const {
  std::vector<Layer> layers;
  for (const Layer& from : std::span(layers_).subspan(first, count)) {
    Layer& layer = layers.emplace_back();
    layer.offsets = from.offsets;
    layer.weights = Matrix(from.weights.rows(), from.weights.cols());
    for (std::size_t h = 0; h < from.weights.rows(); ++h) {
      std::ranges::copy(from.weights[h], layer.weights[h].begin());
    }
  }
  return std::make_shared<const Calibration>(key_, std::move(layers));
}

std::uint64_t Calibration::hash() const {
  Fnv hash;
  for (const Layer& layer : layers_) {
    for (std::size_t h = 0; h < layer.weights.rows(); ++h) {
      hash.add(std::as_bytes(layer.weights[h]));
    }
    hash.add(std::as_bytes(std::span(layer.offsets)));
  }
  return hash.value();
}

void Calibration::save(const fs::path& path) const {
  MemoryWriter out;
  out.put(kMagic);
  out.put(kVersion);
  out.put_text(key_);
  for (const Layer& layer : layers_) {
    out.put_all<float>(layer.offsets);
    std::vector<std::byte> half(layer.weights.cols() * 2);
    for (std::size_t h = 0; h < layer.weights.rows(); ++h) {
      encode(TensorType::f16, layer.weights[h], half);
      out.put_all<std::byte>(half);
    }
  }
  OutputFile file(path);
  file.write(out.bytes);
  file.commit();
}

Calibration Calibration::parse(std::span<const std::byte> bytes, const std::string& name,
                               const Model& model) {
  ByteReader in(bytes, name);
  require(
      bytes.size() > kMagic.size() && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0,
      "{}: not a calibration; make one with: ballast calibrate", name);
  in.get<std::array<char, 8>>();
  const auto version = in.get<std::uint32_t>();
  require(version == kVersion, ErrorCode::unsupported,
          "{}: a calibration of version {}, this program reads version {}: calibrate again", name,
          version, kVersion);
  std::string key = in.get_text();
  const std::string wanted = calibration_key(model);
  require(key == wanted, "{}: a calibration of {}, the model is {}: remove the file", name, key,
          wanted);
  const ModelConfig& c = model.config();
  std::vector<Layer> layers(c.attending().size());
  std::vector<std::byte> half(features(c) * 2);
  for (Layer& layer : layers) {
    layer.offsets.resize(c.kv_heads);
    in.get_all<float>(layer.offsets);
    layer.weights = Matrix(c.kv_heads, features(c));
    for (std::size_t h = 0; h < c.kv_heads; ++h) {
      in.get_all<std::byte>(half);
      decode(TensorType::f16, half, layer.weights[h]);
      require(first_not_finite(layer.weights[h]) == features(c) && std::isfinite(layer.offsets[h]),
              "{}: a weight is not finite", name);
    }
  }
  require(in.left() == 0, "{}: {} bytes too many", name, in.left());
  return Calibration(std::move(key), std::move(layers));
}

std::string calibration_key(const Model& model) {
  const ModelConfig& c = model.config();
  // Rounded, so that files of other types of a model have the same.
  Fnv hash;
  for (const LayerWeights& layer : model.weights().layers) {
    const Norm& before = layer.attention_norm;
    for (float x : before.there() ? before.weight : layer.post_attention_norm.weight) {
      const std::uint32_t rounded = (std::bit_cast<std::uint32_t>(x) + 0x8000u) >> 16;
      hash.add(std::as_bytes(std::span(&rounded, 1)).first(2));
    }
  }
  std::string family;  // as a file's name has it
  for (char x : to_string(c.family)) {
    if (x != ' ') family += static_cast<char>(x >= 'A' && x <= 'Z' ? x - 'A' + 'a' : x);
  }
  return fmt::format("{}-{}x{}x{}-{:016x}", family, c.layers, c.kv_heads, c.width, hash.value());
}

fs::path calibration_path(const Model& model) {
  const char* caches = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  fs::path folder;
  if (caches != nullptr && *caches != '\0') {
    folder = caches;
  } else if (home != nullptr && *home != '\0') {
    folder = fs::path(home) / ".cache";
  } else {
    return {};
  }
  return folder / "ballast" / "scores" / (calibration_key(model) + ".scores");
}

std::shared_ptr<const Calibration> find_calibration(const Model& model) {
  const fs::path& file = model.file().path();
  std::error_code unknown;
  const fs::path beside = fs::is_directory(file, unknown) ? file / "ballast.scores"
                                                          : fs::path(file.string() + ".scores");
  for (const fs::path& path : {beside, calibration_path(model)}) {
    if (path.empty() || !fs::exists(path, unknown)) continue;
    const MappedFile mapped(path);
    return std::make_shared<Calibration>(Calibration::parse(mapped.bytes(), path.string(), model));
  }
  for (const BuiltInFile& built_in : built_in_calibrations()) {
    if (built_in.name != calibration_key(model) + ".scores") continue;
    return std::make_shared<Calibration>(
        Calibration::parse(built_in.bytes, std::string(built_in.name), model));
  }
  return nullptr;
}

}  // namespace ballast
