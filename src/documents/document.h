// The texts in the files that people hand in: plain text, web pages, PDF, office files.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

/// A text, or a page of one.
struct DocumentPart {
  std::string name;  ///< of the file, for people
  std::string text;
  std::size_t page = 0;   ///< from 1; 0: the file has none
  std::string note = {};  ///< what people should know of its encoding: see as_utf8()
};

/// Whether it is nothing but blanks.
bool is_blank(std::string_view text);

/// The text of a file, or those pages of a PDF that have one; a web page's is what a reader sees,
/// and so is that of a .docx or OpenDocument file; an e-mail (.eml) and its attachments are parts.
/// Other files of office programs and books: see can_convert(). `name`: of the file, for people;
/// its ending tells web pages that do not begin as such, as does `media_type`: "text/html;
/// charset=iso-8859-1". `path`: what errors begin with. Throws Error (unsupported) for what is no
/// text, for what is no PDF though its name or media type says so, and for a PDF where there is no
/// program that reads it; bad_file for a PDF that is damaged.
std::vector<DocumentPart> read_document(std::string bytes, const std::string& name,
                                        const std::string& path, std::string_view media_type = {});

/// The bytes from "%PDF-" on; empty if there are none. In a file with the name or media type of a
/// PDF the mark may be anywhere, in others within the first MiB, behind text such as a message's
/// head.
std::string_view pdf_in(std::string_view bytes, const std::string& name = "",
                        std::string_view media_type = {});

/// A page of a PDF as a picture, in the format PPM or PNG, with a long side of 1,792 pixels; `page`
/// counts from 1. Empty if there is no such page. Throws Error as read_document() does.
std::string picture_of_page(std::string_view pdf, std::size_t page, const std::string& path,
                            bool png = false);

/// Whether a file of this name is one of an office program that is read: .docx, .odt.
bool is_office_name(const std::string& name);

/// Whether the lines of a document's text are those of the document, which its name says: those of
/// a web page and of an office file are not.
bool keeps_lines(const std::string& name);

/// One text of all parts: the only part of a file as it is; several with a line of its name before
/// each, "=== a.pdf, page 3 ===", and an empty line. Lines of a text that look like one get a space
/// before them.
std::string joined_text(const std::vector<DocumentPart>& parts, bool with_names);

/// What joined_text() makes of the only part of a file.
std::string whole_text(std::string text);

/// The part whose name joined_text() has written into the line that begins at `line_begin`; nothing
/// where that is no such line. The part's text is empty.
std::optional<DocumentPart> part_named(std::string_view text, std::size_t line_begin);

}  // namespace ballast
