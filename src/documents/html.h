// The text of a web page.
#pragma once

#include <string>
#include <string_view>

namespace ballast {

/// Whether the text begins as a web page does.
bool is_html(std::string_view text);

/// What a reader sees: no tags, scripts, styles and comments; a line for each block, a blank line
/// around paragraphs, headings and lists, " | " between cells; characters in place of their names.
/// Takes any text: what is no tag stays.
std::string html_to_text(std::string_view html);

}  // namespace ballast
