#include "library/reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ballast/engine/context_file.h"
#include "ballast/engine/packing.h"
#include "base/fail.h"

namespace ballast {

SectionStorage::SectionStorage(const Model& model, const std::string& cache,
                               const std::string& pack_form) {
  PackPreset preset;
  constexpr std::uint32_t kUsual =
      32;  // half a gigabyte for a million tokens of half a billion weights
  if (pack_form.empty() && cache.empty()) preset = default_pack_preset(model, kUsual);
  if (!pack_form.empty() && pack_form != "off") {
    require(cache.empty(), "--pack {} keeps every token: leave out --cache", pack_form);
    preset = pack_preset(model, pack_form);
  }
  if (preset.step > 0) pack = fmt::format("1/{}", preset.divisor);
  if (preset.step == 0) options.policy = model.policy_for(cache.empty() ? "1/8" : cache);
  options.key_type = options.value_type = StorageType::bf16;
}

void require_model(const Library& library, const LibraryContent& content, const Model& model) {
  const std::string ours = fmt::format("{:016x}", fingerprint(model));
  for (const auto& document : content.documents) {
    require(document->fingerprint.empty() || document->fingerprint == ours,
            "{}: the library's documents were read with the model '{}', and this one is '{}'; take "
            "that model, or another folder: --library",
            library.folder().string(), document->model, model_name(model));
  }
}

std::vector<UnreadSection> unread_sections(const Library& library, const LibraryContent& content,
                                           std::span<const std::string> first) {
  std::vector<std::shared_ptr<const LibraryDocument>> documents = content.documents;
  std::ranges::stable_partition(documents, [&](const auto& document) {
    return std::ranges::count(first, document->id()) > 0;
  });
  std::vector<UnreadSection> out;
  std::set<std::string> keys;
  for (const auto& document : documents) {
    for (std::size_t s = 0; s < document->sections.size(); ++s) {
      const LibrarySection& section = document->sections[s];
      if (library.is_read(section) || !keys.insert(section.key).second) continue;
      out.push_back({document, s});
    }
  }
  return out;
}

bool read_section(const std::shared_ptr<const TextModel>& model, const SectionStorage& storage,
                  const Library& library, const UnreadSection& unread,
                  const std::function<bool(std::size_t done)>& progress) {
  const LibrarySection& section = unread.document->sections[unread.section];
  const std::string text = unread.document->read_text(section);
  const Tokenizer& tokenizer = model->tokenizer;
  const QuestionForm form = tokenizer.vocabulary().chat_template.empty()
                                ? QuestionForm::raw(text)
                                : QuestionForm::from_template(tokenizer, "", text);
  const std::vector<Token> tokens = form.begin(tokenizer);
  CacheOptions options = storage.options;
  options.expected_tokens = tokens.size();
  Session session(model, options);
  session.set_form(form);
  PrefillOptions reading;
  reading.progress = [&](std::size_t done, std::size_t) { return !progress || progress(done); };
  if (!session.read(tokens, reading)) return false;
  ReplayOptions replay;
  replay.progress = [&](std::size_t, std::size_t) { return !progress || progress(tokens.size()); };
  if (!session.finish_prompt(replay)) return false;
  session.save(library.cache_of(section), storage.pack);
  return true;
}

std::string name_of(const LibraryDocument& document, std::size_t section) {
  if (document.sections.size() == 1) return document.name;
  return fmt::format("{}, {} of {}", document.name, section + 1, document.sections.size());
}

}  // namespace ballast
