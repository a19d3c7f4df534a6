// The texts of files by their kinds.
#include "documents/document.h"

#include <gmock/gmock.h>

#include <string>

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
  EXPECT_TRUE(is_pdf(pdf));
  EXPECT_TRUE(is_pdf("\n" + pdf));
  EXPECT_TRUE(is_pdf("--70bd\r\nContent-Type: application/pdf\r\n\r\n" + pdf + "\r\n--70bd--\r\n"));
  EXPECT_TRUE(is_pdf(std::string(1000, ' ') + pdf));
  EXPECT_FALSE(is_pdf("A PDF begins with %PDF-1.4 and ends with a mark."));
  EXPECT_FALSE(is_pdf("So:\n" + pdf + std::string(5000, 'x')));
  EXPECT_FALSE(is_pdf(std::string(1100, ' ') + pdf));
  EXPECT_FALSE(is_pdf("%PDF"));
}

}  // namespace
}  // namespace ballast
