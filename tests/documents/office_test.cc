// Word and OpenDocument files.
#include "documents/office.h"

#include <gmock/gmock.h>
#include <zip.h>

#include <string>
#include <utility>
#include <vector>

#include "ballast/error.h"
#include "documents/document.h"
#include "formats/mutate.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using testing::HasSubstr;
using Files = std::vector<std::pair<std::string, std::string>>;

std::string zip(const Files& files) {
  const TempDir dir;
  const std::string path = (dir / "x.zip").string();
  int error = 0;
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE, &error);
  for (const auto& [name, text] : files) {
    zip_source_t* source = zip_source_buffer(archive, text.data(), text.size(), 0);
    zip_file_add(archive, name.c_str(), source, 0);
  }
  EXPECT_EQ(zip_close(archive), 0);
  return read_text(path);
}

std::string word(const std::string& body, const std::string& notes = "",
                 const std::string& name = "word/document.xml") {
  const std::string begin = "<?xml version=\"1.0\"?><w:document xmlns:w=\"w\"><w:body>";
  Files files = {{"[Content_Types].xml", "<Types/>"},
                 {name, begin + body + "</w:body></w:document>"}};
  if (!notes.empty())
    files.emplace_back("word/footnotes.xml", "<w:footnotes>" + notes + "</w:footnotes>");
  return zip(files);
}

std::string p(const std::string& text, const std::string& properties = "") {
  return "<w:p><w:pPr>" + properties + "</w:pPr><w:r><w:t xml:space=\"preserve\">" + text +
         "</w:t></w:r></w:p>";
}
std::string cell(const std::string& content, const std::string& properties = "") {
  return "<w:tc><w:tcPr>" + properties + "</w:tcPr>" + content + "</w:tc>";
}

std::string text_of(const std::string& bytes) { return office_text(bytes, "x.docx"); }

void expect_refused(const std::string& bytes, const std::string& why) {
  try {
    read_document(bytes, "x", "x");
    ADD_FAILURE() << "was to be refused: " << why;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("x: " + why));
  }
}

TEST(Office, AWordFileIsItsParagraphs) {
  EXPECT_EQ(
      text_of(word(p("Lease") + p("Ann &amp; Bob.") +
                   "<w:p><w:r><w:t>Split </w:t></w:r><w:del><w:r><w:delText>gone</w:delText></w:r>"
                   "</w:del><w:ins><w:r><w:t>word</w:t><w:br/><w:t>next</w:t></w:r></w:ins>"
                   "<w:moveFrom><w:r><w:t>moved</w:t></w:r></w:moveFrom></w:p><w:p/>")),
      "Lease\n\nAnn & Bob.\n\nSplit word\nnext\n");
  EXPECT_EQ(text_of(word(p("x"), "", "word/document2.xml")), "x\n");
  EXPECT_EQ(joined_text(read_document(word(p("x")), "a", "a"), false), "x\n");
}

TEST(Office, ItsXmlMayHaveOtherEncodings) {
  const std::string body =
      "<w:document xmlns:w=\"w\"><w:body>" + p("M\u00fchle") + "</w:body></w:document>";
  const std::string said = "<?xml version=\"1.0\" encoding=\"UTF-16\"?>";
  for (const char* mark : {"\xFF\xFE", ""}) {
    std::string wide = mark;
    for (char c :
         said + "<w:document xmlns:w=\"w\"><w:body>" + p("Lease") + "</w:body></w:document>") {
      wide += c;
      wide += '\0';
    }
    EXPECT_EQ(text_of(zip({{"word/document.xml", wide}})), "Lease\n");
  }
  std::string latin = "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>" + body;
  latin.replace(latin.find("\u00fc"), 2, "\xfc");
  EXPECT_EQ(text_of(zip({{"word/document.xml", latin}})), "Mühle\n");
  std::string damaged = body;
  damaged.replace(damaged.find("<w:body>"), 8, "<w:body>" + p("Größe, Höhe, Länge \xff"));
  std::string note;
  EXPECT_THAT(office_text(zip({{"word/document.xml", damaged}}), "x.docx", &note),
              testing::StartsWith("Größe, Höhe, Länge \uFFFD"));
  EXPECT_THAT(note, testing::StartsWith("x.docx: word/document.xml: bytes that are not UTF-8"));
}

TEST(Office, ListsTablesAndRaisedLettersOfWord) {
  const std::string item = "<w:numPr><w:ilvl w:val=\"0\"/><w:numId w:val=\"2\"/></w:numPr>";
  EXPECT_EQ(text_of(word(p("a") + p("one", item) + p("two", item) + p("b"))),
            "a\n\n- one\n- two\n\nb\n");
  EXPECT_EQ(
      text_of(word("<w:tbl><w:tr>" + cell(p("Item")) + cell(p("Pays")) + cell(p("Note")) +
                   "</w:tr><w:tr>" + cell(p("Internet"), "<w:vMerge w:val=\"restart\"/>") +
                   cell(p("landlord") + p("always")) + cell("<w:p/>") + "</w:tr><w:tr>" +
                   cell("<w:p/>", "<w:vMerge/>") + cell("<w:p/>") + cell(p("x")) + "</w:tr><w:tr>" +
                   cell(p("All"), "<w:gridSpan w:val=\"2\"/>") + cell(p("5")) + "</w:tr></w:tbl>")),
      "Item | Pays | Note\nInternet | landlord always |\nInternet | | x\nAll | | 5\n");
  const auto run = [](const std::string& text, const std::string& place) {
    return "<w:r><w:rPr><w:vertAlign w:val=\"" + place + "\"/></w:rPr><w:t>" + text +
           "</w:t></w:r>";
  };
  EXPECT_EQ(text_of(word("<w:p><w:r><w:t>10</w:t></w:r>" + run("6", "superscript") +
                         "<w:r><w:t> l of H</w:t></w:r>" + run("2", "subscript") +
                         run("O", "baseline") + "</w:p>")),
            "10^6 l of H2O\n");
}

TEST(Office, NotesStandAtTheEnd) {
  EXPECT_EQ(text_of(word(
                "<w:p><w:r><w:t>Word</w:t></w:r><w:r><w:footnoteReference w:id=\"1\"/></w:r></w:p>",
                "<w:footnote w:type=\"separator\" w:id=\"-1\">" + p("no") +
                    "</w:footnote><w:footnote w:id=\"1\">" + p(" See 4.") + "</w:footnote>")),
            "Word^1\n\n1. See 4.\n");
}

TEST(Office, AnOpenDocumentFileIsReadToo) {
  EXPECT_EQ(
      text_of(zip(
          {{"mimetype", "application/vnd.oasis.opendocument.text"},
           {"content.xml",
            "<o><style:style style:name=\"T1\"><style:text-properties "
            "style:text-position=\"super 58%\"/></style:style><text:tracked-changes><text:p>"
            "old</text:p></text:tracked-changes><text:h>Title</text:h><text:p>10<text:span "
            "text:style-name=\"T1\">6</text:span> l<text:note><text:note-citation>1"
            "</text:note-citation><text:note-body><text:p>A note.</text:p></text:note-body>"
            "</text:note>.</text:p><text:list><text:list-item><text:p>one</text:p>"
            "</text:list-item><text:list-item><text:p>two</text:p></text:list-item></text:list>"
            "<table:table><table:table-row><table:table-cell><text:p>a</text:p><text:p>b"
            "</text:p></table:table-cell><table:table-cell/><table:table-cell><text:p>c</text:p>"
            "</table:table-cell></table:table-row><table:table-row><table:table-cell/>"
            "<table:table-cell><text:p>d</text:p></table:table-cell></table:table-row>"
            "</table:table></o>"}})),
      "Title\n\n10^6 l (A note.).\n- one\n- two\n\na b | | c\n| d\n");
}

TEST(Office, OtherFilesNameTheRemedy) {
  expect_refused(zip({{"xl/workbook.xml", "x"}}), "an Excel file; save it as CSV or PDF");
  expect_refused(zip({{"ppt/presentation.xml", "x"}}), "a PowerPoint file; save it as PDF");
  expect_refused(zip({{"a.txt", "x"}}), "a ZIP archive; unpack it");
  expect_refused("{\\rtf1 hello}", "a file in the Rich Text Format; save it as .docx or PDF");
  expect_refused("\xD0\xCF\x11\xE0 and more",
                 "an Office file of the old kind, or one with a password");
  expect_refused(zip({{"word/document.xml", std::string((32 << 20) + 1, 'a')}}),
                 "word/document.xml in it has over 33554432 bytes");
  const std::string whole = word(p("x"));
  expect_refused(whole.substr(0, whole.size() / 2), "a damaged ZIP archive");
}

TEST(Office, DamagedFilesAreATextOrAnError) {
  const std::string whole =
      word("<w:tbl><w:tr>" + cell(p("a")) + "</w:tr></w:tbl>" + p("b"), p("c"));
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    try {
      text_of(mutate(whole, seed));
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace ballast
