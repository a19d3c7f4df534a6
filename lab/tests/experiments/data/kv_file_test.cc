#include "experiments/data/kv_file.h"

#include <gtest/gtest.h>

#include <limits>

#include "experiments/kv_files.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using test::layer;
using test::TestTensor;
using ::testing::HasSubstr;
using Part = KvSource::Part;

class KvFiles : public ::testing::Test {
 protected:
  std::string path() const { return (dir_ / "kv.safetensors").string(); }
  void write(const std::map<std::string, TestTensor>& tensors) {
    test::write_tensors(path(), tensors);
  }
  std::string error(const std::map<std::string, TestTensor>& tensors) {
    write(tensors);
    return test::error_of([&] { KvFile file(path()); });
  }
  TempDir dir_;
};

TEST_F(KvFiles, ReadsAnyPart) {
  auto tensors = layer(4, 2, 5, 3);
  tensors["layer.0.v"].shape[2] = 7;
  write(tensors);
  const KvFile file(path());
  EXPECT_EQ(file.shape().layers, 1u);
  EXPECT_EQ(file.shape().heads, 4u);
  EXPECT_EQ(file.shape().group(), 2u);
  EXPECT_EQ(file.shape().tokens, 5u);
  EXPECT_EQ(file.shape().key_dim, 3u);
  EXPECT_EQ(file.shape().value_dim, 7u);
  const Safetensors plain(path());
  const auto numbers = to_float(plain.at("layer.0.v"));
  const Matrix rows = file.read(Part::value, 0, 1, 2, 3);
  for (std::size_t t = 0; t < 3; ++t) {
    for (std::size_t c = 0; c < 7; ++c) EXPECT_EQ(rows[t][c], numbers[(5 + 2 + t) * 7 + c]);
  }
  EXPECT_EQ(file.read(Part::key, 0, 0, 5, 0).rows(), 0u);
  EXPECT_THAT(test::error_of([&] { file.read(Part::key, 0, 0, 4, 2); }), HasSubstr("not in it"));
  EXPECT_THAT(test::error_of([&] { file.read(Part::key, 0, 2, 0, 1); }), HasSubstr("not in it"));
}

TEST_F(KvFiles, LayersMayHaveAnyNumbersAndOtherTensorsBeside) {
  std::map<std::string, TestTensor> tensors = {{"other", {{3}}}, {"layer.3.qq", {{2}}}};
  for (const char* number : {"10", "2"}) {
    for (auto& [name, tensor] : layer(2, 1, 4, 2)) {
      tensors["layer." + std::string(number) + name.substr(7)] = tensor;
    }
  }
  write(tensors);
  const KvFile file(path());
  ASSERT_EQ(file.shape().layers, 2u);
  EXPECT_EQ(file.layer_number(0), 2u);
  EXPECT_EQ(file.layer_number(1), 10u);
}

TEST_F(KvFiles, NamesWhatIsWrong) {
  EXPECT_EQ(error({}), path() +
                           ": no tensors layer.0.q, layer.0.k, layer.0.v in it; it holds "
                           "none at all");
  EXPECT_THAT(error({{"a.weight", {{2}}}}), HasSubstr("its first is 'a.weight'"));

  auto tensors = layer(4, 2, 5, 3);
  tensors.erase("layer.0.v");
  EXPECT_EQ(error(tensors), path() + ": layer 0 has no tensor 'layer.0.v'");

  tensors = layer(4, 2, 5, 3);
  tensors["layer.0.k"].shape = {2, 5};
  EXPECT_EQ(error(tensors),
            path() + ": tensor 'layer.0.k' has shape [2, 5], expected [heads, tokens, dim]");

  tensors = layer(4, 2, 5, 3);
  tensors["layer.0.q"].type = TensorType::i32;
  EXPECT_THAT(error(tensors), HasSubstr("tensor 'layer.0.q' holds I32, expected F32"));

  EXPECT_THAT(error(layer(4, 2, 0, 3)), HasSubstr("has no tokens: its shape is ["));
  EXPECT_THAT(error(layer(4, 0, 5, 3)), HasSubstr("tensor 'layer.0.k' has no heads"));
  EXPECT_THAT(error(layer(4, 2, 5, 257)),
              HasSubstr("a head dimension of 257; supported: 1 to 256"));
  EXPECT_THAT(error(layer(5, 2, 5, 3)),
              HasSubstr("'layer.0.q' has 5 heads, which is no multiple of the 2 heads"));

  tensors = layer(4, 2, 5, 3);
  tensors["layer.0.q"].shape[1] = 6;
  EXPECT_EQ(error(tensors), path() + ": 'layer.0.k' has 5 tokens, 'layer.0.q' has 6");

  tensors = layer(4, 2, 5, 3);
  tensors["layer.0.v"].shape[0] = 4;
  EXPECT_EQ(error(tensors), path() + ": 'layer.0.k' has 2 heads, 'layer.0.v' has 4");

  tensors = layer(4, 2, 5, 3);
  tensors["layer.0.q"].shape[2] = 4;
  EXPECT_EQ(error(tensors), path() + ": 'layer.0.q' has dimension 4, 'layer.0.k' has 3");

  tensors = layer(4, 2, 5, 3);
  for (auto& [name, tensor] : layer(4, 2, 6, 3)) tensors["layer.1" + name.substr(7)] = tensor;
  EXPECT_THAT(error(tensors), HasSubstr("layer 0 and layer 1 differ in shape"));
}

TEST_F(KvFiles, ScaleAndSoftCapAreThoseOfTheMetadata) {
  auto logits = [&](const std::map<std::string, std::string>& metadata) {
    std::vector<SafetensorsWriter::Declaration> tensors;
    for (const char* part : {"q", "k", "v"}) {
      tensors.push_back({std::string("layer.0.") + part, TensorType::f32, {1, 1, 4}});
    }
    SafetensorsWriter writer(path(), tensors, metadata);
    const std::vector<std::byte> zeros(4 * sizeof(float));
    for (int i = 0; i < 3; ++i) writer.write(std::span<const std::byte>(zeros));
    writer.commit();
    return KvFile(path()).logits();
  };
  EXPECT_FLOAT_EQ(logits({}).scale, 0.5f);
  EXPECT_EQ(logits({}).softcap, 0);
  EXPECT_FLOAT_EQ(logits({{"scale", "0.25"}, {"softcap", "50"}}).scale, 0.25f);
  EXPECT_FLOAT_EQ(logits({{"scale", "0.25"}, {"softcap", "50"}}).softcap, 50);
  for (const char* bad : {"", "x", "0", "-1", "nan", "inf", "1e99", "1 2"}) {
    EXPECT_THAT(test::error_of([&] {
                  logits({{"scale", bad}});
                }),
                HasSubstr("a positive number was expected"))
        << bad;
  }
}

TEST_F(KvFiles, NamesThePlaceOfANumberThatIsNotFinite) {
  auto tensors = layer(4, 2, 5, 3);
  tensors["layer.0.k"].set = {{5 * 3 + 2 * 3 + 1, std::numeric_limits<float>::quiet_NaN()}};
  tensors["layer.0.v"].set = {{4, -std::numeric_limits<float>::infinity()}};
  write(tensors);
  const KvFile file(path());
  file.read(Part::key, 0, 0, 0, 5);
  EXPECT_EQ(test::error_of([&] { file.read(Part::key, 0, 1, 1, 4); }),
            path() +
                ": tensor 'layer.0.k', head 1, token 2, number 1 is nan; every number must be "
                "finite");
  EXPECT_THAT(test::error_of([&] { file.read(Part::value, 0, 0, 0, 5); }),
              HasSubstr("tensor 'layer.0.v', head 0, token 1, number 1 is -inf"));
}

}  // namespace
}  // namespace ballast
