#include "documents/html.h"

#include <gtest/gtest.h>

#include <string>

#include "base/stopwatch.h"
#include "formats/mutate.h"
#include "sanitized.h"

namespace ballast {
namespace {

TEST(Html, ShowsWhatAReaderSees) {
  EXPECT_EQ(html_to_text("<!DOCTYPE html><html><head><title>Order &amp; bill</title>"
                         "<style>p > b {}</style><script>if (a<b) x('</p>');</script></head>\n"
                         "<body><h1>Bill</h1>\n<p>Price:\n  5&nbsp;&euro;<br/>paid <b>cash</b>.</p>"
                         "<!-- <p>hidden</p> --><ul><li>one<li>two</ul></body></html>"),
            "Order & bill\n\nBill\n\nPrice: 5 €\npaid cash.\n\n- one\n- two\n");
}

TEST(Html, KeepsTheCellsOfARowApart) {
  EXPECT_EQ(html_to_text("<table><tr><th>who</th><th>when</th></tr>"
                         "<tr><td>Ann<td>May 3</table>"),
            "who | when\nAnn | May 3\n");
}

TEST(Html, KeepsThePlacesOfPreformattedText) {
  EXPECT_EQ(html_to_text("<p>a  b</p><pre>x = 1\n  y</pre><p>c"), "a b\n\nx = 1\n  y\n\nc\n");
}

TEST(Html, TakesCharactersByNameAndNumber) {
  EXPECT_EQ(html_to_text("&lt;p&gt; &#65;&#x42; &#xe9; &#128512; &nosuch; &#0; &#xd800; AT&T &"),
            "<p> AB é 😀 &nosuch; &#0; &#xd800; AT&T &\n");
}

TEST(Html, TakesAnyText) {
  EXPECT_EQ(html_to_text(""), "");
  EXPECT_EQ(html_to_text("1 < 2 and <3"), "1 < 2 and <3\n");
  EXPECT_EQ(html_to_text("a<b title='x>y'>c</b>d<"), "acd<\n");
  EXPECT_EQ(html_to_text("a<b title=\"x>b</b> c"), "ab c\n");  // a quote without an end
  for (const char* cut :
       {"<script>never ends", "<!-- never ends", "<p", "<p title='", "</", "<!"}) {
    EXPECT_LE(html_to_text(cut).size(), 3u) << cut;
  }
}

TEST(Html, AnyBytesGiveAText) {
  const std::string page =
      "<!DOCTYPE html><title>A &amp; b</title><p class=\"x>y\">One<br/><pre> a\n</pre>"
      "<!-- c --><script>d</script><ul><li>e</ul><table><tr><td>f<td>&#233;</table>";
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    const std::string bytes = mutate(page, seed);
    EXPECT_LE(html_to_text(bytes).size(), 4 * bytes.size() + 1) << seed;
  }
}

TEST(Html, TakesTimeInProportionToTheText) {
  for (const char* part : {"<b=\"", "<b='x'>", "<", "&", "<!--x-->", "<script>", "<li>", "<pre>"}) {
    std::string text;
    while (text.size() < 4000000) text += part;
    const Stopwatch watch;
    html_to_text(text);
    EXPECT_LT(watch.seconds(), test::kSanitized ? 60 : 6) << part;
  }
}

TEST(Html, IsKnownByItsBeginning) {
  EXPECT_TRUE(is_html("\n <!DOCTYPE HTML>"));
  EXPECT_TRUE(is_html("<html lang=en>"));
  EXPECT_FALSE(is_html("A text on <html>"));
  EXPECT_FALSE(is_html(""));
}

}  // namespace
}  // namespace ballast
