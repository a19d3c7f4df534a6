// Characters that HTML and XML write as references: "&uuml;", "&#8364;".
#pragma once

#include <string>
#include <string_view>

namespace ballast {

/// The text with each reference replaced by its characters, as the HTML standard says: its 2,231
/// names (some end without ';'), numbers by its table. What is no reference stays.
std::string with_characters(std::string_view text);

/// data/html-characters.txt: a line for each name, in order, "uuml; FC".
std::string_view html_characters();

}  // namespace ballast
