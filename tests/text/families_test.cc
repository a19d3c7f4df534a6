// What Hugging Face's tokenizers library (npm @mlc-ai/web-tokenizers 0.1.6) makes of a small
// vocabulary with the pre-tokeniser of each family, as its own tokenizer.json has it. The merges of
// the vocabulary go across every boundary, so that a text cut elsewhere has other ids.
#include <fstream>
#include <nlohmann/json.hpp>

#include "ballast/engine/tokenizer.h"
#include "paths.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using nlohmann::json;

const json& all() {
  static const json parsed = json::parse(read_text(BALLAST_SOURCE_DIR "/tests/text/families.json"));
  return parsed;
}

void expect_ids(const Tokenizer& tokenizer, const json& family) {
  const auto texts = all().at("texts").get<std::vector<std::string>>();
  const auto ids = family.at("ids").get<std::vector<std::vector<Token>>>();
  ASSERT_EQ(texts.size(), ids.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(tokenizer.encode(texts[i], {.add_special = false}), ids[i]) << "'" << texts[i] << "'";
    EXPECT_EQ(tokenizer.decode(ids[i]), texts[i]);
  }
}

TEST(Families, OfGgufFilesGiveTheLibrarysIds) {
  for (const auto& [name, family] : all().at("families").items()) {
    SCOPED_TRACE(name);
    Vocabulary vocabulary;
    vocabulary.kind = Vocabulary::Kind::byte_bpe;
    vocabulary.source = "test";
    vocabulary.pre = name;
    vocabulary.pieces = all().at("pieces").get<std::vector<std::string>>();
    for (const auto& merge : all().at("merges")) {
      vocabulary.merges.add(merge.at(0).get<std::string>(), merge.at(1).get<std::string>());
    }
    expect_ids(Tokenizer(std::move(vocabulary)), family);
  }
}

TEST(Families, OfFoldersGiveTheLibrarysIds) {
  const TempDir dir;
  json pieces = json::object();
  for (const json& piece : all().at("pieces")) {
    pieces[piece.get<std::string>()] = pieces.size();
  }
  for (const auto& [name, family] : all().at("families").items()) {
    SCOPED_TRACE(name);
    const json file = {{"pre_tokenizer", family.at("pre_tokenizer")},
                       {"model",
                        {{"type", "BPE"},
                         {"ignore_merges", family.at("ignore_merges")},
                         {"vocab", pieces},
                         {"merges", all().at("merges")}}}};
    write_text(dir / "tokenizer.json", file.dump());
    expect_ids(Tokenizer(read_vocabulary(dir.path())), family);
  }
}

}  // namespace
}  // namespace ballast
