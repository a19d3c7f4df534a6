#include "ballast/engine/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "ballast/error.h"
#include "formats/mutate.h"
#include "memory_file.h"
#include "paths.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Texts = std::vector<std::string_view>;

/// Puts a file together byte by byte, independently of the writer.
class Bytes {
 public:
  template <typename T>
  Bytes& number(T x) {
    out_.append(reinterpret_cast<const char*>(&x), sizeof(x));
    return *this;
  }
  Bytes& u32(std::uint32_t x) { return number(x); }
  Bytes& u64(std::uint64_t x) { return number(x); }
  Bytes& text(std::string_view s) {
    u64(s.size());
    out_ += s;
    return *this;
  }
  Bytes& raw(std::string_view s) {
    out_ += s;
    return *this;
  }
  Bytes& head(std::uint32_t version, std::uint64_t tensors, std::uint64_t keys) {
    return raw("GGUF").u32(version).u64(tensors).u64(keys);
  }
  Bytes& tensor(std::string_view name, std::vector<std::uint64_t> shape, std::uint32_t type,
                std::uint64_t begin) {
    text(name).u32(static_cast<std::uint32_t>(shape.size()));
    for (std::uint64_t dim : shape) u64(dim);
    return u32(type).u64(begin);
  }
  Bytes& align(std::size_t n = 32) {
    out_.resize((out_.size() + n - 1) / n * n);
    return *this;
  }
  const std::string& str() const { return out_; }

 private:
  std::string out_;
};

class GgufTest : public ::testing::Test {
 protected:
  std::filesystem::path put(const Bytes& bytes) {
    write_text(dir_ / "t.gguf", bytes.str());
    return dir_ / "t.gguf";
  }
  std::string refusal(const Bytes& bytes) {
    auto path = put(bytes);
    std::string message = error_of([&] { Gguf file(path); });
    EXPECT_THAT(message, HasSubstr("t.gguf: "));
    EXPECT_THAT(message, Not(HasSubstr("\n")));
    return message;
  }
  TempDir dir_;
};

TEST_F(GgufTest, ReadsEveryTypeOfAHandMadeFile) {
  Bytes b;
  b.head(2, 0, 15);
  b.text("u8").u32(0).number<std::uint8_t>(200);
  b.text("i8").u32(1).number<std::int8_t>(-100);
  b.text("u16").u32(2).number<std::uint16_t>(60000);
  b.text("i16").u32(3).number<std::int16_t>(-30000);
  b.text("u32").u32(4).u32(4000000000u);
  b.text("i32").u32(5).number<std::int32_t>(-2000000000);
  b.text("f32").u32(6).number(1.5f);
  b.text("bool").u32(7).number<std::uint8_t>(1);
  b.text("text").u32(8).text("h\xc3\xa9llo");
  b.text("numbers").u32(9).u32(6).u64(2).number(0.5f).number(-2.0f);
  b.text("texts").u32(9).u32(8).u64(3).text("a").text("").text("bcd");
  b.text("u64").u32(10).u64(~std::uint64_t{0});
  b.text("i64").u32(11).number<std::int64_t>(-5);
  b.text("f64").u32(12).number(0.1);
  b.text("integers").u32(9).u32(1).u64(2).number<std::int8_t>(-1).number<std::int8_t>(7);
  Gguf file(put(b));
  EXPECT_EQ(file.version(), 2u);
  EXPECT_EQ(file.metadata().size(), 15u);
  EXPECT_EQ(file.metadata()[8].key, "text");
  EXPECT_EQ(file.get<std::uint64_t>("u8"), 200u);
  EXPECT_EQ(file.get<std::int64_t>("i8"), -100);
  EXPECT_EQ(file.get<std::uint64_t>("u16"), 60000u);
  EXPECT_EQ(file.get<std::int64_t>("i16"), -30000);
  EXPECT_EQ(file.get<std::uint64_t>("u32"), 4000000000u);
  EXPECT_EQ(file.get<std::int64_t>("i32"), -2000000000);
  EXPECT_EQ(file.get<float>("f32"), 1.5f);
  EXPECT_EQ(file.get<double>("u8"), 200.0);
  EXPECT_TRUE(file.get<bool>("bool"));
  EXPECT_EQ(file.get<std::string_view>("text"), "h\xc3\xa9llo");
  EXPECT_THAT(file.get<std::vector<float>>("numbers"), ElementsAre(0.5f, -2.0f));
  EXPECT_THAT(file.get<std::vector<float>>("integers"), ElementsAre(-1.0f, 7.0f));
  EXPECT_THAT(file.get<Texts>("texts"), ElementsAre("a", "", "bcd"));
  EXPECT_EQ(file.get<std::uint64_t>("u64"), ~std::uint64_t{0});
  EXPECT_EQ(file.get<std::int64_t>("i64"), -5);
  EXPECT_EQ(file.get<double>("f64"), 0.1);
  EXPECT_THAT(file.get<std::vector<std::int64_t>>("integers"), ElementsAre(-1, 7));
  EXPECT_EQ(file.find<bool>("absent"), std::nullopt);
  EXPECT_EQ(file.entry("absent"), nullptr);
  auto wrong = [&](auto action) { return error_of(action); };
  EXPECT_THAT(wrong([&] { (void)file.get<bool>("absent"); }),
              AllOf(HasSubstr("t.gguf"), HasSubstr("'absent' is missing")));
  EXPECT_THAT(wrong([&] { (void)file.get<std::uint64_t>("i8"); }),
              HasSubstr("'i8' holds a value of type i8, which is not an integer of at least 0"));
  EXPECT_THAT(wrong([&] { (void)file.get<std::int64_t>("u64"); }), HasSubstr("not an integer"));
  EXPECT_THAT(wrong([&] { (void)file.get<bool>("u8"); }), HasSubstr("not a truth value"));
  EXPECT_THAT(wrong([&] { (void)file.get<float>("text"); }), HasSubstr("not a number"));
  EXPECT_THAT(wrong([&] { (void)file.get<std::int64_t>("f32"); }), HasSubstr("not an integer"));
  EXPECT_THAT(wrong([&] { (void)file.get<Texts>("numbers"); }), HasSubstr("array of f32"));
  EXPECT_THAT(wrong([&] { (void)file.get<std::string_view>("texts"); }), HasSubstr("not a string"));
  EXPECT_THAT(wrong([&] { (void)file.get<std::vector<float>>("f32"); }), HasSubstr("not an array"));
}

TEST_F(GgufTest, ReadsTensorsOfAHandMadeFile) {
  Bytes b;
  b.head(3, 2, 1).text("general.alignment").u32(4).u32(64);
  b.tensor("second", {3}, 1, 64).tensor("first", {2, 3}, 0, 0).align(64);
  for (float x : {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}) b.number(x);
  b.align(64).number<std::uint16_t>(0x3c00).number<std::uint16_t>(0xc000).number<std::uint16_t>(0);
  Gguf file(put(b));
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "first");
  EXPECT_THAT(file.tensor("first").shape, ElementsAre(3, 2));
  EXPECT_THAT(to_float(file.tensor("first")), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(to_float(file.tensor("second")), ElementsAre(1, -2, 0));
  EXPECT_THAT(error_of([&] { (void)file.tensor("third"); }), HasSubstr("no tensor 'third'"));
  Gguf moved = std::move(file);
  EXPECT_THAT(to_float(moved.tensor("second")), ElementsAre(1, -2, 0));
}

TEST_F(GgufTest, RefusesOtherFiles) {
  EXPECT_THAT(refusal(Bytes()), HasSubstr("an empty file"));
  EXPECT_THAT(refusal(Bytes().raw("version https://git-lfs")), HasSubstr("Git LFS"));
  EXPECT_THAT(refusal(Bytes().raw("lmgg12345678")), HasSubstr("older than GGUF"));
  EXPECT_THAT(refusal(Bytes().u64(10).raw("{\"a\":{}}  ")), HasSubstr("a safetensors file"));
  EXPECT_THAT(refusal(Bytes().u64(10)), HasSubstr("does not begin with GGUF"));
  EXPECT_THAT(refusal(Bytes().raw("GGUF")), HasSubstr("truncated"));
  EXPECT_THAT(refusal(Bytes().head(1, 0, 0)), HasSubstr("GGUF version 1"));
  EXPECT_THAT(refusal(Bytes().head(4, 0, 0)), HasSubstr("versions 2 and 3"));
  EXPECT_THAT(refusal(Bytes().head(0x03000000, 0, 0)), HasSubstr("big-endian"));
}

TEST_F(GgufTest, RefusesMoreTensorsAndKeysThanModelsHave) {
  const std::string room(3'000'000, '\0');
  EXPECT_THAT(refusal(Bytes().head(3, 100'001, 0).raw(room)), HasSubstr("at most 100000 of each"));
  EXPECT_THAT(refusal(Bytes().head(3, 0, 100'001).raw(room)), HasSubstr("at most 100000 of each"));
}

TEST_F(GgufTest, RefusesBadMetadata) {
  auto one = [](std::string_view key) { return Bytes().head(3, 0, 1).text(key); };
  EXPECT_THAT(refusal(Bytes().head(3, 0, ~std::uint64_t{0})), HasSubstr("do not fit"));
  EXPECT_THAT(refusal(Bytes().head(3, ~std::uint64_t{0}, 0)), HasSubstr("do not fit"));
  EXPECT_THAT(refusal(Bytes().head(3, 0, 1).u64(~std::uint64_t{0}).raw("abcdefgh")),
              HasSubstr("truncated or damaged: a key"));
  EXPECT_THAT(refusal(one("").u32(0).number<std::uint8_t>(0)), HasSubstr("has 0 bytes"));
  EXPECT_THAT(refusal(one("k").u32(13).u32(0)), HasSubstr("key 'k': there is no value type 13"));
  EXPECT_THAT(refusal(one("k").u32(10).u32(0)), HasSubstr("key 'k' takes 8 bytes"));
  EXPECT_THAT(refusal(one("k").u32(8).u64(1000)), HasSubstr("key 'k' takes 1000 bytes"));
  EXPECT_THAT(refusal(one("k").u32(7).number<std::uint8_t>(2)), HasSubstr("neither 0 nor 1"));
  EXPECT_THAT(refusal(one("k").u32(9).u32(9).u64(1).u32(4).u64(0)), HasSubstr("array of arrays"));
  EXPECT_THAT(refusal(one("k").u32(9).u32(10).u64(std::uint64_t{1} << 61).raw("12345678")),
              HasSubstr("claims 2305843009213693952 elements"));
  EXPECT_THAT(refusal(one("k").u32(9).u32(8).u64(2).text("only one")), HasSubstr("truncated"));
  EXPECT_THAT(refusal(one("k\n\x01").u32(13).u32(0)), HasSubstr("'k\\x0a\\x01'"));
  Bytes twice;
  twice.head(3, 0, 2).text("k").u32(4).u32(1).text("k").u32(4).u32(1);
  EXPECT_THAT(refusal(twice), HasSubstr("key 'k' appears twice"));
  EXPECT_THAT(refusal(one("general.alignment").u32(4).u32(24)), HasSubstr("not a power of two"));
  EXPECT_THAT(refusal(one("general.alignment").u32(4).u32(0)), HasSubstr("not a power of two"));
  EXPECT_THAT(refusal(one("general.alignment").u32(8).text("x")), HasSubstr("alignment"));
}

TEST_F(GgufTest, RefusesBadTensors) {
  auto with = [](std::vector<std::uint64_t> shape, std::uint32_t type, std::uint64_t begin) {
    return Bytes().head(3, 1, 0).tensor("t", shape, type, begin).align().raw(std::string(64, 'x'));
  };
  EXPECT_EQ(error_of([&] { Gguf f(put(with({16}, 0, 0))); }), "");
  EXPECT_THAT(refusal(with({17}, 0, 0)), HasSubstr("tensor 't' needs 68 bytes"));
  EXPECT_THAT(refusal(with({1}, 0, 96)), HasSubstr("at byte 96 of the data"));
  EXPECT_THAT(refusal(with({1}, 0, ~std::uint64_t{31})), HasSubstr("truncated"));
  EXPECT_THAT(refusal(with({1}, 0, 4)), HasSubstr("not a multiple of 32"));
  EXPECT_THAT(refusal(with({1, 1, 1, 1, 1}, 0, 0)), HasSubstr("5 dimensions"));
  EXPECT_THAT(refusal(with({1}, 40, 0)), AllOf(HasSubstr("type NVFP4"), HasSubstr("BF16")));
  EXPECT_THAT(refusal(with({1}, 99, 0)), HasSubstr("type number 99"));
  EXPECT_THAT(refusal(with({33}, 8, 0)), HasSubstr("blocks of type Q8_0 hold 32"));
  std::uint64_t big = std::uint64_t{1} << 32;
  EXPECT_THAT(refusal(with({big, big}, 0, 0)), HasSubstr("tensor 't': the dimensions multiply"));
  EXPECT_THAT(refusal(with({big, big / 4}, 0, 0)), HasSubstr("more bytes than"));
  Bytes overlap;
  overlap.head(3, 2, 0).tensor("a", {16}, 0, 0).tensor("b", {8}, 0, 32).align();
  overlap.raw(std::string(64, 'x'));
  EXPECT_THAT(refusal(overlap), HasSubstr("'b' overlaps"));
  Bytes twice;
  twice.head(3, 2, 0).tensor("a", {1}, 0, 0).tensor("a", {1}, 0, 32).align();
  twice.raw(std::string(64, 'x'));
  EXPECT_THAT(refusal(twice), HasSubstr("'a' appears twice"));
}

// A model may have tensors that it does not need, of types that are not known.
TEST_F(GgufTest, ATypeThatCannotBeReadMattersWhenItIsAskedFor) {
  Bytes b;
  b.head(3, 3, 0).tensor("a", {2}, 0, 0).tensor("odd", {256}, 40, 32).tensor("b", {1}, 0, 128);
  b.align().raw(std::string(160, 'x'));
  const Gguf file(put(b));
  EXPECT_EQ(file.tensors().size(), 2u);
  EXPECT_NE(file.find_tensor("b"), nullptr);
  EXPECT_EQ(file.find_tensor("c"), nullptr);
  for (const auto& ask : {+[](const Gguf& f) { (void)f.find_tensor("odd"); },
                          +[](const Gguf& f) { (void)f.tensor("odd"); }}) {
    EXPECT_THAT(error_of([&] { ask(file); }),
                HasSubstr("t.gguf: the tensor 'odd' has the unsupported type NVFP4"));
  }
  Bytes twice;
  twice.head(3, 3, 0)
      .tensor("a", {2}, 0, 0)
      .tensor("odd", {256}, 40, 32)
      .tensor("odd", {1}, 0, 128);
  twice.align().raw(std::string(160, 'x'));
  EXPECT_THAT(refusal(twice), HasSubstr("'odd' appears twice"));
}

TEST_F(GgufTest, WritesWhatItReads) {
  auto path = dir_ / "w.gguf";
  std::vector<std::string> tokens = {"<s>", "", "\xff\n"};
  std::vector<float> scores = {0.5f, -1.0f};
  std::vector<std::int32_t> kinds = {1, -3};
  std::mt19937 rng(5);
  std::vector<float> numbers(512);
  for (float& x : numbers) x = static_cast<float>(rng() % 100) / 10.0f - 5.0f;
  constexpr TensorType kTypes[] = {
      TensorType::f32,  TensorType::q4_0, TensorType::q4_1, TensorType::f16,  TensorType::q5_0,
      TensorType::q5_1, TensorType::bf16, TensorType::q8_0, TensorType::q2_k, TensorType::q3_k,
      TensorType::q4_k, TensorType::q5_k, TensorType::q6_k, TensorType::i8,   TensorType::iq4_nl};
  std::vector<std::size_t> shape = {2, 256};
  for (std::uint32_t alignment : {8u, 32u, 4096u}) {
    GgufWriter writer(path, alignment);
    writer.add("general.architecture", "llama");
    writer.add("count", std::uint32_t{7});
    writer.add("epsilon", 1e-5f);
    writer.add("big", std::int64_t{-1} << 40);
    writer.add("flag", true);
    writer.add_array("tokens", tokens);
    writer.add_array("scores", std::span<const float>(scores));
    writer.add_array("kinds", std::span<const std::int32_t>(kinds));
    for (TensorType type : kTypes) writer.declare(to_string(type), type, shape);
    writer.declare("empty", TensorType::f32, std::vector<std::size_t>{0, 3});
    for (std::size_t i = 0; i < std::size(kTypes); ++i) {
      writer.write(std::span<const float>(numbers).first(256));
      writer.write(std::span<const float>(numbers).last(256));
    }
    writer.commit();
    Gguf file(path);
    EXPECT_EQ(file.get<std::string_view>("general.architecture"), "llama");
    EXPECT_EQ(file.entry("count")->type, GgufType::u32);
    EXPECT_EQ(file.get<std::uint64_t>("count"), 7u);
    EXPECT_EQ(file.get<float>("epsilon"), 1e-5f);
    EXPECT_EQ(file.get<std::int64_t>("big"), std::int64_t{-1} << 40);
    EXPECT_TRUE(file.get<bool>("flag"));
    EXPECT_THAT(file.get<Texts>("tokens"), ElementsAre("<s>", "", "\xff\n"));
    EXPECT_EQ(file.get<std::vector<float>>("scores"), scores);
    EXPECT_THAT(file.get<std::vector<std::int64_t>>("kinds"), ElementsAre(1, -3));
    for (TensorType type : kTypes) {
      const TensorView& tensor = file.tensor(to_string(type));
      EXPECT_EQ(tensor.type, type);
      EXPECT_EQ(tensor.shape, shape);
      std::vector<float> expected(512);
      decode(type, encode(type, numbers), expected);
      EXPECT_EQ(to_float(tensor), expected);
    }
    EXPECT_TRUE(to_float(file.tensor("empty")).empty());
  }
}

TEST_F(GgufTest, WriterRefusesWrongUse) {
  std::vector<std::size_t> ten = {10};
  std::vector<float> numbers(10);
  auto with = [&](auto action) {
    return error_of([&] {
      GgufWriter writer(dir_ / "w.gguf");
      action(writer);
    });
  };
  EXPECT_THAT(error_of([&] { GgufWriter(dir_ / "w.gguf", 20); }), HasSubstr("power of two"));
  EXPECT_THAT(with([](GgufWriter& w) { w.add("a", 1), w.add("a", 1); }), HasSubstr("again"));
  EXPECT_THAT(with([&](GgufWriter& w) { w.declare("a", TensorType::q8_0, ten); }),
              HasSubstr("rows of 10"));
  EXPECT_THAT(with([&](GgufWriter& w) { w.declare("a", TensorType::u8, ten); }),
              HasSubstr("cannot hold tensors of type U8"));
  EXPECT_THAT(with([&](GgufWriter& w) {
                w.declare("a", TensorType::f32, ten);
                w.commit();
              }),
              HasSubstr("'a' is incomplete: 0 of 40"));
  EXPECT_THAT(with([&](GgufWriter& w) {
                w.declare("a", TensorType::f32, ten);
                w.write(numbers);
                w.add("late", 1);
              }),
              HasSubstr("'late' comes after"));
  EXPECT_THAT(with([&](GgufWriter& w) { w.write(numbers); }), HasSubstr("more than the declared"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(GgufTest, DamagedFilesGiveOneErrorAtMost) {
  auto path = dir_ / "m.gguf";
  {
    GgufWriter writer(path);
    writer.add("general.architecture", "llama");
    writer.add("llama.block_count", std::uint32_t{2});
    writer.add_array("tokens", std::vector<std::string>{"a", "bc", "def"});
    writer.add_array("scores", std::span<const float>(std::vector<float>{1, 2, 3}));
    writer.declare("token_embd.weight", TensorType::f16, std::vector<std::size_t>{3, 5});
    writer.declare("blk.0.attn_q.weight", TensorType::q4_0, std::vector<std::size_t>{3, 32});
    writer.write(std::vector<float>(15, 1.0f));
    writer.write(std::vector<float>(96, -1.0f));
    writer.commit();
  }
  std::string valid = read_text(path);
  int loaded = 0;
  for (std::uint32_t seed = 0; seed < 4000; ++seed) {
    MemoryFile damaged(mutate(valid, seed));
    std::string message = error_of([&] {
      Gguf file(damaged.path());
      ++loaded;
      for (const GgufEntry& entry : file.metadata()) {
        if (entry.is_array && entry.type == GgufType::string) (void)file.get<Texts>(entry.key);
        if (!entry.is_array) (void)error_of([&] { (void)file.get<double>(entry.key); });
      }
      for (const TensorView& tensor : file.tensors()) (void)to_float(tensor);
    });
    ASSERT_EQ(message.find('\n'), std::string::npos);
  }
  EXPECT_GT(loaded, 100);
  EXPECT_LT(loaded, 3900);
}

TEST(GgufVocabularies, Load) {
  std::filesystem::path folder = std::filesystem::path(BALLAST_SHARED_DATA) / "tokenizers";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not here";
  struct {
    const char* name;
    const char* architecture;
    std::size_t tokens;
  } files[] = {{"ggml-vocab-gpt-2.gguf", "gpt2", 50257},
               {"ggml-vocab-llama-spm.gguf", "llama", 32000},
               {"ggml-vocab-phi-3.gguf", "phi3", 32064},
               {"ggml-vocab-deepseek-llm.gguf", "llama", 102400}};
  for (const auto& f : files) {
    Gguf file(folder / f.name);
    EXPECT_TRUE(file.tensors().empty());
    EXPECT_EQ(file.get<std::string_view>("general.architecture"), f.architecture);
    EXPECT_EQ(file.get<Texts>("tokenizer.ggml.tokens").size(), f.tokens);
  }
}

}  // namespace
}  // namespace ballast
