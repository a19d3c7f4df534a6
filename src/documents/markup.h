// The tags and texts of a page in HTML or XML.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace ballast {

/// Finds the next of a word from places that only move forward: in time in proportion to the text,
/// however often it is asked.
class NextWord {
 public:
  explicit NextWord(std::string_view word) : word_(word) {}
  /// text.size() if there is none. `text`: the same each time.
  std::size_t find(std::string_view text, std::size_t from) {
    if (!known_ || at_ < from) at_ = std::min(text.find(word_, from), text.size());
    known_ = true;
    return at_;
  }

 private:
  std::string word_;
  std::size_t at_ = 0;
  bool known_ = false;
};

/// What a page consists of, one after another. Comments, declarations and processing instructions
/// are left out. Tags are divided as the HTML standard says; any text has some division.
class MarkupReader {
 public:
  enum class Kind { text, begin, end, none };

  /// `xml`: CDATA is text, and names of attributes lose their prefix.
  MarkupReader(std::string_view text, bool xml) : text_(text), xml_(xml) {}

  /// Goes on to the next piece. Kind::none: the page has ended.
  Kind next();
  /// Of a tag, in lower case.
  const std::string& name() const { return name_; }
  bool closes_itself() const { return closes_itself_; }  ///< "<a/>"
  /// Of a tag: the value of an attribute, its name in lower case; "" if it has none.
  std::string attribute(std::string_view name) const;
  /// The characters of a text, references replaced.
  std::string characters() const;
  bool xml() const { return xml_; }

  /// After the tag that begins an element of raw text (script, title): its content as it stands, at
  /// whose end tag the page goes on. Nothing where the element has no end, or where its tag closes
  /// itself and another begins before an end: the page goes on at once.
  std::optional<std::string_view> raw_content();

 private:
  Kind tag(bool ends);
  /// Where the tag whose name ends at `at` ends, behind its '>'.
  std::size_t end_of_tag(std::size_t at);
  std::size_t end_of_comment();
  std::size_t end_of_declaration();
  /// Where the end tag of this name begins; text_.size(): nowhere.
  std::size_t find_end(std::string_view name, std::size_t from) const;
  std::size_t find_end_of_script() const;
  /// Whether an end tag of this name comes before the next one that begins.
  bool ends_before_next() const;

  std::string_view text_;
  bool xml_;
  std::size_t at_ = 0;
  std::string name_;
  std::string_view part_;  ///< of a tag its attributes; else characters
  bool literal_ = false;   ///< no references in them
  bool closes_itself_ = false;
  NextWord double_quote_{"\""}, single_quote_{"'"}, angle_{">"};
  NextWord comment_end_{"-->"}, odd_comment_end_{"--!>"};
  NextWord instruction_end_{"?>"}, data_end_{"]]>"}, subset_end_{"]"};
  std::set<std::string> endless_;  ///< elements of raw text without an end from here on
};

}  // namespace ballast
