// A model whose weights are quantized computes what the float32 model of the decoded weights does.
#include "ballast/engine/gguf.h"

#include "gemm/int_gemm.h"
#include "model/reference_case.h"
#include "simd/forced_target.h"

namespace ballast {
namespace {

using test::all_logits;
using test::largest_difference;
using test::ReferenceCase;

void copy_metadata(const Gguf& from, GgufWriter& to) {
  for (const GgufEntry& entry : from.metadata()) {
    if (entry.is_array) continue;  // the vocabulary's
    if (entry.type == GgufType::string) {
      to.add(entry.key, from.get<std::string_view>(entry.key));
    } else if (entry.type == GgufType::f32) {
      to.add(entry.key, from.get<float>(entry.key));
    } else {
      to.add(entry.key, static_cast<std::uint32_t>(from.get<std::uint64_t>(entry.key)));
    }
  }
}

/// Writes the model with its matrices rounded to `rounded`, stored as `stored`.
void write_rounded(const Gguf& from, const std::filesystem::path& path, TensorType rounded,
                   TensorType stored) {
  GgufWriter to(path);
  copy_metadata(from, to);
  auto is_matrix = [](const TensorView& t) { return t.shape.size() == 2; };
  for (const TensorView& t : from.tensors()) {
    to.declare(t.name, is_matrix(t) ? stored : t.type, t.shape);
  }
  for (const TensorView& t : from.tensors()) {
    std::vector<float> numbers = to_float(t);
    if (is_matrix(t)) decode(rounded, encode(rounded, numbers), numbers);
    if (is_matrix(t) && rounded == stored) {
      to.write(encode(rounded, to_float(t)));  // the very bytes that were decoded above
    } else {
      to.write(std::span<const float>(numbers));
    }
  }
  to.commit();
}

/// The largest difference of logits, in all positions, between a model of type `type` and the
/// float32 model of its decoded weights.
double difference_from_decoded(const ReferenceCase& reference, const Gguf& original,
                               TensorType type) {
  const std::filesystem::path path = reference.dir() / "rounded.gguf";
  auto logits = [&](TensorType stored) {
    write_rounded(original, path, type, stored);
    const Model model(path);
    Engine engine(model);
    Sequence sequence(model, {});
    // A long and a short chunk: they take different paths.
    return all_logits(engine, sequence, reference.tokens, 35);
  };
  return largest_difference(logits(type), logits(TensorType::f32));
}

TEST(TensorTypes, ComputeWithTheDecodedWeights) {
  const ReferenceCase reference("llama-wide");
  BALLAST_NEED_REFERENCE(reference);
  const Gguf original(reference.gguf());
  for (TensorType type :
       {TensorType::f16, TensorType::bf16, TensorType::q4_0, TensorType::q4_1, TensorType::q5_0,
        TensorType::q5_1, TensorType::q8_0, TensorType::q2_k, TensorType::q3_k, TensorType::q4_k,
        TensorType::q5_k, TensorType::q6_k, TensorType::iq4_nl}) {
    // The logits of this model, which have a deviation of 3 to 7, move by what docs/models.md
    // lists.
    const double most = has_int_gemm(type) ? 0.1 : 1e-4;
    const double difference = difference_from_decoded(reference, original, type);
    RecordProperty(std::string(to_string(type)), std::to_string(difference));
    EXPECT_LT(difference, most) << to_string(type);
  }
  const test::ForcedTarget plain(test::kernel_targets().back());
  for (TensorType type : {TensorType::bf16, TensorType::q8_0}) {
    const double close = has_int_gemm(type) ? 0.1 : 1e-4;
    EXPECT_LT(difference_from_decoded(reference, original, type), close) << to_string(type);
  }
}

/// Types that no encoder writes: random blocks with a scale that suits.
TEST(TensorTypes, TypesThatAreDecodedWhenLoadedComputeLikewise) {
  const ReferenceCase reference("llama-wide");
  BALLAST_NEED_REFERENCE(reference);
  const Gguf original(reference.gguf());
  const struct {
    TensorType type, loaded;
    std::size_t scale;  // its byte in a block
    std::vector<std::uint8_t> value;
  } cases[] = {{TensorType::iq4_xs, TensorType::iq4_nl, 0, {0x00, 0x08}},
               {TensorType::iq3_s, TensorType::q8_0, 0, {0x00, 0x14}},
               {TensorType::tq2_0, TensorType::q8_0, 64, {0x00, 0x2c}},
               {TensorType::mxfp4, TensorType::fp4, 0, {121}}};
  for (const auto& c : cases) {
    std::vector<std::byte> bytes(tensor_bytes(c.type, 512 * 256));
    std::uint32_t x = 1;
    for (std::byte& byte : bytes)
      byte = static_cast<std::byte>((x = x * 1664525 + 1013904223) >> 24);
    for (std::size_t b = 0; b < bytes.size(); b += block_bytes(c.type)) {
      std::memcpy(&bytes[b + c.scale], c.value.data(), c.value.size());
    }
    std::vector<float> numbers(512 * 256);
    decode(c.type, bytes, numbers);
    const std::filesystem::path path = reference.dir() / "loaded.gguf";
    const auto logits = [&](TensorType type) {
      GgufWriter to(path);
      copy_metadata(original, to);
      const auto random = [](const TensorView& t) { return t.name.ends_with("ffn_gate.weight"); };
      for (const TensorView& t : original.tensors()) {
        to.declare(t.name, random(t) ? type : t.type, t.shape);
      }
      for (const TensorView& t : original.tensors()) {
        if (random(t) && type == c.type) {
          to.write(std::span<const std::byte>(bytes));
        } else {
          const std::vector<float> kept = random(t) ? numbers : to_float(t);
          to.write(std::span<const float>(kept));
        }
      }
      to.commit();
      const Model model(path);
      if (type == c.type) {
        EXPECT_EQ(model.file().at(Weight::ffn_gate).type, c.loaded);
        EXPECT_GT(model.file().copied_bytes(), 0u);
      }
      Engine engine(model);
      Sequence sequence(model, {});
      return all_logits(engine, sequence, reference.tokens, 35);
    };
    EXPECT_LT(largest_difference(logits(c.type), logits(TensorType::f32)), 0.1)
        << to_string(c.type);
  }
}

/// Chunks of one, a few, more and many tokens: ways of their own through the weights.
TEST(TensorTypes, AnyChunkingGivesTheSameBits) {
  const ReferenceCase reference("llama-wide");
  BALLAST_NEED_REFERENCE(reference);
  const Gguf original(reference.gguf());
  const std::filesystem::path path = reference.dir() / "chunks.gguf";
  for (TensorType type : {TensorType::f32, TensorType::f16, TensorType::bf16, TensorType::q8_0,
                          TensorType::q4_k, TensorType::q6_k}) {
    write_rounded(original, path, type, type);
    const Model model(path);
    Engine engine(model);
    auto logits = [&](std::size_t chunk) {
      Sequence sequence(model, {});
      return all_logits(engine, sequence, reference.tokens, chunk);
    };
    const std::vector<float> whole = logits(100);
    for (std::size_t chunk : {1, 2, 3, 5, 9, 35}) {
      EXPECT_EQ(logits(chunk), whole) << to_string(type) << " by " << chunk;
    }
  }
}

}  // namespace
}  // namespace ballast
