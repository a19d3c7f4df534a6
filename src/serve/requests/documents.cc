#include "serve/requests/documents.h"

#include <ctime>

#include "ballast/engine/question_form.h"
#include "base/base64.h"
#include "documents/document.h"
#include "documents/passages.h"
#include "formats/utf8_text.h"
#include "serve/http/api_error.h"
#include "serve/http/fields.h"
#include "serve/pictures.h"
#include "serve/requests/chat_prompt.h"
#include "serve/requests/place.h"

namespace ballast::serve {
namespace {

/// The text of a file that comes in base64, of a data URL too. `note`: see DocumentPart.
std::string text_of_file(std::string_view base64, const std::string& name, std::string& note) {
  std::string_view media_type;
  if (base64.starts_with("data:")) {
    const std::size_t comma = std::min(base64.find(','), base64.size() - 1);
    media_type = base64.substr(5, comma - std::min<std::size_t>(comma, 5));
    base64.remove_prefix(comma + 1);
  }
  std::string bytes = decode_base64(base64);
  if (bytes.empty()) refuse("file", "file: no bytes in base64");
  std::string text;
  naming("file", [&] {
    const std::string shown_name = name.empty() ? "document" : name;
    const std::vector<DocumentPart> parts =
        read_document(std::move(bytes), shown_name, shown_name, media_type);
    text = joined_text(parts, parts.front().page > 0);
    note = parts.front().note;
  });
  return text;
}

/// Place holders of "images".
std::string pictures_of(Fields& f, bool chat, Pictures& pictures) {
  const Json* images = f.find("images");
  if (images == nullptr) return "";
  if (!images->is_array() || !chat) {
    refuse("images", "images: an array of data URLs is expected, with \"form\": \"chat\"");
  }
  std::string out;
  for (std::size_t i = 0; i < images->size(); ++i) {
    const std::string name = fmt::format("images[{}]", i);
    if (!(*images)[i].is_string()) refuse(name, "{}: a data URL is expected", name);
    out += pictures.read((*images)[i].get<std::string>(), name);
  }
  return out;
}

/// What the job reads: `text` with the words of the template around it.
void place_text(const QuestionForm& words, const Tokenizer& tokenizer, const RequestLimits& limits,
                ContextRequest& out) {
  Job& job = out.job;
  out.info.form = words.to_text();
  out.info.before = words.before;
  job.prompt = words.begin(tokenizer);
  job.compress_at = job.prompt.size();
  job.chat = words.chat;
  job.choices = 0;
  if (!job.compacts || !job.chat) return;
  const auto other = QuestionForm::from_template(tokenizer, out.info.system, kPlace);
  protect_head(job, other.begin(tokenizer), limits);
}

}  // namespace

DocumentRequest parse_document(const Json& body) {
  DocumentRequest out;
  Fields f(body);
  out.name = f.text("name").value_or("");
  if (out.name.empty()) refuse("name", "name: the document's is missing");
  const auto text = f.text("text"), file = f.text("file");
  if (text.has_value() == file.has_value()) refuse("file", "file: give text or file");
  out.text = file ? text_of_file(*file, out.name, out.note) : whole_text(*text);
  if (is_blank(out.text)) refuse("text", "text: the document is empty");
  out.stream = f.flag("stream", false);
  f.end();
  return out;
}

std::string parse_name(Fields& request) {
  std::string name = request.text("name").value_or("");
  if (name.size() > Contexts::kMostName) {
    refuse("name", "name: {} bytes are too many; give at most {}", name.size(),
           Contexts::kMostName);
  }
  return name;
}

ContextRequest parse_context(const Json& body, const RequestLimits& limits,
                             const Tokenizer& tokenizer) {
  ContextRequest out;
  Fields f(body);
  const auto given = f.text("text"), file = f.text("file");
  const bool chat = f.one_of("form", {"chat", "raw"}, "chat") == "chat";
  out.info.name = parse_name(f);
  if (given && file) refuse("file", "file: give text or file, not both");
  const std::string text =
      file ? text_of_file(*file, out.info.name, out.note) : whole_text(given.value_or(""));
  Pictures pictures(limits.vision);
  const std::string places = pictures_of(f, chat, pictures);
  if (text.empty() && places.empty()) refuse("text", "text: the text to be read is missing");
  if (text.starts_with("%PDF-") || looks_binary(text)) {
    refuse("text", "text: no text; the bytes of a file go to file, in base64");
  }
  out.info.system = f.text("system").value_or("");
  if (!chat && !out.info.system.empty()) {
    refuse("system", "system: only with \"form\": \"chat\"");
  }
  parse_cache(f.find("cache"), limits, out.job);
  out.stream = f.flag("stream", false);
  f.end();
  naming("text", [&] {
    QuestionForm words = chat ? QuestionForm::from_template(tokenizer, out.info.system,
                                                            text.empty() ? "" : places + text)
                              : QuestionForm::raw(text);
    if (text.empty()) words.before += places;
    place_text(words, tokenizer, limits, out);
    pictures.place_in(out.job);
  });
  out.info.created = std::time(nullptr);
  out.info.pictures = find_pictures(out.job.prompt, out.job.pictures);
  out.info.tokens = out.job.prompt.size();
  return out;
}

}  // namespace ballast::serve
