// Texts of any encoding as UTF-8.
#include "formats/utf8_text.h"

#include <gmock/gmock.h>
#include <unicode/ucnv.h>

#include <string>

#include "ballast/error.h"

namespace ballast {
namespace {

/// A text in an encoding.
std::string in(const char* encoding, const std::string& text) {
  std::string out(4 * text.size() + 16, ' ');
  UErrorCode status = U_ZERO_ERROR;
  const int size = ucnv_convert(encoding, "UTF-8", out.data(), static_cast<int>(out.size()),
                                text.data(), static_cast<int>(text.size()), &status);
  EXPECT_TRUE(U_SUCCESS(status)) << encoding;  // a name may have warnings
  out.resize(static_cast<std::size_t>(size));
  return out;
}

void expect_refused(const std::string& text, const std::string& why) {
  try {
    as_utf8(text, "x.txt");
    ADD_FAILURE() << "was to be refused: " << why;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("x.txt: " + why));
  }
}

TEST(Utf8Text, DecodesWhatTheBytesLookLike) {
  const std::pair<const char*, const char*> texts[] = {
      {"iso-8859-1", "Das Café Zürich schließt um acht."},
      {"windows-1252", "The tenant’s deposit is £400 — paid by “Ann”. The café opens at nine. €"},
      {"iso-8859-1", "Müller"},
      {"windows-1250",
       "Zażółć gęślą jaźń. Młyn należy do Józefa Śliwy, który płaci czynsz jesienią."},
      {"windows-1250",
       "Mlýn patří panu Novákovi. Příští týden přijede řidič a přiveze čerstvé housky."},
      {"iso-8859-2",
       "A malom tulajdonosa Kovács Jenő. Az őszi bérlet negyven ezüst, és a tűz kétszer égett."},
      {"windows-1251", "Мельница принадлежит Ивану Петрову. Договор кончается в марте."},
      {"koi8-r", "Мельница принадлежит Ивану Петрову. Договор кончается в марте."},
      {"windows-1253", "Ο μύλος ανήκει στον Γιώργο Παππά. Το μίσθωμα λήγει τον Μάρτιο."},
      {"windows-1254",
       "Değirmen Ahmet Yılmaz'a aittir. Kira sözleşmesi mart ayında bitiyor, ışık yeşil."},
      {"windows-1256", "المطحنة ملك ليوسف الحداد. ينتهي العقد في شهر مارس."},
      {"shift_jis", "図書館は月曜日に休みです。鍵は受付の引き出しにあります。"},
      {"euc-jp", "図書館は月曜日に休みです。鍵は受付の引き出しにあります。"},
      {"iso-2022-jp", "図書館は月曜日に休みです。鍵は受付の引き出しにあります。"},
      {"gb18030", "旧磨坊的租约在三月底结束。房东住在海边的白色小屋里。"},
      {"big5", "圖書館星期一休息。鑰匙在櫃檯的抽屜裡。房東住在海邊的白色小屋。"},
      {"euc-kr", "도서관은 월요일에 쉽니다. 열쇠는 접수처 서랍에 있습니다."},
      {"iso-8859-1", "El señor Muñoz pagará mañana. ¿Cuándo llegará el niño?"},
      {"iso-8859-1", "Båten går från kajen klockan sju. Ägaren är hemma på ön."},
      {"iso-8859-2", "Młyn należy do Józefa Śliwy, który płaci czynsz co roku jesienią."},
      {"iso-8859-1", "A reunião será amanhã às três; o coração não dói."},
      {"windows-874", "ห้องสมุดปิดวันจันทร์ กุญแจอยู่ในลิ้นชัก"},
      {"macintosh", "Das Café schließt um acht.\rDie Mühle gehört Jörg.\r"},
      {"UTF-16LE", "\uFEFFZürich, 図書館"},
      {"UTF-16BE", "\uFEFF図書館は月曜日に休みです。"},
      {"UTF-32LE", "\uFEFFZürich"},
      {"UTF-16LE", "No mark, but every other byte is zero"},
  };
  for (const auto& [encoding, text] : texts) {
    std::string wanted = text;
    if (wanted.starts_with("\uFEFF")) wanted.erase(0, 3);
    EXPECT_EQ(as_utf8(in(encoding, text), encoding), wanted) << encoding;
  }
  // Where the only sign is far behind.
  std::string far;
  while (far.size() < 100000) far += "The harbour has two piers and a light.\n";
  EXPECT_EQ(as_utf8(far + "Agn\xe8s keeps it.", "x"), far + "Agnès keeps it.");
}

TEST(Utf8Text, DecodesWhatIsDeclared) {
  EXPECT_EQ(as_utf8("\x8c\xae", "x", "shift_jis"), "鍵");
  EXPECT_EQ(as_utf8("\x80 \x96", "x", "iso-8859-1"), "€ –");  // as pages mean it
  EXPECT_EQ(as_utf8("caf\x8e", "x", "macintosh"), "café");
  EXPECT_EQ(as_utf8("plain", "x", "iso-8859-1"), "plain");
  // What is UTF-8 is so, whatever is declared; what is not is not.
  EXPECT_EQ(as_utf8("é", "x", "iso-8859-1"), "é");
  EXPECT_EQ(as_utf8("Das Caf\xe9 schlie\xdft um acht.", "x", "utf-8"),
            "Das Café schließt um acht.");
  EXPECT_EQ(as_utf8("Das Caf\xe9 schlie\xdft um acht.", "x", "nosuch"),
            "Das Café schließt um acht.");
}

TEST(Utf8Text, StaysWhatItIs) {
  for (const char* text : {"", "plain", "é", "\xF0\x9F\x98\x80 and \x1b[1mbold"}) {
    EXPECT_EQ(as_utf8(text, "x"), text);
  }
  EXPECT_EQ(as_utf8("\xEF\xBB\xBFmarked", "x"), "marked");
  // A character that is cut off.
  EXPECT_EQ(as_utf8("ein schönes größeres Grün \xc3", "x"), "ein schönes größeres Grün \uFFFD");
}

TEST(Utf8Text, AFewLettersInEnglishAreNotCzech) {
  for (const char* text :
       {"Install the untrusted local file with naïve care", "Pass the naïve Valley of Yali",
        "The naïve plan of Turkmenistan", "The bill: £400 for Señor Dolneni and Zoë",
        "They cannot create a temporary directory in São Paulo"}) {
    EXPECT_EQ(as_utf8(in("windows-1252", text), "x"), text);
  }
  const char* mac = "The café is closed.\rIt’s “the Müller house” — not.\r";
  EXPECT_EQ(as_utf8(in("macintosh", mac), "x"), mac);
  const char* japanese =
      "The library is closed on Mondays, and the key is in the drawer: "
      "図書館は月曜日に休みです。鍵は受付の引き出しにあります。";
  EXPECT_EQ(as_utf8(in("shift_jis", japanese), "x"), japanese);
}

TEST(Utf8Text, ANoteSaysWhatWasGuessedOrReplaced) {
  const auto note = [](const std::string& text, const char* declared = "") {
    std::string out = "old";
    as_utf8(text, "x.txt", declared, &out);
    return out;
  };
  EXPECT_EQ(note("plain"), "");
  EXPECT_EQ(note("é"), "");
  EXPECT_EQ(note(in("UTF-16LE", "\uFEFFZürich")), "");
  EXPECT_EQ(note("caf\xe9", "iso-8859-1"), "");
  EXPECT_EQ(note("The na\xefve plan of Turkmenistan"),
            "x.txt: not UTF-8; read as windows-1252, which its bytes look like");
  EXPECT_EQ(note("schönes Grün für Zürich \xff und Köln"),
            "x.txt: bytes that are not UTF-8 became U+FFFD: 1, the first byte 28");
  EXPECT_EQ(note("\xEF\xBB\xBFschöne größere Grüße \xff aus Köln \xe4"),
            "x.txt: bytes that are not UTF-8 became U+FFFD: 2, the first byte 29");
  const std::string long_text(300, 'a');
  EXPECT_EQ(note(long_text + "\x82\xa0\x81\x20", "shift_jis"),
            "x.txt: characters that shift_jis does not have became U+FFFD: 1");
  EXPECT_EQ(as_utf8(long_text + "\xff\x82\xa0", "x", "shift_jis"), long_text + "\uFFFDあ");
}

TEST(Utf8Text, RefusesWhatIsNone) {
  expect_refused(std::string("A zero") + '\0' + "byte", "not a text: byte 6 is zero");
  expect_refused(std::string(64, '\0'), "not a text: byte 0 is zero");
  expect_refused("\x1f\x8b\x08\x08\x01\x02\x03\xff\xfe", "a gzip archive, but a text is expected");
  expect_refused(in("ibm866", "Мельница принадлежит Ивану Петрову."), "a text, but not UTF-8");
}

}  // namespace
}  // namespace ballast
