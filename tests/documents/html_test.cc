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

TEST(Html, ACellIsOneLine) {
  // Word writes paragraphs into cells.
  EXPECT_EQ(html_to_text("<table><tr><td><p>a</p></td><td><p>b</p><p>c</p></td></tr>"
                         "<tr><td>1<br>2<td><ul><li>3<li>4</ul></tr></table>"),
            "a | b c\n1 2 | - 3 - 4\n");
}

TEST(Html, KeepsEmptyCellsInTheirColumns) {
  EXPECT_EQ(html_to_text("<table><tr><th></th><th>spring</th><th>autumn</th></tr>"
                         "<tr><td>wheat<td>41<td></tr><tr><td>&nbsp;<td>17<td>23</tr>"
                         "<tr><td>oats<td><td>9</table>"),
            "| spring | autumn\nwheat | 41 |\n| 17 | 23\noats | | 9\n");
  // A column that is empty everywhere only makes room.
  EXPECT_EQ(html_to_text("<table><tr><td>a<td><td>b</tr><tr><td>c<td>&nbsp;<td>d</table>"),
            "a | b\nc | d\n");
}

TEST(Html, KeepsColumnsBesideMergedCells) {
  EXPECT_EQ(html_to_text("<table><tr><th rowspan=2>Crop<th colspan=2>1990</tr>"
                         "<tr><th>spring<th>autumn</tr><tr><td rowspan=\"2\">wheat<td>1<td>2"
                         "<tr><td>3<td>4<tr><td colspan=3>In bushels</td></tr></table>"),
            "Crop | 1990 |\nCrop | spring | autumn\nwheat | 1 | 2\nwheat | 3 | 4\nIn bushels\n");
}

TEST(Html, APageInATableIsNoRow) {
  EXPECT_EQ(html_to_text("<table><tr><td>Menu</td><td><h1>Head</h1><p>One.</p><table><tr><td>a<td>b"
                         "</tr><tr><td>c<td>d</tr></table></td></tr></table>"),
            "Menu\n\nHead\n\nOne.\n\na | b\nc | d\n");
  EXPECT_EQ(html_to_text("<table><tr><td><table><tr><td>x</table><td>y</table>"), "x | y\n");
  const std::string words(800, 'x');
  EXPECT_EQ(html_to_text("<table><tr><td>Menu<td><p>" + words + "</p><p>" + words + "</table>"),
            "Menu\n\n" + words + "\n\n" + words + "\n");
}

TEST(Html, AShortTableInACellStaysInItsRow) {
  const std::string inner = "<table><tr><td>spring<td>3</tr><tr><td>autumn<td>4</tr></table>";
  EXPECT_EQ(html_to_text("<table><tr><th>Crop<th>Bushels<th>Price</tr><tr><td>wheat<td>" + inner +
                         "<td>40</tr><tr><td>oats<td>9<td>7</tr></table>"),
            "Crop | Bushels | Price\nwheat | spring, 3; autumn, 4 | 40\noats | 9 | 7\n");
  EXPECT_EQ(html_to_text("<table><tr><td>wheat<td>" + inner + "<td>40</tr></table>"),
            "wheat | spring, 3; autumn, 4 | 40\n");
  EXPECT_EQ(html_to_text("<table><tr><td>a<td>1</tr><tr><td>b<td><p>Note:</p>" + inner +
                         "<td>40</tr></table>"),
            "a | 1\nb | Note:; spring, 3; autumn, 4 | 40\n");
}

TEST(Html, RaisedCharactersStayApart) {
  EXPECT_EQ(html_to_text("10<sup>6</sup> litres, 25 m<sup>2</sup>, 10<sup>-3</sup>, 10<sup>&minus;3"
                         "</sup>kg, 2<sup>n+1</sup>, (a+b)<SUP><b>2</b></SUP>, x<sub>i</sub>"),
            "10^6 litres, 25 m^2, 10^-3, 10^−3 kg, 2^(n+1), (a+b)^2, x_i\n");
  EXPECT_EQ(
      html_to_text("H<sub>2</sub>O, SO<sub>4</sub><sup>2-</sup>, log<sub>2</sub>8, <sup>14</sup>C"),
      "H2O, SO4^2-, log2 8, ^14C\n");
  EXPECT_EQ(
      html_to_text(
          "log<sub>10</sub>x, 10<span style='x: y; vertical-align: super'><span>6</span></span> l"),
      "log10 x, 10^6 l\n");
  EXPECT_EQ(html_to_text("1<sup>st</sup>, n<sup>th</sup>, word<sup>1</sup>, end.<sup>[3]</sup> "
                         "Acme<sup>&reg;</sup> 12<sup>1</sup>&frasl;<sub>2</sub> cups"),
            "1st, nth, word^1, end.[3] Acme® 12 1/2 cups\n");
  EXPECT_EQ(
      html_to_text("<p>2<sup>2<sup>3</sup></sup></p><p><sup>1</sup>See there.</p><p>m<sup>2</p>"),
      "2^(2^3)\n\n1 See there.\n\nm^2\n");
  EXPECT_EQ(html_to_text("<math><msup><mi>y</mi><mn>2</mn></msup><mo>=</mo><mfrac><mrow><mi>a</mi>"
                         "<mo>+</mo><mn>1</mn></mrow><mi>b</mi></mfrac></math>"),
            "y^2=(a+1)/b\n");
}

TEST(Html, ATagMayCloseItself) {
  EXPECT_EQ(html_to_text("<p>a <svg width=\"8\"/> b</p><math/><p>c"), "a b\n\nc\n");
  // A drawing with drawings in it, and one that has no end.
  EXPECT_EQ(html_to_text("a <svg><path d='M0'/><svg/><svg><g/></svg><title>t</title></svg> b"),
            "a b\n");
  EXPECT_EQ(html_to_text("<p>a<svg width=8/><path><p>b"), "a\n\nb\n");
  for (const char* element :
       {"script", "style", "title", "textarea", "iframe", "noscript", "template"}) {
    EXPECT_EQ(html_to_text(std::string("<p>a</p><") + element + " x=\"y\"/><p>b</p>"), "a\n\nb\n")
        << element;
  }
  const std::string xml = "<?xml version=\"1.0\"?>\n<html xmlns=\"http://www.w3.org/1999/xhtml\">";
  EXPECT_EQ(
      html_to_text(xml + "<title/><p/><pre/><p>a  b</p><table/><svg:svg><svg:text>x</svg:text>"
                         "</svg:svg><p>c<![CDATA[ < d &]]></p></html>"),
      "a b\n\nc < d &\n");
}

TEST(Html, ADrawingShowsThePagesInIt) {
  EXPECT_EQ(
      html_to_text("<p>a</p><svg><title>t</title><g><foreignObject width=9><div>Mill <b>of "
                   "Ann</b></div></foreignObject></g><text>x</text><foreignobject>b<svg><path/>"
                   "</svg>c</foreignobject></svg><p>d"),
      "a\n\nMill of Ann\nbc\n\nd\n");
  EXPECT_EQ(html_to_text("<svg><foreignObject>a</svg>b<svg><foreignObject/><g>c</g></svg>d"),
            "a\nbd\n");
}

TEST(Html, ATagThatEndsInASlashMayHaveAnEnd) {
  EXPECT_EQ(html_to_text("<style/>p{}</style><p>a<script src=x/>b</script><script "
                         "src=\"x\"/><p>c<script>d</script>"),
            "a\n\nc\n");
}

TEST(Html, CommentsEndAsTheStandardSays) {
  EXPECT_EQ(
      html_to_text("<p>1</p><!--><p>2</p><!---><p>3</p><!-- x --!><p>4</p><!-- a -- > b --><p>5</p>"
                   "<!x><p>6</p><?php echo 1 ?><p>7</p></ x><p>8"),
      "1\n\n2\n\n3\n\n4\n\n5\n\n6\n\n7\n\n8\n");
}

TEST(Html, ScriptsEndAsTheStandardSays) {
  EXPECT_EQ(html_to_text("a<script><!-- write('<script>x<\\/script>') //--></script>b"), "ab\n");
  EXPECT_EQ(html_to_text(
                "a<script><!-- '<script>x</script>' --></script>b<script>'</scripts>'</script >c"),
            "abc\n");
  EXPECT_EQ(html_to_text("a<noscript>b"), "ab\n");
  EXPECT_EQ(html_to_text("<title>A <b>b</title><textarea><p>c</textarea>"), "A <b>b\n\n<p>c\n");
}

TEST(Html, ListsKeepTheirNumbers) {
  EXPECT_EQ(html_to_text(
                "<ol start=3><li>three<li>four<ul><li>dot</ul><li value=9><p>nine</p><li>ten</ol>"),
            "3. three\n4. four\n- dot\n\n9. nine\n\n10. ten\n");
  EXPECT_EQ(html_to_text("<p>a<br>b<br><br>c"), "a\nb\n\nc\n");
}

TEST(Html, KeepsThePlacesOfPreformattedText) {
  EXPECT_EQ(html_to_text("<p>a  b</p><pre>x = 1\n  y</pre><p>c"), "a b\n\nx = 1\n  y\n\nc\n");
}

TEST(Html, TakesCharactersByNameAndNumber) {
  EXPECT_EQ(html_to_text("&lt;p&gt; &#65;&#x42; &#xe9; &#128512; &nosuch; &#0; &#xd800; AT&T &"),
            "<p> AB é 😀 &nosuch; \uFFFD \uFFFD AT&T &\n");
}

TEST(Html, KnowsAllNamesOfTheStandard) {
  EXPECT_EQ(html_to_text(
                "M&uuml;ller &AMP; S&ouml;hne, Stra&szlig;e; 3 &le; x; &rarr; &Ccedil;a &frac12;"),
            "Müller & Söhne, Straße; 3 ≤ x; → Ça ½\n");
  EXPECT_EQ(html_to_text("&CounterClockwiseContourIntegral;&fjlig;&NotEqualTilde;"), "∳fj≂̸\n");
  // Some need no semicolon; the longest name counts.
  EXPECT_EQ(html_to_text("&copy2024 &notin; &notit; &ampx; &lt"), "©2024 ∉ ¬it; &x; <\n");
  // Numbers by the standard's table.
  EXPECT_EQ(html_to_text("&#8364 &#x20AC; &#128;&#150;&#x99; &#1234567890123; &# &#x;"),
            "€ € €–™ \uFFFD &# &#x;\n");
  EXPECT_EQ(html_to_text("x&shy;y&nbsp;z \u00a0w"), "xy z w\n");
}

TEST(Html, NamesItsEncoding) {
  EXPECT_EQ(declared_encoding("<html><head><meta charset=\"iso-8859-1\">"), "iso-8859-1");
  EXPECT_EQ(declared_encoding("<META http-equiv=Content-Type content='text/html; Charset=koi8-r'>"),
            "koi8-r");
  EXPECT_EQ(declared_encoding("<?xml version=\"1.0\" encoding='Shift_JIS'?><html>"), "Shift_JIS");
  EXPECT_EQ(declared_encoding("<script>'<meta charset=x>'</script><!-- <meta charset=y> -->"), "");
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
  for (const char* part : {"<b=\"",
                           "<b='x'>",
                           "<",
                           "&",
                           "<!--x-->",
                           "<script>",
                           "<li>",
                           "<pre>",
                           "<div>",
                           "<!--",
                           "<![CDATA[",
                           "<?",
                           "</",
                           "<table>",
                           "<table><tr><td>x",
                           "<td colspan=1000>",
                           "<tr><td rowspan=60000>x<td>",
                           "<sup>",
                           "<sup>x",
                           "<svg>",
                           "<script/>",
                           "<span>",
                           "<span style='vertical-align:sub'>",
                           "<svg><g>",
                           "<svg><p>",
                           "<svg><foreignObject>",
                           "<svg><foreignObject></svg>",
                           "<title>",
                           "<noscript>",
                           "<template>",
                           "<ol><li>",
                           "<script><!--<script></script>",
                           "<math><msup><mi>",
                           "</mi>",
                           "<math><mi></mn>",
                           "<b x=1><p>x",
                           "&#1"}) {
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
  EXPECT_TRUE(
      is_html("<?xml version=\"1.0\"?>\n<?xml-stylesheet href=x?><!-- a --><!DOCTYPE html><html>"));
  EXPECT_TRUE(is_html("<!-- saved from a browser -->\n<!--><HTML>"));
  EXPECT_FALSE(is_html("A text on <html>"));
  EXPECT_FALSE(is_html("<!-- a note -->\n# A heading"));
  EXPECT_FALSE(is_html("<?xml version=\"1.0\"?><rss>"));
  EXPECT_FALSE(is_html(""));
  EXPECT_TRUE(may_be_html("<!-- x --><p class=a>"));
  EXPECT_TRUE(may_be_html("<HEAD><title>"));
  EXPECT_FALSE(may_be_html("<project>"));
  EXPECT_FALSE(may_be_html("<!-- a note -->\n# A heading"));
}

}  // namespace
}  // namespace ballast
