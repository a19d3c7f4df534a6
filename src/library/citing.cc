#include "library/citing.h"

#include <algorithm>

#include "ballast/engine/question_form.h"

namespace ballast {

Citation found_passage(const FoundSection& found) {
  Citation out;
  out.text = found.passage.substr(0, found.passage.find('\n', 60));
  std::ranges::replace(out.text, '\n', ' ');
  out.part = {found.begin, found.begin + found.passage.size()};
  out.place = place_of(found.document->text, found.begin);
  out.place.document = found.document->name;
  return out;
}

std::vector<Citation> cite_section(const FoundSection& found, const Tokenizer& tokenizer,
                                   std::span<const Token> tokens,
                                   std::span<const float> attention) {
  const bool chat = !tokenizer.vocabulary().chat_template.empty();
  const std::size_t before = chat ? bytes_before_context(tokenizer, "") : 0;
  std::vector<Citation> out = cite(tokenizer, tokens, before, attention);
  const LibrarySection& section = found.part();
  const std::size_t title = section.title.empty() ? 0 : section.title.size() + 2;
  std::erase_if(out, [&](const Citation& one) { return one.part.begin < title; });
  for (Citation& one : out) {
    one.place = found.document->place_of(section, one.part.begin);
    one.part.begin += section.begin - title;
    one.part.end += section.begin - title;
  }
  if (out.empty() && !found.passage.empty()) out.push_back(found_passage(found));
  return out;
}

}  // namespace ballast
