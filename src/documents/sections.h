// The sections of a long text: parts that can be read alone.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

struct Section {
  std::size_t begin = 0, end = 0;  ///< bytes of the text
  std::string title;               ///< the last heading before or at its begin; may be empty
  std::size_t tokens = 0;
  bool operator==(const Section&) const = default;
};

/// Tokens of a section: a text of at most `most` is one section; others are near `good` where
/// headings, pages or paragraphs allow it. None has over `most` but a word that has.
struct SectionSizes {
  std::size_t good = 2000, most = 2500;
};

/// Divides a text, preferably before headings, then at pages ("=== a.pdf, page 3 ===", see
/// joined_text()), paragraphs, lines and words. Sections follow one another and cover the text.
/// `tokens`: how many a part of the text has. None for a blank text.
std::vector<Section> divide(std::string_view text,
                            const std::function<std::size_t(std::string_view)>& tokens,
                            const SectionSizes& sizes = {});

/// What a text is called by its first line: empty where that is no heading.
std::string title_of(std::string_view text);

}  // namespace ballast
