// Which code goes with which error.
#include "ballast/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "ballast/cache.h"
#include "ballast/engine/chat.h"
#include "ballast/engine/gguf.h"
#include "ballast/engine/model.h"
#include "ballast/engine/model_file.h"
#include "ballast/engine/safetensors.h"
#include "ballast/engine/sampler.h"
#include "ballast/engine/tokenizer.h"
#include "base/output_file.h"
#include "base/read_file.h"
#include "support.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using test::code_of;

std::filesystem::path file_with(const TempDir& dir, const char* name, const std::string& content) {
  write_file(dir / name, content);
  return dir / name;
}

/// One layer, one head of two elements, one token.
Cache small_cache() {
  CacheShape shape;
  shape.key_dim = shape.value_dim = 2;
  shape.logits.scale = 1.0f;
  Cache cache(shape, {});
  const Matrix row(1, 2);
  Matrix out(1, 2);
  cache.forward(0, row.view(), row.view(), row.view(), out.view());
  return cache;
}

TEST(ErrorCodes, InvalidArgument) {
  EXPECT_EQ(code_of([] { Policy::parse("nonsense"); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { small_cache().finish_prompt(1); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { Sampler({.top_p = 2.0f}); }), ErrorCode::invalid_argument);
}

TEST(ErrorCodes, BadFile) {
  const TempDir dir;
  const std::filesystem::path text = file_with(dir, "some.txt", "some text that is no model");
  EXPECT_EQ(code_of([&] { Gguf file(text); }), ErrorCode::bad_file);
  EXPECT_EQ(code_of([&] { Safetensors file(text); }), ErrorCode::bad_file);
  EXPECT_EQ(code_of([&] { ModelFile file(text); }), ErrorCode::bad_file);
  EXPECT_EQ(code_of([&] { Cache::load(text); }), ErrorCode::bad_file);
  const auto json = file_with(dir, "tokenizer.json", "{");
  EXPECT_EQ(code_of([&] { read_vocabulary(json); }), ErrorCode::bad_file);
  // The checksum of a damaged cache, and a method string that a file holds.
  std::vector<std::byte> bytes = small_cache().to_bytes();
  bytes.back() ^= std::byte{1};
  EXPECT_EQ(code_of([&] { Cache::parse(bytes, "it"); }), ErrorCode::bad_file);
}

TEST(ErrorCodes, Io) {
  const TempDir dir;
  const std::filesystem::path missing = dir / "no" / "file";
  EXPECT_EQ(code_of([&] { Gguf file(missing); }), ErrorCode::io);
  EXPECT_EQ(code_of([&] { Cache::load(missing); }), ErrorCode::io);
  EXPECT_EQ(code_of([&] { Cache::load(dir.path()); }), ErrorCode::io);
  EXPECT_EQ(code_of([&] { read_vocabulary(missing); }), ErrorCode::io);
  EXPECT_EQ(code_of([&] { small_cache().save(missing); }), ErrorCode::io);
  EXPECT_EQ(code_of([&] { small_cache().save(dir.path()); }), ErrorCode::io);
}

TEST(ErrorCodes, OutOfMemory) {
  EXPECT_EQ(code_of([] { require_memory({.cache = 2}, 1, "it"); }), ErrorCode::out_of_memory);
}

TEST(ErrorCodes, Unsupported) {
  const TempDir dir;
  const auto old = file_with(
      dir, "old.gguf", std::string("GGUF\x01\0\0\0\0\0\0\0\0\0\0\0", 16) + std::string(64, '\0'));
  EXPECT_EQ(code_of([&] { Gguf file(old); }), ErrorCode::unsupported);
  std::vector<std::byte> bytes = small_cache().to_bytes();
  bytes[8] = std::byte{99};  // the version
  EXPECT_EQ(code_of([&] { Cache::parse(bytes, "it"); }), ErrorCode::unsupported);
  EXPECT_EQ(code_of([] { ChatTemplate("{{ 1|nonsense }}").format({}, {}); }),
            ErrorCode::unsupported);
}

TEST(ErrorCodes, NotFinite) {
  Cache cache = small_cache();
  Matrix row(1, 2), out(1, 2);
  row[0][1] = NAN;
  EXPECT_EQ(code_of([&] { cache.forward(0, row.view(), row.view(), row.view(), out.view()); }),
            ErrorCode::not_finite);
  const float logits[] = {0.0f, NAN};
  EXPECT_EQ(code_of([&] { Sampler({}).sample(logits, {}); }), ErrorCode::not_finite);
}

TEST(ErrorCodes, OverLimit) {
  const ChatTemplate endless("{% for i in range(90000) %}{{ 'x' * 1000000 }}{% endfor %}");
  EXPECT_EQ(code_of([&] { endless.format({}, {}); }), ErrorCode::over_limit);
}

}  // namespace
}  // namespace ballast
