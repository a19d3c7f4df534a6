// The texts in the files that people hand in: plain text, web pages, PDF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

/// A text, or a page of one.
struct DocumentPart {
  std::string name;  ///< for people: "a.txt", "a.pdf, page 3"
  std::string text;
};

/// Whether it is nothing but blanks.
bool is_blank(std::string_view text);

/// The text of a file, or those pages of a PDF that have one; a web page's is what a reader sees.
/// `name`: of the file, for people; its ending tells web pages that do not begin as such, as does
/// `media_type`: "text/html; charset=iso-8859-1". `path`: what errors begin with. Throws Error
/// (unsupported) for what is no text, and for a PDF where there is no program that reads it;
/// bad_file for a PDF that is damaged.
std::vector<DocumentPart> read_document(std::string bytes, const std::string& name,
                                        const std::string& path, std::string_view media_type = {});

/// Whether the bytes are of a PDF: other bytes, such as the head of a message, may stand before it.
bool is_pdf(std::string_view bytes);

/// A page of a PDF as a picture, in the format PPM, with a long side of 1,792 pixels; `page` counts
/// from 1. Empty if there is no such page. Throws Error as read_document() does.
std::string picture_of_page(std::string_view pdf, std::size_t page, const std::string& path);

/// One text of all parts: the only part of a file as it is; several with a line of its name before
/// each, "=== a.pdf, page 3 ===", and an empty line.
std::string joined_text(const std::vector<DocumentPart>& parts, bool with_names);

}  // namespace ballast
