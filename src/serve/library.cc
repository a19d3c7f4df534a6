#include "serve/library.h"

#include <algorithm>

#include "ballast/engine/context_file.h"
#include "ballast/engine/packing.h"
#include "ballast/joined.h"
#include "base/fail.h"
#include "base/os/files.h"
#include "base/read_file.h"
#include "documents/document.h"
#include "library/library_json.h"

namespace ballast::serve {
namespace {

constexpr std::string_view kBegin = "lib_";

}  // namespace

ServedLibrary::ServedLibrary(std::filesystem::path folder, const Model& model,
                             const Tokenizer& tokenizer, Contexts& contexts)
    : library_(std::move(folder)),
      tokenizer_(tokenizer),
      model_(model),
      contexts_(contexts),
      storage_(model, "", "") {
  contexts_.set_lender([this](const std::string& id) { lend(id); });
}

std::vector<std::string> ServedLibrary::refused() {
  const std::shared_ptr<const LibraryContent> now = library_.content();
  std::vector<std::string> out = now->damaged;
  const std::string ours = fmt::format("{:016x}", fingerprint(model_));
  for (const auto& document : now->documents) {
    if (document->fingerprint.empty() || document->fingerprint == ours) continue;
    out.push_back(fmt::format("{}: {} was read with the model '{}'", document->file.string(),
                              document->name, document->model));
  }
  return out;
}

void ServedLibrary::lend(const std::string& id) {
  if (!id.starts_with(kBegin)) return;
  const std::string key = id.substr(kBegin.size());
  const std::shared_ptr<const LibraryContent> now = library_.content();
  for (const auto& document : now->documents) {
    const auto section = std::ranges::find(document->sections, key, &LibrarySection::key);
    if (section == document->sections.end() || !library_.is_read(*section)) continue;
    const std::string text = document->read_text(*section);
    ContextInfo info;
    info.id = id;
    info.name = document->name;
    info.before = section_form(tokenizer_, text).before;
    return contexts_.lend(std::move(info), library_.cache_of(*section));
  }
}

std::vector<Candidate> ServedLibrary::find(std::string_view question, std::size_t most) {
  constexpr std::size_t kSpare = 4;  // for damaged ones
  std::vector<Candidate> out;
  for (FoundSection& found : library_.find(question, most + kSpare)) {
    if (out.size() == most) break;
    try {
      std::shared_ptr<const Context> context = contexts_.get(id_of(found.part()));
      if (context) out.push_back({std::move(found), std::move(context)});
    } catch (const ApiError&) {
      if (out.empty()) throw;  // no memory for one
      break;
    } catch (const Error&) {  // damaged: the others may answer
    }
  }
  return out;
}

Json ServedLibrary::about(const LibraryDocument& document) const {
  Json out = to_json(document, library_);
  out.erase("files");  // paths of this machine
  out["object"] = "document";
  return out;
}

Json ServedLibrary::list() {
  Json out = Json::array();
  for (const auto& document : library_.content()->documents) out.push_back(about(*document));
  return out;
}

Json ServedLibrary::document(const std::string& id) {
  for (const auto& document : library_.content()->documents) {
    if (document->id() != id) continue;
    Json out = about(*document);
    out["text"] = to_utf8(document->text);
    return out;
  }
  return nullptr;
}

std::string ServedLibrary::page(const std::string& id, std::size_t page) {
  for (const auto& document : library_.content()->documents) {
    if (document->id() != id) continue;
    for (const LibrarySource& source : document->sources) {
      if (written_at(source.path) != source.changed) continue;
      const std::string bytes = read_file(source.path, {.pipes = false});
      const std::string_view pdf = pdf_in(bytes, source.name);
      if (!pdf.empty()) return picture_of_page(pdf, page, source.name, true);
    }
  }
  return "";
}

std::shared_ptr<const LibraryDocument> ServedLibrary::add(std::string name, std::string text) {
  LibraryDocument made = new_document(
      library_.folder(), std::move(name), std::move(text),
      [&](std::string_view part) { return encode_more(tokenizer_, part, false).size(); });
  for (const auto& there : library_.content()->documents) {
    if (there->id() == made.id()) return there;
  }
  made.model = model_name(model_);
  made.fingerprint = fmt::format("{:016x}", fingerprint(model_));
  library_.put(made);
  return std::make_shared<const LibraryDocument>(std::move(made));
}

Job ServedLibrary::reading(const LibraryDocument& document, const LibrarySection& section) const {
  const QuestionForm form = section_form(tokenizer_, document.read_text(section));
  Job out;
  out.prompt = form.begin(tokenizer_);
  out.compress_at = out.prompt.size();
  out.cache = storage_.options;
  out.chat = form.chat;
  out.choices = 0;
  return out;
}

void ServedLibrary::keep(const LibrarySection& section, const Job& job, const Cache& cache) const {
  const std::string form = section_form(tokenizer_, "").to_text();
  const std::filesystem::path file = library_.cache_of(section);
  if (storage_.pack == "off") return save_context(file, model_, cache, form, job.prompt);
  save_packed_context(file, model_, cache, pack_preset(model_, storage_.pack), form, job.prompt);
}

bool ServedLibrary::remove(const std::string& id) {
  const std::shared_ptr<const LibraryContent> now = library_.content();
  if (std::ranges::none_of(now->documents, [&](const auto& one) { return one->id() == id; })) {
    return false;
  }
  library_.remove({id});
  return true;
}

Job trial_of(const Job& job, std::shared_ptr<const Context> context) {
  constexpr std::size_t kTried = 48;  // tokens
  Job out = job;
  out.context = std::move(context);
  out.choices = 1;
  out.cite = joined_tokens(out.context->cache) == 0;
  out.generate.sampling = {};
  out.generate.max_tokens = std::min(kTried, job.generate.max_tokens);
  return out;
}

AnswerEvidence Tried::of(const std::vector<FoundSection>& sections,
                         std::string_view question) const {
  AnswerEvidence out = evidence;
  std::string texts;
  for (const FoundSection& one : sections) {
    out.score = std::max(out.score, one.score);
    texts += one.document->read_text(one.part()) + "\n";
  }
  out.compare(texts, question, text);
  return out;
}

bool add_to(Tried& tried, const Event& event) {
  if (const auto* piece = std::get_if<Piece>(&event)) {
    tried.text += piece->text;
    for (const GeneratedToken& token : piece->tokens) {
      tried.evidence.add(token.chosen.log_probability);
    }
    for (const float x : piece->attention) tried.evidence.looked_up += x;
  }
  return std::holds_alternative<Ended>(event);
}

}  // namespace ballast::serve
