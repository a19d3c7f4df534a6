// Packed contexts: run, inspect and library.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "cli/model_run.h"
#include "formats/json.h"
#include "model/identity_basis.h"
#include "paths.h"
#include "temp_dir.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using test::expect_refusal;
using test::run;
using test::Said;
using test::Words;
using test::operator+;
using testing::HasSubstr;

const std::string kSource = BALLAST_SOURCE_DIR;
const std::string kMini = kSource + "/models/ballast-mini.gguf";
const std::string kRecord = kSource + "/examples/record.txt";
const std::string kAsk = "What is the register content of line gaudy-dove?";

class CliPacked : public testing::Test {
 protected:
  CliPacked() : model_(test::model_with_basis(kMini, dir_.path()).string()) {}
  std::string path(const char* name) const { return (dir_ / name).string(); }
  Said model(const Words& more) const {
    return run(Words{"run", "-q", "-m", model_, "-n", "12"} + more);
  }

  TempDir dir_;
  std::string model_;
};

TEST_F(CliPacked, AContextIsPackedAskedAndCited) {
  const Said exact = model({"--context", kRecord, "--question", kAsk, "--cite"});
  ASSERT_EQ(exact.exit_code, 0) << exact.err;
  ASSERT_EQ(model({"--context", kRecord, "--save-cache", path("c"), "--pack", "1/4"}).exit_code, 0);
  const Said packed = model({"--load-cache", path("c"), "--question", kAsk, "--cite"});
  EXPECT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_THAT(exact.out, HasSubstr("37211"));
  EXPECT_THAT(packed.out, HasSubstr("37211"));
  const std::string cited = exact.out.substr(exact.out.find("37211"));
  const auto sentence = [](const std::string& out) {  // with its line, without the file
    const std::size_t at = out.find("line ", out.find('\n') + 1);
    return out.substr(at, out.find('\n', at) - at);
  };
  EXPECT_EQ(sentence(packed.out), sentence(exact.out));
  // As a context it stands in place of its text, and what becomes of it in memory may be said.
  EXPECT_THAT(model({"--context", path("c"), "--cache-type", "q4", "--question", kAsk}).out,
              HasSubstr("37211"));
}

// What the template puts before the text is no part of its first sentence.
TEST_F(CliPacked, TheFirstSentenceIsCitedAsItStands) {
  const std::string text = path("key.txt");
  std::ofstream(text) << "The key is 48213.\n";
  ASSERT_EQ(model({"--context", text, "--save-cache", path("c"), "--pack", "1/4"}).exit_code, 0);
  const Said packed = model({"--load-cache", path("c"), "--question", "key?", "--cite"});
  EXPECT_THAT(packed.out, HasSubstr("[line 1] The key is 48213."));
}

TEST_F(CliPacked, WithoutABasisFourBitsAreSavedAndSaid) {
  const Words save = {"run", "-m", kMini, "--context", kRecord, "--save-cache", path("c")};
  const Said said = run(save + Words{"--pack", "1/16"});
  EXPECT_EQ(said.exit_code, 0) << said.err;
  EXPECT_THAT(said.err, HasSubstr("no basis to pack with"));
  EXPECT_THAT(said.err, HasSubstr("ballast calibrate -m"));
  const Json json = Json::parse(run({"inspect", path("c"), "--json"}).out);
  EXPECT_EQ(json["key_type"], "q4");
  const Words ask = {"run", "-q",           "-m",      kMini,        "-n",
                     "12",  "--load-cache", path("c"), "--question", kAsk};
  EXPECT_THAT(run(ask).out, HasSubstr("37211"));
}

TEST_F(CliPacked, AnEighthIsMadeOfAPackedContext) {
  ASSERT_EQ(model({"--context", kRecord, "--save-cache", path("c"), "--pack", "1/4"}).exit_code, 0);
  const Words asked = {"--load-cache",         path("c"), "--question", kAsk, "--method",
                       "calibrated:bytes=1/2", "--json"};
  const Said said = model(asked);
  ASSERT_EQ(said.exit_code, 0) << said.err;
  EXPECT_THAT(said.out, HasSubstr("calibrated:bytes=1/2"));
  const Said chat = run(Words{"chat", "-q", "-m", model_, "-n", "3", "--load-cache", path("c"),
                              "--method", "calibrated:bytes=1/2"});
  EXPECT_EQ(chat.exit_code, 0) << chat.err;
}

TEST_F(CliPacked, InspectSaysWhatIsInIt) {
  ASSERT_EQ(model({"--context", kRecord, "--save-cache", path("c"), "--pack", "1/16"}).exit_code,
            0);
  const Said text = run({"inspect", path("c")});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  for (const char* part : {"packed cache", "1/16, step 0.2", "0.01", "nats a token", "as bf16"}) {
    EXPECT_THAT(text.out, HasSubstr(part));
  }
  const Json json = Json::parse(run({"inspect", path("c"), "--json"}).out);
  EXPECT_EQ(json["kind"], "packed cache");
  EXPECT_EQ(json["divisor"], 16);
  EXPECT_EQ(json["bytes"], fs::file_size(path("c")));
}

TEST_F(CliPacked, WhatCannotBePackedIsRefusedBeforeItIsRead) {
  const Words save = {"--context", kRecord, "--save-cache", path("c")};
  expect_refusal(model(save + Words{"--pack", "1/16", "--cache", "1/8"}), "leave out --cache");
  expect_refusal(model(save + Words{"--pack", "1/5"}), "expected off or one of 1/4, 1/16");
  expect_refusal(model({"Hi", "--pack", "1/16"}), "--pack 1/16 is for a --save-cache");
  EXPECT_EQ(model(save + Words{"--pack", "off"}).exit_code, 0);
  // A cache that is not packed has its own form.
  expect_refusal(model({"--load-cache", path("c"), "--cache-type", "q4", "--question", kAsk}),
                 "--cache-type has no effect");
}

TEST_F(CliPacked, DamagedFilesAreRefused) {
  ASSERT_EQ(model({"--context", kRecord, "--save-cache", path("c"), "--pack", "1/16"}).exit_code,
            0);
  std::string text = read_text(path("c"));
  text[text.size() / 3] ^= 8;
  write_text(path("c"), text);
  expect_refusal(model({"--load-cache", path("c"), "--question", kAsk}), "damaged");
  expect_refusal(run({"inspect", path("c")}), "damaged");
}

TEST_F(CliPacked, ALibraryPacksWhereTheModelHasABasis) {
  const Words library = {"--library", path("lib")};
  const auto add = [&](const std::string& model, const Words& more) {
    fs::remove_all(path("lib"));
    const Said said = run(Words{"library", "add", "-q", "-m", model, kRecord} + library + more);
    EXPECT_EQ(said.exit_code, 0) << said.err;
    for (const auto& entry : fs::directory_iterator(path("lib"))) {
      if (entry.path().extension() == ".cache") return read_text(entry.path()).substr(0, 8);
    }
    return std::string();
  };
  EXPECT_EQ(add(kMini, {}), "BALLASTC");
  EXPECT_EQ(add(model_, {"--pack", "off"}), "BALLASTC");
  EXPECT_EQ(add(model_, {"--cache", "1/4"}), "BALLASTC");
  EXPECT_EQ(add(model_, {"--pack", "1/4"}), "BALLASTP");
  const Said asked = run(Words{"library", "ask", "-q", "-m", model_, "-n", "12", kAsk} + library);
  EXPECT_THAT(asked.out, HasSubstr("37211")) << asked.err;
  EXPECT_EQ(add(model_, {}), "BALLASTP");
}

}  // namespace
}  // namespace ballast
