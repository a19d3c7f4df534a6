// The text of a web page.
#pragma once

#include <string>
#include <string_view>

namespace ballast {

/// Whether the text begins as a whole web page does: with its document type or its first element,
/// behind an XML declaration and comments.
bool is_html(std::string_view text);

/// Whether it begins as web pages and parts of them do, which a text in Markdown may, too.
bool may_be_html(std::string_view text);

/// The encoding that a page names in its first 4,096 bytes; "" if it names none.
std::string declared_encoding(std::string_view html);

/// What a reader sees: no tags, scripts, styles and comments; a line for each block, a blank line
/// around paragraphs, headings and lists; rows of a table as PageWriter writes them; characters in
/// place of their names. Takes any text: what is no tag stays.
std::string html_to_text(std::string_view html);

}  // namespace ballast
