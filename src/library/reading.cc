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

QuestionForm section_form(const Tokenizer& tokenizer, const std::string& text) {
  return tokenizer.vocabulary().chat_template.empty()
             ? QuestionForm::raw(text)
             : QuestionForm::from_template(tokenizer, "", text);
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

namespace {

/// A section without a cache.
struct UnreadSection {
  std::shared_ptr<const LibraryDocument> document;
  const LibrarySection* section = nullptr;

  std::size_t tokens() const { return section->tokens + 1; }
};

/// Each once, those of the documents `first` before others.
std::vector<UnreadSection> unread_sections(const Library& library, const LibraryContent& content,
                                           std::span<const std::string> first) {
  std::vector<std::shared_ptr<const LibraryDocument>> documents = content.documents;
  std::ranges::stable_partition(documents, [&](const auto& document) {
    return std::ranges::count(first, document->id()) > 0;
  });
  std::vector<UnreadSection> out;
  std::set<std::string> keys;
  for (const auto& document : documents) {
    for (const LibrarySection& section : document->sections) {
      if (library.is_read(section) || !keys.insert(section.key).second) continue;
      out.push_back({document, &section});
    }
  }
  return out;
}

/// Reads a section and writes its cache. False: `progress`, which is told its tokens done, stopped
/// it.
bool read_section(const std::shared_ptr<const TextModel>& model, const SectionStorage& storage,
                  const Library& library, const UnreadSection& unread,
                  const std::function<bool(std::size_t done)>& progress) {
  const QuestionForm form =
      section_form(model->tokenizer, unread.document->read_text(*unread.section));
  const std::vector<Token> tokens = form.begin(model->tokenizer);
  CacheOptions options = storage.options;
  options.expected_tokens = tokens.size();
  Session session(model, options);
  session.set_form(form);
  PrefillOptions reading;
  reading.progress = [&](std::size_t done, std::size_t) { return progress(done); };
  if (!session.read(tokens, reading)) return false;
  ReplayOptions replay;
  replay.progress = [&](std::size_t, std::size_t) { return progress(tokens.size()); };
  if (!session.finish_prompt(replay)) return false;
  session.save(library.cache_of(*unread.section), storage.pack);
  return true;
}

void read_all(const std::vector<UnreadSection>& unread,
              const std::shared_ptr<const TextModel>& model, const SectionStorage& storage,
              const Library& library, const AddingProgress& progress) {
  std::size_t all = 0, done = 0;
  for (const UnreadSection& one : unread) all += one.tokens();
  for (std::size_t i = 0; i < unread.size(); ++i) {
    bool goes_on = true;
    const auto tell = [&](std::size_t here) {
      here = std::min(here, unread[i].tokens());  // which leaves out those of the template
      goes_on &= !progress.tokens || progress.tokens(done + here, all, unread.size());
      return goes_on;
    };
    if (!read_section(model, storage, library, unread[i], tell)) return;
    done += unread[i].tokens();
    const bool last = i + 1 == unread.size() || unread[i + 1].document != unread[i].document;
    if (last && progress.read) progress.read(*unread[i].document);
    if (!goes_on) return;
  }
}

}  // namespace

LibraryUpdate add_documents(Library& library, const std::shared_ptr<const TextModel>& model,
                            const SectionStorage& storage, std::span<const std::string> paths,
                            const AddingProgress& progress) {
  const LibraryLock lock(library.folder(), progress.waits);
  require_model(library, *library.content(), model->model);
  UpdateOptions options;
  options.tokens = [&](std::string_view text) {
    return encode_more(model->tokenizer, text, false).size();
  };
  options.model = model_name(model->model);
  options.fingerprint = fmt::format("{:016x}", fingerprint(model->model));
  options.progress = progress.files;
  LibraryUpdate out = update(library, paths, options);
  if (progress.found) progress.found(out);
  const std::shared_ptr<const LibraryContent> now = library.content();
  read_all(unread_sections(library, *now, out.ids), model, storage, library, progress);
  return out;
}

}  // namespace ballast
