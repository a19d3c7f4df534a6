#include "documents/mail.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast::test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<DocumentPart> parts_of(const std::string& message) {
  return read_document(message, "a.eml", "a.eml");
}

TEST(Mail, SaysWhoWroteWhat) {
  const auto parts = parts_of(
      "From: =?utf-8?q?J=C3=BCrgen_M?= =?utf-8?b?w7xsbGVy?= <j@example.org>\r\nTo: "
      "b@example.org,\r\n"
      " c@example.org\r\nSubject: =?iso-8859-1?Q?Gr=FC=DFe?=\r\nDate: Mon, 1 Jan 2024 10:00:00 "
      "+0100\r\n"
      "Received: from x\r\nContent-Type: text/plain; charset=\"iso-8859-1\"\r\n"
      "Content-Transfer-Encoding: quoted-printable\r\n\r\nDie F=E4hre geht um=\r\n sieben.\r\n");
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].text,
            "Subject: Grüße\nFrom: Jürgen Müller <j@example.org>\nTo: b@example.org, "
            "c@example.org\nDate: Mon, 1 Jan 2024 10:00:00 +0100\n\nDie Fähre geht um sieben.\n");
}

TEST(Mail, HasOneOfSeveralFormsAndItsAttachments) {
  const auto parts = parts_of(
      "Subject: Lease\nContent-Type: multipart/mixed; boundary=out\n\npreamble\n--out\n"
      "Content-Type: multipart/alternative; boundary=\"in\"\n\n--in\nContent-Type: text/plain\n\n"
      "See below.\n--in\nContent-Type: text/html\n\n<p>See <b>below</b>.</p>\n--in--\n--out\n"
      "Content-Type: text/plain; name=lease.txt\nContent-Disposition: attachment; "
      "filename=lease.txt\n"
      "Content-Transfer-Encoding: base64\n\nVGhlIHRlbmFudCBn\naXZlcyBub3RpY2Uu\n--out\n"
      "Content-Type: image/png\nContent-Disposition: attachment; filename=\"cat.png\"\n"
      "Content-Transfer-Encoding: base64\n\niVBORw0KGgoAAAAA\n--out--\nepilogue\n");
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_THAT(parts[0].text, HasSubstr("See below.\n"));
  EXPECT_THAT(parts[0].text, Not(HasSubstr("preamble")));
  EXPECT_THAT(parts[0].text, HasSubstr("Attachment: cat.png\n"));
  EXPECT_EQ(parts[1].name, "a.eml, lease.txt");
  EXPECT_EQ(parts[1].text, "The tenant gives notice.");
  EXPECT_THAT(parts_of("Content-Type: text/html\n\n<p>M&uuml;hle</p>")[0].text, HasSubstr("Mühle"));
}

// As a file, too, as most programs forward one.
TEST(Mail, AForwardedOneIsDecoded) {
  const auto parts = parts_of(
      "Content-Type: multipart/mixed; boundary=a\n\n--a\n\nSee below.\n--a\n"
      "Content-Type: message/rfc822\nContent-Disposition: attachment; filename=\"offer.eml\"\n\n"
      "Subject: Offer\nContent-Transfer-Encoding: base64\n\nVGhlIGNhcnQu\n--a--\n");
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_THAT(parts[0].text, HasSubstr("Forwarded: Offer"));
  EXPECT_THAT(parts[0].text, HasSubstr("The cart."));
}

TEST(Mail, AnyBytesAreOne) {
  for (const char* text : {"", "\n", ":", "no head at all", "Content-Type: multipart/mixed\n\nx",
                           "Content-Type: multipart/mixed; boundary=\n\n--\n--\n",
                           "Content-Type: multipart/mixed; boundary=a\n\n--a\n--a\n--a--",
                           "Subject: =?utf-8?q?", "Subject: =?x?q?=zz?=\n\n\xff\xfe"}) {
    EXPECT_FALSE(parts_of(text).empty()) << text;
  }
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "Content-Type: message/rfc822\n\n";
  EXPECT_EQ(parts_of(deep + "text").size(), 1u);
}

}  // namespace
}  // namespace ballast::test
