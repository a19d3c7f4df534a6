#pragma once
#include <string>
#include <string_view>

#include "report/json.h"

namespace ballast {

/// A strip a method, of two that differ what each kept of the answer's place, and the text in
/// colours by method and head. `kept`: as Result::kept; its text may have "pictures", as to_json()
/// of PlacedPicture has them, each with "data", a data URL or "". Empty for a text of no pieces or
/// no method; a sentence where `kept` is something else.
std::string kept_html(const Json& kept);

/// What colours the texts of a page; to stand once, after all of them.
std::string_view kept_script();

}  // namespace ballast
