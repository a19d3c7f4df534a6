// Vocabularies of files and of Hugging Face folders.
#include <algorithm>
#include <utility>

#include "ballast/engine/gguf.h"
#include "ballast/engine/tokenizer.h"
#include "base/fail.h"
#include "base/json_reason.h"
#include "base/read_file.h"
#include "formats/json.h"
#include "formats/json_text.h"
#include "text/tokenizer/pretokenizers.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/tokenizer_json.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using json = SortedJson;

// Larger than any vocabulary.
constexpr std::size_t kLargestFile = kMostJson;

std::string read_limited(const fs::path& path) {
  return read_file(path, {.most = kLargestFile, .pipes = false});
}

Vocabulary read_sentencepiece(const fs::path& path) {
  std::string serialized = read_limited(path);
  Vocabulary vocabulary = SentencePieceModel(serialized, path.string()).vocabulary();
  vocabulary.sentencepiece_model = std::move(serialized);
  // The file has no flag; models with a bos token are trained with it.
  vocabulary.add_bos = vocabulary.bos != kNoToken;
  return vocabulary;
}

// GPT-2's own form, which OPT still uses.
Vocabulary read_vocab_and_merges(const fs::path& folder) {
  const fs::path path = folder / "vocab.json";
  return parse_vocab_and_merges(read_limited(path), read_limited(folder / "merges.txt"),
                                path.string());
}

Vocabulary read_folder(const fs::path& folder) {
  if (fs::exists(folder / "tokenizer.json")) {
    const fs::path path = folder / "tokenizer.json";
    return parse_tokenizer_json(read_limited(path), path.string());
  }
  if (fs::exists(folder / "tokenizer.model")) return read_sentencepiece(folder / "tokenizer.model");
  if (fs::exists(folder / "vocab.json")) return read_vocab_and_merges(folder);
  fail("{}: no vocabulary; expected tokenizer.json, tokenizer.model, or vocab.json with merges.txt",
       folder.string());
}

// "<s>", or {"content": "<s>", ...}, or null.
std::string token_text(const json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  return found->is_object() ? found->value("content", std::string()) : "";
}

void set_special_ids(Vocabulary& vocabulary, const json& config) {
  const std::pair<const char*, Token*> names[] = {{"bos_token", &vocabulary.bos},
                                                  {"eos_token", &vocabulary.eos},
                                                  {"unk_token", &vocabulary.unk},
                                                  {"pad_token", &vocabulary.pad}};
  const auto& pieces = vocabulary.pieces;
  for (const auto& [key, id] : names) {
    const std::string text = token_text(config, key);
    const auto found = std::find(pieces.rbegin(), pieces.rend(), text);
    if (text.empty() || found == pieces.rend()) continue;
    *id = static_cast<Token>(pieces.rend() - found - 1);
    if (vocabulary.types[*id] == TokenType::normal) vocabulary.types[*id] = TokenType::control;
  }
  const auto flag = [&](const char* key, bool& value) {
    if (config.contains(key) && config.at(key).is_boolean()) value = config.at(key).get<bool>();
  };
  flag("add_bos_token", vocabulary.add_bos);
  flag("add_eos_token", vocabulary.add_eos);
  vocabulary.add_bos &= vocabulary.bos != kNoToken;
  vocabulary.add_eos &= vocabulary.eos != kNoToken;
}

void set_chat_template(Vocabulary& vocabulary, const json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end()) return;
  const auto set = [&](const std::string& name, const json& text) {
    if (name == "default") vocabulary.chat_template = text.get<std::string>();
    if (name == "tool_use") vocabulary.tool_template = text.get<std::string>();
  };
  if (found->is_string()) {
    vocabulary.chat_template = found->get<std::string>();
  } else if (found->is_array()) {
    for (const json& entry : *found) set(entry.at("name").get<std::string>(), entry.at("template"));
  } else if (found->is_object()) {
    for (const auto& [name, text] : found->items()) set(name, text);
  }
}

// Processors of models that see have theirs in a file of its own.
void read_processors_template(Vocabulary& vocabulary, const fs::path& path) {
  const json config = parse_json(read_limited(path), path.string());
  try {
    set_chat_template(vocabulary, config);
  } catch (const json::exception& e) {
    fail("{}: {}", path.string(), json_reason(e));
  }
}

// The tokens that end an answer, where the model's files list them: the first file that does.
void read_ends(Vocabulary& vocabulary, const fs::path& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path path = folder / name;
    if (!fs::exists(path)) continue;
    const json config = parse_json(read_limited(path), path.string());
    const auto found = config.find("eos_token_id");
    if (found == config.end() || found->is_null()) continue;
    for (const json& id : found->is_array() ? *found : json::array({*found})) {
      require(id.is_number_integer(), "{}: 'eos_token_id' is neither an id nor a list of ids",
              path.string());
      // Some writers put a number outside the vocabulary for "none".
      const bool there =
          id.is_number_unsigned() && id.get<std::uint64_t>() < vocabulary.pieces.size();
      if (there) vocabulary.ends.push_back(id.get<Token>());
    }
    return;
  }
}

void read_config(Vocabulary& vocabulary, const fs::path& path, bool with_added_tokens) {
  const json config = parse_json(read_limited(path), path.string());
  try {
    if (with_added_tokens && config.contains("added_tokens_decoder")) {
      for (const auto& [id, token] : config.at("added_tokens_decoder").items()) {
        // Keys are not in numeric order; add_token() allows gaps.
        require(!id.empty() && id.size() < 10 &&
                    id.find_first_not_of("0123456789") == std::string::npos,
                "{}: '{}' in 'added_tokens_decoder' is not an id", path.string(), id);
        add_token(vocabulary, std::stoi(id), token);
      }
    }
    set_special_ids(vocabulary, config);
    set_chat_template(vocabulary, config);
  } catch (const json::exception& e) {
    fail("{}: {}", path.string(), json_reason(e));
  }
}

}  // namespace

Vocabulary read_vocabulary(const fs::path& path) try {
  require(fs::exists(path), ErrorCode::io, "{}: no such file or folder", path.string());
  const bool is_folder = fs::is_directory(path);
  const bool is_gguf = !is_folder && path.extension() != ".json" && path.extension() != ".model";
  if (is_gguf) return read_vocabulary(Gguf(path));
  Vocabulary vocabulary = is_folder ? read_folder(path)
                          : path.extension() == ".model"
                              ? read_sentencepiece(path)
                              : parse_tokenizer_json(read_limited(path), path.string());
  const fs::path folder = is_folder ? path : path.parent_path();
  const bool from_json = fs::path(vocabulary.source).filename() == "tokenizer.json";
  if (fs::exists(folder / "tokenizer_config.json")) {
    read_config(vocabulary, folder / "tokenizer_config.json", !from_json);
  }
  if (fs::exists(folder / "chat_template.jinja")) {
    vocabulary.chat_template = read_limited(folder / "chat_template.jinja");
  }
  if (vocabulary.chat_template.empty() && fs::exists(folder / "chat_template.json")) {
    read_processors_template(vocabulary, folder / "chat_template.json");
  }
  const fs::path for_tools = folder / "additional_chat_templates" / "tool_use.jinja";
  if (fs::exists(for_tools)) vocabulary.tool_template = read_limited(for_tools);
  read_ends(vocabulary, folder);
  return vocabulary;
} catch (const Error& error) {
  rethrow_from_file(error);
}

}  // namespace ballast
