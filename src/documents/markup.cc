#include "documents/markup.h"

#include <algorithm>

#include "documents/characters.h"

namespace ballast {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\f";

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_letter(char c) { return lower(c) >= 'a' && lower(c) <= 'z'; }
bool is_blank(char c) { return kBlanks.find(c) != std::string_view::npos; }
bool ends_name(char c) { return is_blank(c) || c == '/' || c == '>'; }

/// Whether `name`, in lower case, is the name of the tag that goes on at `at`.
bool has_name(std::string_view text, std::size_t at, std::string_view name) {
  if (at > text.size() || text.size() - at <= name.size()) return false;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (lower(text[at + i]) != name[i]) return false;
  }
  return ends_name(text[at + name.size()]);
}

}  // namespace

MarkupReader::Kind MarkupReader::next() {
  literal_ = false;
  while (at_ < text_.size()) {
    const std::string_view rest = text_.substr(at_, 9);
    const char second = rest.size() > 1 ? rest[1] : ' ';
    if (rest[0] == '<' && is_letter(second)) return tag(false);
    if (rest[0] == '<' && second == '/' && rest.size() > 2) {
      if (is_letter(rest[2])) return tag(true);
      at_ = std::min(angle_.find(text_, at_) + 1, text_.size());
      continue;
    }
    if (rest[0] == '<' && (second == '!' || second == '?')) {
      if (xml_ && rest.starts_with("<![CDATA[")) {
        const std::size_t begin = at_ + rest.size(), end = data_end_.find(text_, begin);
        part_ = text_.substr(begin, end - begin);
        at_ = std::min(end + 3, text_.size());
        literal_ = true;
        return Kind::text;
      }
      at_ = end_of_declaration();
      continue;
    }
    std::size_t end = at_ + 1;
    for (; (end = text_.find('<', end)) < text_.size(); ++end) {
      const char c = end + 1 < text_.size() ? text_[end + 1] : ' ';
      if (is_letter(c) || c == '/' || c == '!' || c == '?') break;
    }
    end = std::min(end, text_.size());
    part_ = text_.substr(at_, end - at_);
    at_ = end;
    return Kind::text;
  }
  return Kind::none;
}

std::size_t MarkupReader::end_of_declaration() {
  const std::string_view rest = text_.substr(at_);
  if (rest.starts_with("<!--")) return end_of_comment();
  if (xml_ && rest.starts_with("<?")) {
    return std::min(instruction_end_.find(text_, at_) + 2, text_.size());
  }
  std::size_t end = angle_.find(text_, at_);
  // The declarations within a document type end in a bracket.
  if (xml_ && text_.substr(at_, end - at_).find('[') != std::string_view::npos) {
    end = angle_.find(text_, subset_end_.find(text_, at_));
  }
  return std::min(end + 1, text_.size());
}

std::size_t MarkupReader::end_of_comment() {
  for (std::string_view empty : {"<!-->", "<!--->"}) {
    if (text_.substr(at_).starts_with(empty)) return at_ + empty.size();
  }
  const std::size_t end = comment_end_.find(text_, at_ + 4);
  const std::size_t odd = odd_comment_end_.find(text_, at_ + 4);
  return std::min(std::min(end + 3, odd + 4), text_.size());
}

MarkupReader::Kind MarkupReader::tag(bool ends) {
  name_.clear();
  std::size_t i = at_ + (ends ? 2 : 1);
  for (; i < text_.size() && !ends_name(text_[i]); ++i) name_ += lower(text_[i]);
  at_ = end_of_tag(i);
  return ends ? Kind::end : Kind::begin;
}

std::size_t MarkupReader::end_of_tag(std::size_t at) {
  closes_itself_ = false;
  bool equals = false, value = false;  // behind '='; in a value without quotes
  for (std::size_t i = at; i < text_.size(); ++i) {
    const char c = text_[i];
    if (c == '>') {
      part_ = text_.substr(at, i - at);
      return i + 1;
    }
    closes_itself_ = c == '/' && !value;
    if (is_blank(c)) {
      value = false;
    } else if (equals && (c == '"' || c == '\'')) {
      const std::size_t close = (c == '"' ? double_quote_ : single_quote_).find(text_, i + 1);
      if (close == text_.size()) {  // a quote without an end is none
        const std::size_t end = angle_.find(text_, i);
        part_ = text_.substr(at, end - at);
        return std::min(end + 1, text_.size());
      }
      i = close;
      equals = false;
    } else if (c == '=' && !value) {
      equals = true;
    } else {
      value = value || equals;
      equals = false;
    }
  }
  part_ = text_.substr(at);
  return text_.size();
}

std::string MarkupReader::attribute(std::string_view name) const {
  const std::string_view all = part_;
  const auto skip = [&](std::size_t i, bool (*what)(char)) {
    while (i < all.size() && what(all[i])) ++i;
    return i;
  };
  for (std::size_t i = 0; i < all.size();) {
    i = skip(i, [](char c) { return is_blank(c) || c == '/'; });
    const std::size_t begin = i;
    i = skip(i, [](char c) { return !is_blank(c) && c != '/' && c != '='; });
    std::string_view given = all.substr(begin, i - begin);
    i = skip(i, is_blank);
    std::string_view value;
    if (i < all.size() && all[i] == '=') {
      i = skip(i + 1, is_blank);
      const char quote = i < all.size() ? all[i] : ' ';
      std::size_t end = 0;
      if (quote == '"' || quote == '\'') {
        end = std::min(all.find(quote, ++i), all.size());
      } else {
        end = skip(i, [](char c) { return !is_blank(c); });
      }
      value = all.substr(i, end - i);
      i = end + 1;
    }
    if (xml_) given.remove_prefix(std::min(given.find(':') + 1, given.size()));
    const bool same = std::ranges::equal(given, name, [](char a, char b) { return lower(a) == b; });
    if (same) return with_characters(value);
  }
  return "";
}

std::string MarkupReader::characters() const {
  return literal_ ? std::string(part_) : with_characters(part_);
}

std::size_t MarkupReader::find_end(std::string_view name, std::size_t from) const {
  while ((from = text_.find("</", from)) != std::string_view::npos) {
    if (has_name(text_, from + 2, name)) return from;
    from += 2;
  }
  return text_.size();
}

std::size_t MarkupReader::find_end_of_script() const {
  // Between "<!--" and "-->" a script may write the tags of another one.
  bool hidden = false, inner = false;
  for (std::size_t i = at_; i < text_.size(); ++i) {
    if (hidden && text_[i] == '-' && text_.substr(i, 3) == "-->") {
      hidden = inner = false;
    } else if (text_[i] == '<') {
      if (text_.substr(i, 4) == "<!--") hidden = true;
      if (hidden && has_name(text_, i + 1, "script")) inner = true;
      if (i + 1 < text_.size() && text_[i + 1] == '/' && has_name(text_, i + 2, "script")) {
        if (!inner) return i;
        inner = false;
      }
    }
  }
  return text_.size();
}

bool MarkupReader::ends_before_next() const {
  for (std::size_t i = at_; (i = text_.find('<', i)) < text_.size(); ++i) {
    if (has_name(text_, i + 1, name_)) return false;
    if (text_.substr(i, 2) == "</" && has_name(text_, i + 2, name_)) return true;
  }
  return false;
}

std::optional<std::string_view> MarkupReader::raw_content() {
  if (endless_.contains(name_)) return std::nullopt;
  if (closes_itself_ && (xml_ || !ends_before_next())) return std::nullopt;
  std::size_t end = text_.size();
  if (name_ == "script" && !endless_.contains("<!--")) end = find_end_of_script();
  if (end == text_.size()) {
    if (name_ == "script") endless_.insert("<!--");  // one that never ends is none
    end = find_end(name_, at_);
  }
  if (end == text_.size()) {
    endless_.insert(name_);
    return std::nullopt;
  }
  const std::string_view content = text_.substr(at_, end - at_);
  at_ = end;
  return content;
}

}  // namespace ballast
