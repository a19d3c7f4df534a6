#include "documents/office.h"

#include <zip.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "documents/html.h"
#include "documents/markup.h"
#include "documents/page_writer.h"
#include "formats/utf8_text.h"

namespace ballast {
namespace {

using Kind = MarkupReader::Kind;

/// The files in an archive.
class Archive {
 public:
  Archive(std::string_view bytes, const std::string& path)
      : path_(path), most_(std::clamp(kRatio * bytes.size(), kFew, kMost)) {
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
    if (source != nullptr) zip_.reset(zip_open_from_source(source, ZIP_RDONLY, &error));
    if (source != nullptr && zip_ == nullptr) zip_source_free(source);
    zip_error_fini(&error);
    require(zip_ != nullptr, ErrorCode::bad_file, "{}: a damaged ZIP archive", path);
  }

  /// The name of the first file that begins and ends so; "" if there is none.
  std::string find(std::string_view begin, std::string_view end) const {
    const zip_int64_t count = zip_get_num_entries(zip_.get(), 0);
    for (zip_int64_t i = 0; i < count; ++i) {
      const char* name = zip_get_name(zip_.get(), static_cast<zip_uint64_t>(i), 0);
      const std::string_view text = name == nullptr ? "" : name;
      if (text.starts_with(begin) && text.ends_with(end)) return std::string(text);
    }
    return "";
  }

  /// The bytes of a file; "" if there is none.
  std::string read(const std::string& name) const {
    if (name.empty() || zip_name_locate(zip_.get(), name.c_str(), 0) < 0) return "";
    const std::unique_ptr<zip_file_t, decltype(&zip_fclose)> file(
        zip_fopen(zip_.get(), name.c_str(), 0), &zip_fclose);
    std::string out;
    char buffer[1 << 14];
    zip_int64_t n = -1;
    while (file != nullptr && (n = zip_fread(file.get(), buffer, sizeof buffer)) > 0) {
      out.append(buffer, static_cast<std::size_t>(n));
      require(out.size() <= most_, ErrorCode::over_limit,
              "{}: {} in it has over {} bytes, more than are read of so small an archive", path_,
              name, most_);
    }
    require(n == 0, ErrorCode::bad_file, "{}: {} in it is damaged, or wants a password", path_,
            name);
    return out;
  }

  /// A file of XML, in UTF-8. `note`: see as_utf8().
  std::string read_xml(const std::string& name, std::string* note) const {
    std::string bytes = read(name);
    const std::string encoding = declared_encoding(bytes);
    return as_utf8(std::move(bytes), path_ + ": " + name, encoding, note);
  }

 private:
  // A small archive may hold much. XML takes a tenth of its bytes there.
  static constexpr std::size_t kRatio = 100, kFew = std::size_t{32} << 20, kMost = 8 * kFew;

  const std::string& path_;
  std::size_t most_;  ///< bytes of a file
  std::unique_ptr<zip_t, decltype(&zip_discard)> zip_{nullptr, &zip_discard};
};

std::size_t number_of(const std::string& text, std::size_t other) {
  std::size_t value = other;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// Reads elements by their names without prefix, in lower case.
class XmlReader {
 public:
  explicit XmlReader(std::string_view xml) : in_(xml, true) {}

  Kind next() {
    const Kind kind = in_.next();
    if (kind == Kind::begin || kind == Kind::end) {
      name_ = in_.name().substr(in_.name().find(':') + 1);
    }
    return kind;
  }
  const std::string& name() const { return name_; }
  const MarkupReader& tag() const { return in_; }

  /// After the tag that begins an element: leaves it out.
  void skip() {
    if (in_.closes_itself()) return;
    const std::string name = name_;
    std::size_t open = 1;
    for (Kind kind; open > 0 && (kind = next()) != Kind::none;) {
      if (kind == Kind::text || name_ != name || in_.closes_itself()) continue;
      open += kind == Kind::begin ? 1 : static_cast<std::size_t>(-1);
    }
  }

 private:
  MarkupReader in_;
  std::string name_;
};

/// Word's document and its notes.
class WordReader {
 public:
  explicit WordReader(std::size_t size) : out_(size) {}

  void read(std::string_view xml) {
    XmlReader in(xml);
    for (Kind kind; (kind = in.next()) != Kind::none;) {
      if (kind == Kind::text) {
        if (in_text_) put(in.tag().characters());
        continue;
      }
      if (kind == Kind::begin) begin(in);
      if (kind == Kind::end || in.tag().closes_itself()) end(in.name());
    }
    in_text_ = false;
  }
  std::string take() { return out_.take(); }

 private:
  void begin(XmlReader& in) {
    const std::string name = in.name();
    const MarkupReader& tag = in.tag();
    // What was moved away, and the same again for old programs.
    if (name == "movefrom" || name == "fallback") return in.skip();
    if (name == "p") {
      out_.line();
      begins_ = true;
    } else if (name == "numid") {
      item_ = tag.attribute("val") != "0";
    } else if (name == "t") {
      in_text_ = true;
    } else if (name == "tab") {
      if (!in_properties_) put(" ");  // else where tabs lead
    } else if (name == "ppr") {
      in_properties_ = true;
    } else if (name == "br" || name == "cr") {
      out_.line_break();
    } else if (name == "nobreakhyphen") {
      put("-");
    } else if (name == "tbl") {
      out_.begin_table();
    } else if (name == "tr") {
      out_.row();
    } else if (name == "tc") {
      out_.cell(1, 1);
    } else if (name == "gridspan") {
      out_.span(number_of(tag.attribute("val"), 1));
    } else if (name == "vmerge") {
      const std::string what = tag.attribute("val");
      if (what.empty() || what == "continue") out_.from_above();
    } else if (name == "vertalign") {
      const std::string what = tag.attribute("val");
      if (!in_properties_ && what.ends_with("script")) raise(what == "superscript");
    } else if ((name == "sup" || name == "sub") && !tag.closes_itself()) {  // of a formula
      raise(name == "sup");
    } else if (name == "den") {
      put("/");
    } else if (name == "footnotereference" || name == "endnotereference") {
      out_.begin_raised(true);
      put(tag.attribute("id"));
      out_.end_raised();
    } else if (name == "footnote" || name == "endnote") {
      if (!tag.attribute("type").empty()) return in.skip();  // a line above the notes
      out_.paragraph();
      out_.mark(tag.attribute("id") + ". ");
      note_ = true;
    }
  }

  void end(const std::string& name) {
    if (name == "p") {
      if (begins_) paragraph();
      out_.line();
    } else if (name == "ppr") {
      in_properties_ = false;
    } else if (name == "t") {
      in_text_ = false;
    } else if (name == "tbl") {
      out_.end_table();
    } else if (name == "tr") {
      out_.row();
    } else if (name == "tc") {
      out_.end_cell();
      listed_ = false;
    } else if (raised_ && (name == "r" || name == "sup" || name == "sub")) {
      out_.end_raised();
      raised_ = false;
    }
  }

  void raise(bool above) {
    paragraph();
    if (!raised_) out_.begin_raised(above);
    raised_ = true;
  }

  /// Before the first text of a paragraph: items of a list follow one another.
  void paragraph() {
    if (!begins_) return;
    begins_ = false;
    if ((!item_ || !listed_) && !note_) out_.paragraph();
    if (item_) out_.mark("- ");
    listed_ = std::exchange(item_, false);
    note_ = false;
  }

  void put(std::string_view text) {
    paragraph();
    out_.text(text);
  }

  PageWriter out_;
  bool in_text_ = false, in_properties_ = false, raised_ = false;  // of a paragraph
  bool begins_ = false;  ///< a paragraph, without a text yet
  bool item_ = false;    ///< it is one of a list
  bool listed_ = false;  ///< so was the one before
  bool note_ = false;    ///< a note begins
};

/// The content of an OpenDocument file.
class OpenDocumentReader {
 public:
  OpenDocumentReader(std::string_view xml, std::size_t size) : in_(xml), out_(size) {}

  std::string read() {
    for (Kind kind; (kind = in_.next()) != Kind::none;) {
      if (kind == Kind::text) {
        if (paragraphs_ > 0) out_.text(in_.tag().characters());
        continue;
      }
      if (kind == Kind::begin && !begin()) continue;
      if (kind == Kind::end || in_.tag().closes_itself()) end();
    }
    return out_.take();
  }

 private:
  /// Whether the element is one that is read.
  bool begin() {
    const std::string& name = in_.name();
    const MarkupReader& tag = in_.tag();
    if (name == "tracked-changes" || name == "annotation") {
      in_.skip();
      return false;
    }
    if (name == "p" || name == "h") {
      // In a list an item is a line; a note stands in its place.
      if (notes_ > 0) {
        if (!std::exchange(note_begins_, false)) out_.text(" ");
      } else if (items_ > 0) {
        out_.line();
      } else {
        out_.paragraph();
      }
      ++paragraphs_;
    } else if (name == "list-item") {
      ++items_;
      out_.line();
      out_.mark("- ");
    } else if (name == "s" || name == "tab") {
      out_.text(" ");
    } else if (name == "line-break") {
      out_.line_break();
    } else if (name == "table") {
      out_.begin_table();
    } else if (name == "table-row") {
      out_.row();
    } else if (name == "table-cell") {
      const std::size_t repeated = number_of(tag.attribute("number-columns-repeated"), 1);
      out_.cell(std::max(repeated, number_of(tag.attribute("number-columns-spanned"), 1)),
                number_of(tag.attribute("number-rows-spanned"), 1));
    } else if (name == "style") {
      style_ = tag.attribute("name");
    } else if (name == "text-properties") {
      const std::string place = tag.attribute("text-position");
      if (place.starts_with("super")) above_.insert(style_);
      if (place.starts_with("sub")) below_.insert(style_);
    } else if (name == "span") {
      const std::string style = tag.attribute("style-name");
      const bool above = above_.contains(style);
      spans_.push_back(above || below_.contains(style));
      if (spans_.back()) out_.begin_raised(above);
    } else if (name == "note-citation") {
      in_.skip();
    } else if (name == "note-body") {
      ++notes_;
      out_.text(" (");
      note_begins_ = true;
    }
    return true;
  }

  void end() {
    const std::string& name = in_.name();
    if (name == "p" || name == "h") {
      if (paragraphs_ > 0) --paragraphs_;
      if (notes_ == 0) out_.line();
    } else if (name == "list-item") {
      if (items_ > 0) --items_;
    } else if (name == "table") {
      out_.end_table();
    } else if (name == "table-row") {
      out_.row();
    } else if (name == "table-cell") {
      out_.end_cell();
    } else if (name == "span" && !spans_.empty()) {
      if (spans_.back()) out_.end_raised();
      spans_.pop_back();
    } else if (name == "note-body" && notes_ > 0) {
      --notes_;
      out_.text(")");
    }
  }

  XmlReader in_;
  PageWriter out_;
  std::size_t paragraphs_ = 0, items_ = 0, notes_ = 0;  // that are open
  bool note_begins_ = false;
  std::string style_;
  std::set<std::string> above_, below_;  ///< styles
  std::vector<bool> spans_;              ///< that are open: whether each is raised
};

}  // namespace

bool is_zip(std::string_view bytes) { return bytes.starts_with("PK\x03\x04"); }

std::string office_text(std::string_view bytes, const std::string& path, std::string* note) {
  const Archive archive(bytes, path);
  const std::string document = archive.find("word/document", ".xml");
  if (!document.empty()) {
    const std::string text = archive.read_xml(document, note);
    const std::string notes[] = {archive.read_xml("word/footnotes.xml", nullptr),
                                 archive.read_xml("word/endnotes.xml", nullptr)};
    WordReader reader(text.size());
    reader.read(text);
    for (const std::string& xml : notes) reader.read(xml);
    return reader.take();
  }
  const std::string type = archive.read("mimetype");
  if (type.starts_with("application/vnd.oasis.opendocument.")) {
    const std::string text = archive.read_xml("content.xml", note);
    return OpenDocumentReader(text, text.size()).read();
  }
  std::string what = "a ZIP archive; unpack it, and name its files";
  if (!archive.find("xl/", "").empty()) what = "an Excel file; save it as CSV or PDF";
  if (!archive.find("ppt/", "").empty()) what = "a PowerPoint file; save it as PDF";
  if (type.starts_with("application/epub")) what = "an EPUB book; unpack it, and name its folder";
  if (!archive.find("", "data.pkl").empty()) what = "a ZIP archive of PyTorch, and no text";
  fail(ErrorCode::unsupported, "{}: {}", path, what);
}

}  // namespace ballast
