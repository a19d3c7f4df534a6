// The texts of files by their kinds.
#include "documents/document.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>

#include "ballast/error.h"

namespace ballast {
namespace {

std::string text_of(const std::string& bytes, const std::string& name = "",
                    const std::string& type = "") {
  return joined_text(read_document(bytes, name, "x", type), false);
}

TEST(Document, AWebPageIsKnownByNameTypeOrBeginning) {
  const std::string page = "<p>a &amp; b</p>";
  for (const char* name : {"a.html", "a.HTM", "a.xhtml"}) EXPECT_EQ(text_of(page, name), "a & b\n");
  EXPECT_EQ(text_of(page, "a.txt", "text/html; charset=utf-8"), "a & b\n");
  EXPECT_EQ(text_of(page), "a & b\n");
  EXPECT_EQ(text_of(page, "a.txt"), page);  // as a text in Markdown may begin
  EXPECT_EQ(text_of("<!-- note -->\n# Head", "README.md"), "<!-- note -->\n# Head");
  for (const char* before : {"<?xml version=\"1.0\"?>\n", "<!-- saved -->", "\xEF\xBB\xBF\n"}) {
    EXPECT_EQ(text_of(before + std::string("<!DOCTYPE html><html><p>a &amp; b"), "a.txt"),
              "a & b\n");
  }
}

TEST(Document, APageIsDecodedAsItSays) {
  const std::string body = "<p>Das Caf\xe9 schlie\xdft.";
  EXPECT_EQ(text_of("<!doctype html><meta charset=\"iso-8859-1\">" + body), "Das Café schließt.\n");
  EXPECT_EQ(text_of("<!doctype html>" + body), "Das Café schließt.\n");
  EXPECT_EQ(text_of("<p>\xcd\xc9\xd2", "", "text/html;charset=\"koi8-r\""), "мир\n");
  EXPECT_EQ(text_of("<p>\x8c\xae", "a.html", "text/html; charset=Shift_JIS"), "鍵\n");
  EXPECT_EQ(text_of("<?xml version='1.0' encoding='iso-8859-7'?><html><p>\xe1\xe2"), "αβ\n");
  std::string wide = "\xFF\xFE";
  for (char c : std::string("<html><p>a &amp; b")) wide += std::string{c, '\0'};
  EXPECT_EQ(text_of(wide), "a & b\n");
}

TEST(Document, LinesEndAlike) { EXPECT_EQ(text_of("a\r\nb\rc\n\rd"), "a\nb\nc\n\nd"); }

TEST(Document, OtherBytesMayStandBeforeAPdf) {
  const std::string pdf = "%PDF-1.4\n1 0 obj\n<<>>\nendobj\nstartxref\n9\n%%EOF\n";
  const std::string mail = "--70bd\r\nContent-Type: application/pdf\r\n\r\n";
  EXPECT_EQ(pdf_in(pdf), pdf);
  EXPECT_EQ(pdf_in(pdf, "a.txt"), pdf);
  EXPECT_EQ(pdf_in("\n" + pdf), pdf);
  EXPECT_EQ(pdf_in(mail + pdf + "\r\n--70bd--\r\n"), pdf + "\r\n--70bd--\r\n");
  EXPECT_EQ(pdf_in("A PDF begins with %PDF-1.4 and ends with a mark."), "");
  EXPECT_EQ(pdf_in("So:\n" + pdf + std::string(5000, 'x')), "");
  EXPECT_EQ(pdf_in("%PDF"), "");
  EXPECT_EQ(pdf_in(std::string("PK\x03\x04\0\0", 6) + pdf + '\0', "a.docx"), "");
  for (std::size_t before : {1000, 1025, 5000, 900000}) {
    const std::string head(before, '\n');
    EXPECT_EQ(pdf_in(head + pdf), pdf) << before;
    EXPECT_EQ(pdf_in(head + pdf, "a.bin"), pdf) << before;
    EXPECT_EQ(pdf_in(head + pdf + '\0', "a.txt"), pdf + '\0') << before;
  }
  const std::string far(std::size_t{2} << 20, ' ');
  EXPECT_EQ(pdf_in(far + pdf), "");
  EXPECT_EQ(pdf_in(far + pdf, "a.PDF"), pdf);
  EXPECT_EQ(pdf_in(far + pdf, "", "application/pdf"), pdf);
  const std::string prose(2000, 'x');
  EXPECT_EQ(pdf_in(fmt::format("{}\n{}", prose, pdf), "about-pdf.md"), "");
}

TEST(Document, WhatIsNoPdfThoughNamedSoIsRefused) {
  const auto refused = [](const std::string& bytes, const std::string& name,
                          const std::string& type) {
    try {
      return text_of(bytes, name, type);
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  const std::string why = "x: no PDF, though it is named as one: there is no %PDF- in it";
  EXPECT_EQ(refused("The lease ends in March.", "a.pdf", ""), why);
  EXPECT_EQ(refused("The lease ends in March.", "", "application/pdf; q=1"), why);
  EXPECT_EQ(refused("<!doctype html><p>Log in", "a.pdf", ""),
            why + "; it is a web page, perhaps one that asks to log in");
}

TEST(Document, ANoteSaysWhichEncodingWasGuessed) {
  const auto note = [](const std::string& bytes, const std::string& name) {
    return read_document(bytes, name, "x").front().note;
  };
  EXPECT_EQ(note("The na\xefve plan", "a.txt"),
            "x: not UTF-8; read as windows-1252, which its bytes look like");
  EXPECT_EQ(note("<p>The na\xefve plan", "a.html"),
            "x: not UTF-8; read as windows-1252, which its bytes look like");
  EXPECT_EQ(note("<meta charset=latin1><p>The na\xefve plan", "a.html"), "");
  EXPECT_EQ(note("größer, höher \xff und schöner", "a.txt"),
            "x: bytes that are not UTF-8 became U+FFFD: 1, the first byte 17");
  EXPECT_EQ(note("größer", "a.txt"), "");
}

}  // namespace
}  // namespace ballast
