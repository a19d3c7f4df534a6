#include "library/library_json.h"

#include <algorithm>

#include "report/citations.h"

namespace ballast {
namespace {

Json to_json(const AskedSection& asked, const Library& library) {
  const FoundSection& found = asked.found;
  const AnswerEvidence& e = asked.evidence;
  return {{"name", found.document->name},
          {"section", found.section},
          {"title", found.part().title},
          {"cache", library.cache_of(found.part()).string()},
          {"score", e.score},
          {"passage", found.passage},
          {"answer", asked.answer},
          {"certainty", e.certainty},
          {"least", e.least},
          {"missing", e.missing},
          {"near", e.near},
          {"looked_up", e.looked_up}};
}

}  // namespace

Json to_json(const LibraryDocument& document, const Library& library) {
  Json files = Json::array();
  for (const LibrarySource& source : document.sources) files.push_back(source.path);
  return {{"id", document.id()},
          {"name", document.name},
          {"tokens", document.tokens()},
          {"sections", document.sections.size()},
          {"sections_read",
           std::ranges::count_if(document.sections,
                                 [&](const auto& one) { return library.is_read(one); })},
          {"bytes", library.bytes(document)},
          {"text_bytes", document.text.size()},
          {"added", document.added},
          {"files", std::move(files)}};
}

Json to_json(const LibraryContent& content, const Library& library) {
  Json out = Json::array();
  for (const auto& document : content.documents) out.push_back(to_json(*document, library));
  return out;
}

Json to_json(std::string_view question, const LibraryAnswer& answer, const Library& library) {
  Json asked = Json::array();
  for (const AskedSection& one : answer.asked) asked.push_back(to_json(one, library));
  return {{"question", question},
          {"answer", answer.text},
          {"supported", answer.supported},
          {"from", answer.sections},
          {"citations", to_json(answer.citations)},
          {"documents", std::move(asked)}};
}

}  // namespace ballast
