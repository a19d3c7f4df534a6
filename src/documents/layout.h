// Tables on a page whose text keeps its places.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ballast {

/// The text of a page that has tables, rows as PageWriter writes them; columns of prose one after
/// another. Nothing where no table is on the page. `page`: as `pdftotext -layout` writes it, each
/// letter at its place.
std::optional<std::string> text_with_tables(std::string_view page);

}  // namespace ballast
