// What names mean, and sums; fetching is tested against a server in test_pull.py.
#include "hub/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "ballast/error.h"
#include "base/sha256.h"
#include "hub/http.h"

namespace ballast::hub {
namespace {

using testing::HasSubstr;

std::string sum_of(std::string_view text, std::size_t step) {
  Sha256 sum;
  for (std::size_t i = 0; i < text.size(); i += step) {
    sum.add(std::as_bytes(std::span(text.substr(i, step))));
  }
  return sum.finish();
}

// The examples of FIPS 180-4.
TEST(Sha256, IsThatOfTheStandard) {
  EXPECT_EQ(sum_of("", 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sum_of("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string million(1'000'000, 'a');
  for (std::size_t step : {1, 63, 64, 65, 1'000'000}) {
    EXPECT_EQ(sum_of(million, step),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

TEST(Reference, IsANameARepositoryOrAUrl) {
  EXPECT_EQ(parse_reference("Smollm2-135M").file, "SmolLM2-135M-Instruct.Q4_1.gguf");
  const Reference repository = parse_reference("Org/Name-GGUF:Q8_0");
  EXPECT_EQ(repository.repository, "Org/Name-GGUF");
  EXPECT_EQ(repository.quant, "Q8_0");
  const Reference page =
      parse_reference("https://huggingface.co/Org/Name/blob/main/sub/x-Q4_0.gguf?download=true");
  EXPECT_EQ(page.repository, "Org/Name");
  EXPECT_EQ(page.file, "sub/x-Q4_0.gguf");
  EXPECT_TRUE(page.url.empty());
  EXPECT_EQ(parse_reference("https://example.com/a/b.gguf").file, "b.gguf");
}

TEST(Reference, RefusesWhatIsNone) {
  for (const char* text : {"qwen", "a/b/c", "../b", "a/..", "a/b:", "https://example.com/a.zip",
                           "https://huggingface.co/a/b/tree/main", ""}) {
    EXPECT_THROW(parse_reference(text), Error) << text;
  }
  try {
    parse_reference("qwen3-0.7b");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean qwen3-0.6b?"));
  }
}

TEST(Reference, KnowsTheTypeAndThePieceFromAName) {
  EXPECT_EQ(quant_of("SmolLM2-135M-Instruct.Q4_1.gguf"), "Q4_1");
  EXPECT_EQ(quant_of("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"), "Q4_K_M");
  EXPECT_EQ(quant_of("big-Q8_0-00001-of-00003.gguf"), "Q8_0");
  EXPECT_EQ(quant_of("model-BF16.gguf"), "BF16");
  EXPECT_EQ(quant_of("Qwen3-8B.gguf"), "");
  EXPECT_EQ(piece_of("big-Q8_0-00002-of-00003.gguf").number, 2u);
  EXPECT_EQ(piece_of("big-Q8_0-00002-of-00003.gguf").count, 3u);
  EXPECT_EQ(piece_of("big-Q8_0-0002-of-00003.gguf").count, 0u);
  EXPECT_EQ(name_of_piece("x-00001-of-00003.gguf", 3), "x-00003-of-00003.gguf");
}

// A program that runs where it was not built.
TEST(Http, TakesTheCertificatesOfThisSystemOrThoseNamed) {
  ::unsetenv("SSL_CERT_FILE");
  const std::string own = certificate_file();
  EXPECT_TRUE(own.empty() || std::filesystem::exists(own)) << own;
  ::setenv("SSL_CERT_FILE", "/named.pem", 1);
  EXPECT_EQ(certificate_file(), "/named.pem");
  ::unsetenv("SSL_CERT_FILE");
}

TEST(Catalogue, HasTenModelsWithNamesOfTheirOwn) {
  std::set<std::string_view> names, files;
  for (const KnownModel& model : catalogue()) {
    names.insert(model.name);
    files.insert(model.file);
    EXPECT_TRUE(is_repository(model.repository)) << model.name;
    EXPECT_NE(quant_of(model.file), "") << model.name;
    EXPECT_EQ(model.sha256.empty(), model.bytes == 0) << model.name;
    EXPECT_TRUE(model.package.empty() || !model.sha256.empty()) << model.name;
  }
  EXPECT_EQ(names.size(), 10u);
  EXPECT_EQ(files.size(), 10u);
}

}  // namespace
}  // namespace ballast::hub
