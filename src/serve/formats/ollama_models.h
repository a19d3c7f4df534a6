// The model as Ollama's clients list it.
#pragma once

#include <string>

#include "ballast/engine/model.h"
#include "ballast/engine/tokenizer.h"
#include "report/json.h"

namespace ballast::serve {

/// The model and the tokenizer must outlive it.
class OllamaModel {
 public:
  OllamaModel(std::string name, const Model& model, const Tokenizer& tokenizer)
      : name_(std::move(name)), model_(model), tokenizer_(tokenizer) {}

  /// Of /api/tags and /api/ps.
  Json entry() const {
    const std::size_t size = model_.file().bytes();
    return {{"name", name_},
            {"model", name_},
            {"modified_at", "1970-01-01T00:00:00Z"},
            {"size", size},
            {"digest", ""},
            {"details", about()},
            {"size_vram", 0},
            {"expires_at", "1970-01-01T00:00:00Z"}};
  }
  /// Of /api/show.
  Json details() const {
    const std::string& chat = tokenizer_.vocabulary().chat_template;
    Json capabilities = {"completion"};
    if (chat.find("tools") != std::string::npos) capabilities.push_back("tools");
    if (chat.find("<think>") != std::string::npos ||
        chat.find("<|channel|>analysis") != std::string::npos)
      capabilities.push_back("thinking");
    const std::string family = about()["family"];
    Json info = {{"general.architecture", family}};
    info[family + ".context_length"] = model_.config().max_positions;
    info[family + ".embedding_length"] = model_.config().width;
    return {{"modelfile", ""},
            {"parameters", ""},
            {"template", chat},
            {"details", about()},
            {"model_info", info},
            {"capabilities", capabilities},
            {"modified_at", "1970-01-01T00:00:00Z"}};
  }

 private:
  Json about() const {
    const std::string family(to_string(model_.config().family));
    return {{"parent_model", ""},   {"format", "gguf"},
            {"family", family},     {"families", Json::array({family})},
            {"parameter_size", ""}, {"quantization_level", ""}};
  }

  std::string name_;
  const Model& model_;
  const Tokenizer& tokenizer_;
};

}  // namespace ballast::serve
