#include "ballast/engine/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "ballast/error.h"
#include "formats/mutate.h"
#include "memory_file.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A file put together by hand, independently of the writer.
std::string raw_file(const std::string& header, const std::string& data) {
  std::uint64_t n = header.size();
  return std::string(reinterpret_cast<const char*>(&n), 8) + header + data;
}

class SafetensorsTest : public ::testing::Test {
 protected:
  /// The message with which the file is refused.
  std::string refusal(const std::string& content) {
    write_text(dir_ / "t.safetensors", content);
    std::string message = error_of([&] { Safetensors(dir_ / "t.safetensors"); });
    EXPECT_THAT(message, HasSubstr("t.safetensors: "));
    EXPECT_THAT(message, Not(HasSubstr("\n")));
    return message;
  }
  std::string refusal(const std::string& header, const std::string& data) {
    return refusal(raw_file(header, data));
  }

  TempDir dir_;
};

TEST_F(SafetensorsTest, ReadsAHandMadeFile) {
  std::string data("\x00\x00\x80\x3f\x00\x00\x00\xc0\xfe\xff\x07\x01", 12);
  write_text(dir_ / "a.safetensors",
             raw_file(R"({"__metadata__":{"format":"pt"},)"
                      R"("b":{"dtype":"I16","shape":[],"data_offsets":[8,10]},)"
                      R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                      R"("none":{"dtype":"F64","shape":[3,0],"data_offsets":[10,10]},)"
                      R"("c":{"data_offsets":[10,12],"shape":[2],"dtype":"U8"}}  )",
                      data));
  Safetensors file(dir_ / "a.safetensors");
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.at("a").type, TensorType::f32);
  EXPECT_THAT(file.at("a").shape, ElementsAre(2, 1));
  EXPECT_THAT(to_float(file.at("a")), ElementsAre(1.0f, -2.0f));
  EXPECT_THAT(to_float(file.at("b")), ElementsAre(-2.0f));
  EXPECT_THAT(to_float(file.at("c")), ElementsAre(7.0f, 1.0f));
  EXPECT_TRUE(to_float(file.at("none")).empty());
  EXPECT_EQ(file.find("d"), nullptr);
  EXPECT_THAT(error_of([&] { (void)file.at("d"); }),
              AllOf(HasSubstr("a.safetensors"), HasSubstr("no tensor 'd'")));
  Safetensors moved = std::move(file);
  EXPECT_THAT(to_float(moved.at("a")), ElementsAre(1.0f, -2.0f));
}

TEST_F(SafetensorsTest, WritesWhatItReads) {
  std::mt19937 rng(1);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<SafetensorsWriter::Declaration> tensors;
    std::vector<std::vector<float>> numbers;
    int count = static_cast<int>(rng() % 6);
    for (int i = 0; i < count; ++i) {
      TensorType types[] = {TensorType::f64, TensorType::f32, TensorType::i32,
                            TensorType::i8,  TensorType::f16, TensorType::bf16};
      std::vector<std::size_t> shape;
      for (std::size_t d = rng() % 4; d > 0; --d) shape.push_back(rng() % 5);
      std::string name = "layer." + std::to_string(i) + (i % 2 == 0 ? ".\"quoted\" ü\n" : "");
      tensors.push_back({name, types[rng() % 6], shape});
      numbers.emplace_back(element_count(shape));
      for (float& x : numbers.back()) x = static_cast<float>(rng() % 255) - 127.0f;
    }
    SafetensorsWriter writer(dir_ / "w.safetensors", tensors, {{"made by", "a test"}});
    for (const auto& all : numbers) {
      std::size_t half = all.size() / 2;  // in two pieces
      writer.write(std::span(all).first(half));
      writer.write(std::span(all).subspan(half));
    }
    writer.commit();
    Safetensors file(dir_ / "w.safetensors");
    ASSERT_EQ(file.tensors().size(), tensors.size());
    EXPECT_EQ(file.metadata().at("made by"), "a test");
    for (int i = 0; i < count; ++i) {
      const TensorView& t = file.at(tensors[static_cast<std::size_t>(i)].name);
      EXPECT_EQ(t.type, tensors[static_cast<std::size_t>(i)].type);
      EXPECT_EQ(t.shape, tensors[static_cast<std::size_t>(i)].shape);
      EXPECT_EQ(to_float(t), numbers[static_cast<std::size_t>(i)]);
    }
  }
}

TEST_F(SafetensorsTest, WriterRefusesWrongUse) {
  using D = SafetensorsWriter::Declaration;
  auto path = dir_ / "w.safetensors";
  std::vector<float> five(5);
  EXPECT_THAT(error_of([&] {
                SafetensorsWriter(path, {D{"a", {}, {1}}, D{"a", {}, {1}}});
              }),
              HasSubstr("'a': the name is taken"));
  EXPECT_THAT(error_of([&] {
                SafetensorsWriter(path, {D{"__metadata__", {}, {1}}});
              }),
              HasSubstr("name is taken"));
  EXPECT_THAT(error_of([&] {
                SafetensorsWriter(path, {D{"\xff", {}, {1}}});
              }),
              HasSubstr("not valid UTF-8"));
  EXPECT_THAT(error_of([&] {
                SafetensorsWriter(path, {D{"a", {}, {std::size_t{1} << 40, std::size_t{1} << 40}}});
              }),
              HasSubstr("2^64"));
  EXPECT_THAT(error_of([&] {
                SafetensorsWriter w(path, {D{"a", {}, {4}}, D{"b", {}, {4}}});
                w.write(five);
              }),
              HasSubstr("tensor 'a'"));
  EXPECT_THAT(error_of([&] {
                SafetensorsWriter w(path, {D{"a", {}, {4}}});
                w.write(std::as_bytes(std::span(five)));
              }),
              HasSubstr("4 bytes more"));
  EXPECT_THAT(error_of([&] {
                SafetensorsWriter w(path, {D{"a", {}, {6}}});
                w.write(five);
                w.commit();
              }),
              HasSubstr("'a' is incomplete: 20 of 24 bytes"));
  EXPECT_THAT(error_of([&] { SafetensorsWriter(dir_ / "no/w.safetensors", {}); }),
              HasSubstr("No such file"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(SafetensorsTest, WriterReportsAFullDisk) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  SafetensorsWriter writer("/dev/full", {{"a", TensorType::f32, {4}}});
  std::vector<float> four(4);
  EXPECT_THAT(error_of([&] {
                writer.write(four);
                writer.commit();
              }),
              AllOf(HasSubstr("/dev/full"), HasSubstr("No space left on device")));
}

TEST_F(SafetensorsTest, RecognisesOtherFiles) {
  EXPECT_THAT(refusal(""), HasSubstr("an empty file"));
  EXPECT_THAT(refusal("GGUF\3\0\0\0\0\0\0\0\0\0\0\0"), HasSubstr("a GGUF file"));
  EXPECT_THAT(refusal("Dear reader, this is a letter."), HasSubstr("a text file"));
  EXPECT_THAT(refusal("<!DOCTYPE html><html></html>"), HasSubstr("a web page"));
  EXPECT_THAT(refusal("version https://git-lfs.github.com/spec/v1\noid"), HasSubstr("Git LFS"));
  EXPECT_THAT(refusal(std::string("PK\3\4\0\0\0\0\0\0\0\0\0", 13)), HasSubstr("PyTorch"));
  EXPECT_THAT(refusal(std::string(100, '\0')), HasSubstr("no JSON at byte 8"));
  EXPECT_THAT(refusal("\x7f"), HasSubstr("1 bytes are too few"));
}

TEST_F(SafetensorsTest, RefusesBadHeaders) {
  EXPECT_THAT(refusal("[]", ""), HasSubstr("no JSON at byte 8"));
  EXPECT_THAT(refusal("{\"a\"", ""), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(refusal("{}{}", ""), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(refusal("{\"a\":[]}", ""), HasSubstr("a list where the description"));
  EXPECT_THAT(refusal("{\"a\":{\"x\":1}}", ""), HasSubstr("tensor 'a': unexpected key 'x'"));
  EXPECT_THAT(refusal("{\"__metadata__\":{\"x\":1}}", ""), HasSubstr("a number where text"));
  std::string fields = R"("0":"")";
  for (int i = 1; i <= 10'000; ++i) fields += ",\"" + std::to_string(i) + "\":\"\"";
  EXPECT_THAT(refusal("{\"__metadata__\":{" + fields + "}}", ""),
              HasSubstr("over 10000 fields of metadata"));
  EXPECT_THAT(refusal(std::string(100000, '['), ""), HasSubstr("no JSON"));
  EXPECT_THAT(refusal("{\"a\":{\"shape\":" + std::string(100000, '['), ""),
              HasSubstr("a list where a dimension"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1]}})", "1234"),
              HasSubstr("lacks data_offsets"));
  EXPECT_THAT(refusal(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "1234"),
              HasSubstr("tensor 'a' lacks dtype"));
  EXPECT_THAT(refusal(R"({"a":{"shape":[1],"shape":[1]}})", ""),
              HasSubstr("duplicate key 'shape'"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[0,1]}})", "1"),
              AllOf(HasSubstr("dtype 'F8_E5M2'"), HasSubstr("BF16")));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234"),
              HasSubstr("a negative number"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", "1234"),
              HasSubstr("a fraction"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "1234"),
              HasSubstr("two numbers"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", "1234"),
              HasSubstr("a number where"));
  EXPECT_THAT(refusal(R"({"a\n\u0007":{"dtype":"F32","shape":[1],"data_offsets":[0,2]}})", "12"),
              HasSubstr("'a\\x0a\\x07'"));
  std::string tensor = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_THAT(refusal("{\"a\":" + tensor + ",\"a\":" + tensor + "}", ""),
              HasSubstr("'a' appears twice"));
  std::uint64_t huge = 200'000'000;
  std::string file = raw_file("{}", "");
  std::memcpy(file.data(), &huge, 8);
  EXPECT_THAT(refusal(file), HasSubstr("over the limit"));
  huge = 3;
  std::memcpy(file.data(), &huge, 8);
  EXPECT_THAT(refusal(file), HasSubstr("truncated"));
}

TEST_F(SafetensorsTest, RefusesBadLayouts) {
  auto one = [](std::string type, std::string shape, std::string offsets) {
    return "{\"a\":{\"dtype\":\"" + type + "\",\"shape\":" + shape +
           ",\"data_offsets\":" + offsets + "}}";
  };
  EXPECT_THAT(refusal(one("F32", "[2]", "[0,4]"), "1234"), HasSubstr("needs 8 bytes"));
  EXPECT_THAT(refusal(one("F32", "[1]", "[4,0]"), "1234"), HasSubstr("before it begins"));
  EXPECT_THAT(refusal(one("F32", "[2]", "[0,8]"), "1234"), HasSubstr("truncated"));
  EXPECT_THAT(refusal(one("F32", "[1]", "[0,4]"), "12345"), HasSubstr("1 bytes after the last"));
  EXPECT_THAT(refusal(one("F32", "[1]", "[1,5]"), "12345"), HasSubstr("belong to no tensor"));
  EXPECT_THAT(refusal(one("F32", "[4294967296,4294967296]", "[0,0]"), ""), HasSubstr("2^64"));
  EXPECT_THAT(refusal(one("F32", "[4611686018427387904]", "[0,0]"), ""), HasSubstr("tensor 'a'"));
  EXPECT_THAT(refusal(one("U8", "[1]", "[18446744073709551615,18446744073709551616]"), "1"),
              HasSubstr("a fraction"));
  EXPECT_THAT(refusal(one("U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]"), "1"),
              HasSubstr("dimensions"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                      R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                      "123"),
              HasSubstr("'b' overlaps"));
}

class SafetensorsShards : public SafetensorsTest {
 protected:
  void SetUp() override {
    for (std::string name : {"a", "b"}) {
      SafetensorsWriter writer(dir_ / (name + ".safetensors"),
                               {{name + ".x", TensorType::f32, {1}}}, {{"file", name}});
      writer.write(std::vector<float>{name == "a" ? 1.0f : 2.0f});
      writer.commit();
    }
  }
  std::string index_refusal(const std::string& content) {
    write_text(dir_ / "model.safetensors.index.json", content);
    return error_of([&] { Safetensors s(dir_.path()); });
  }
};

TEST_F(SafetensorsShards, ReadsAModelSplitOverFiles) {
  write_text(dir_ / "model.safetensors.index.json",
             R"({"metadata":{"total_size":8},)"
             R"("weight_map":{"b.x":"b.safetensors","a.x":"a.safetensors"}})");
  for (auto path : {dir_.path(), dir_ / "model.safetensors.index.json"}) {
    Safetensors model(path);
    EXPECT_EQ(model.tensors().size(), 2u);
    EXPECT_EQ(to_float(model.at("a.x")), std::vector<float>{1.0f});
    EXPECT_EQ(to_float(model.at("b.x")), std::vector<float>{2.0f});
    EXPECT_EQ(model.metadata().at("file"), "a");
  }
}

TEST_F(SafetensorsShards, ReadsFoldersWithoutAnIndex) {
  EXPECT_THAT(error_of([&] { Safetensors s(dir_.path()); }), HasSubstr("2 .safetensors files"));
  std::filesystem::remove(dir_ / "b.safetensors");
  EXPECT_EQ(Safetensors(dir_.path()).tensors().size(), 1u);
  std::filesystem::remove(dir_ / "a.safetensors");
  EXPECT_THAT(error_of([&] { Safetensors s(dir_.path()); }), HasSubstr("no .safetensors file"));
}

TEST_F(SafetensorsShards, RefusesBadIndices) {
  EXPECT_THAT(index_refusal("["), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(index_refusal("[]"), HasSubstr("weight_map"));
  EXPECT_THAT(index_refusal("{\"weight_map\":{}}"), HasSubstr("weight_map"));
  EXPECT_THAT(index_refusal("{\"weight_map\":{\"a.x\":1}}"), HasSubstr("is not text"));
  EXPECT_THAT(index_refusal(std::string(100000, '[')), HasSubstr("nested deeper"));
  for (std::string path : {"../a.safetensors", "/etc/passwd", "", "..", "x/a.safetensors"}) {
    EXPECT_THAT(index_refusal("{\"weight_map\":{\"a.x\":\"" + path + "\"}}"),
                HasSubstr("not a plain file name"));
  }
  EXPECT_THAT(index_refusal("{\"weight_map\":{\"a.x\":\"c.safetensors\"}}"),
              AllOf(HasSubstr("c.safetensors"), HasSubstr("No such file")));
  EXPECT_THAT(index_refusal("{\"weight_map\":{\"b.x\":\"a.safetensors\"}}"),
              HasSubstr("'b.x' is not in a.safetensors"));
  std::filesystem::copy_file(dir_ / "a.safetensors", dir_ / "c.safetensors");
  EXPECT_THAT(index_refusal(R"({"weight_map":{"a.x":"a.safetensors","a.y":"c.safetensors"}})"),
              HasSubstr("in another file of the model too"));
}

TEST_F(SafetensorsTest, DamagedFilesGiveOneErrorAtMost) {
  {
    SafetensorsWriter writer(dir_ / "m.safetensors",
                             {{"layer.0.k", TensorType::f32, {2, 3}},
                              {"layer.0.v", TensorType::bf16, {2, 3}},
                              {"empty", TensorType::u8, {0}}},
                             {{"format", "pt"}});
    writer.write(std::vector<float>(6, 1.5f));
    writer.write(std::vector<float>(6, -1.5f));
    writer.commit();
  }
  std::string valid = read_text(dir_ / "m.safetensors");
  int loaded = 0;
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    MemoryFile damaged(mutate(valid, seed));
    std::string message = error_of([&] {
      Safetensors file(damaged.path());
      for (const TensorView& tensor : file.tensors()) (void)to_float(tensor);
      ++loaded;
    });
    ASSERT_EQ(message.find('\n'), std::string::npos);
  }
  EXPECT_GT(loaded, 50);    // some damage hits only numbers
  EXPECT_LT(loaded, 2900);  // and most hits the header
}

}  // namespace
}  // namespace ballast
