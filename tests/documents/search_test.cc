// Which texts a question is about.
#include "documents/search.h"

#include <gmock/gmock.h>

#include <cmath>
#include <deque>

namespace ballast::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<Found> find_passages(const std::vector<std::string_view>& texts,
                                 std::string_view question, std::size_t most) {
  std::deque<PassageIndex> indexes;
  std::vector<IndexedText> indexed;
  for (const std::string_view text : texts) indexed.push_back({text, &indexes.emplace_back(text)});
  return ballast::find_passages(indexed, question, most);
}

TEST(Passages, TheTextWithTheRarestWordsIsFirst) {
  const std::vector<std::string_view> texts = {
      "The house is old. The garden of the house is wild.",
      "Rent is due on the first day. The lease ENDS in March, and the deposit comes back.",
      "The river is wide."};
  const std::vector<Found> found =
      find_passages(texts, "When does the lease end? ends, the lease", 9);
  ASSERT_EQ(found.size(), 3U);  // all have "the"
  EXPECT_EQ(found[0].text, 1U);
  EXPECT_GT(found[0].score, 2 * found[1].score);
  EXPECT_THAT(found[0].passage, StartsWith("The lease ENDS in March"));
  EXPECT_EQ(found[0].begin, texts[1].find("The lease"));
  EXPECT_EQ(find_passages(texts, "the lease", 1).size(), 1U);
  EXPECT_THAT(find_passages(texts, "Größe?", 9), testing::IsEmpty());
}

TEST(Passages, OfALongTextTheBestPassageCounts) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "word ";
  text += "the needle is here";
  for (int i = 0; i < 500; ++i) text += " word";
  const std::vector<Found> found = find_passages({text}, "needle", 9);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].passage, HasSubstr("needle"));
  EXPECT_LT(found[0].passage.size(), 700U);
}

/// Which of the texts is first, or -1.
int first(const std::vector<std::string_view>& texts, std::string_view question) {
  const std::vector<Found> found = find_passages(texts, question, 9);
  return found.empty() ? -1 : static_cast<int>(found[0].text);
}

TEST(Passages, CaseAndAccentsDoNotMatter) {
  const std::vector<std::string_view> texts = {"ÜBER DIE MÜHLE. Der Pächter heißt Jörg.",
                                               "Die Fähre fährt täglich. ÄPFEL, STRASSE.",
                                               "Договор кончается в марте.",
                                               "Η ΑΘΗΝΑ είναι μεγάλη, ο ΔΡΟΜΟΣ.",
                                               "İSTANBUL ve ISPARTA",
                                               "L’été, le garçon d'Agnès.",
                                               "Cafe\u0301 ＡＢＣ１２"};
  EXPECT_EQ(first(texts, "Wo ist die mühle?"), 0);
  EXPECT_EQ(first(texts, "äpfel"), 1);
  EXPECT_EQ(first(texts, "Straße"), 1);
  EXPECT_EQ(first(texts, "ДОГОВОР"), 2);
  EXPECT_EQ(first(texts, "Αθήνα"), 3);
  EXPECT_EQ(first(texts, "δρόμος"), 3);
  EXPECT_EQ(first(texts, "istanbul"), 4);
  EXPECT_EQ(first(texts, "ısparta"), 4);
  EXPECT_EQ(first(texts, "agnes"), 5);
  EXPECT_EQ(first(texts, "Café"), 6);
  EXPECT_EQ(first(texts, "abc12"), 6);
  EXPECT_EQ(first(texts, "Birne"), -1);
}

TEST(Passages, OtherWaysToWriteALetterMeet) {
  const std::vector<std::string_view> texts = {
      "Le cœur de l'Œuvre.", "Æbler fra Kjøbenhavn og Århus", "Zdjęcia z Łodzi",
      "Die Mueller AG",      "Jörg Größer wohnt hier.",       "Þingvellir, Đorđe",
      "the ﬁne ﬁsh"};
  EXPECT_EQ(first(texts, "coeur"), 0);
  EXPECT_EQ(first(texts, "OEUVRE"), 0);
  EXPECT_EQ(first(texts, "aebler"), 1);
  EXPECT_EQ(first(texts, "Kjobenhavn"), 1);
  EXPECT_EQ(first(texts, "kjoebenhavn"), 1);
  EXPECT_EQ(first(texts, "Aarhus"), 1);
  EXPECT_EQ(first(texts, "arhus"), 1);
  EXPECT_EQ(first(texts, "lodzi"), 2);
  EXPECT_EQ(first(texts, "Müller"), 3);
  EXPECT_EQ(first(texts, "Joerg"), 4);
  EXPECT_EQ(first(texts, "groesser"), 4);
  EXPECT_EQ(first(texts, "thingvellir"), 5);
  EXPECT_EQ(first(texts, "Dorde"), 5);
  EXPECT_EQ(first(texts, "fish"), 6);
  EXPECT_EQ(first(texts, "heart"), -1);
}

TEST(Passages, ArabicAndHebrewWordsMeetWithAndWithoutArticle) {
  const std::vector<std::string_view> texts = {
      "يقرأ الكِتَابَ في المدرسة.", "وقّع المستأجرُ على إيجار آخر", "הַסֵּפֶר על השולחן",
      "در کتابخانهٔ علی ۱۲ صندلی است", "غرفة ومفتاح والسلم"};
  EXPECT_EQ(first(texts, "كتاب"), 0);
  EXPECT_EQ(first(texts, "والكتاب"), 0);
  EXPECT_EQ(first(texts, "مدرسه"), 0);
  EXPECT_EQ(first(texts, "مستأجر"), 1);
  EXPECT_EQ(first(texts, "الايجار"), 1);
  EXPECT_EQ(first(texts, "اخر"), 1);
  EXPECT_EQ(first(texts, "ספר"), 2);
  EXPECT_EQ(first(texts, "והשולחן"), 2);
  EXPECT_EQ(first(texts, "صندلي"), 3);
  EXPECT_EQ(first(texts, "12"), 3);
  EXPECT_EQ(first(texts, "السلم"), 4);
  EXPECT_EQ(first(texts, "قمر"), -1);
}

TEST(Passages, ScriptsWithoutBlanksHaveWords) {
  const std::vector<std::string_view> texts = {
      "旧磨坊的租约在三月底结束。房东住在海边的白色小屋里。\n每年秋天要付四十枚银币。",
      "渡船每天早上七点四十分离开四号码头。船长叫林海，他喜欢喝绿茶。",
      "図書館は月曜日に休みです。鍵は受付の引き出しにあります。",
      "도서관은 월요일에 쉽니다. 열쇠는 접수처 서랍에 있습니다.",
      "ห้องสมุดปิดวันจันทร์ กุญแจอยู่ในลิ้นชัก",
      "ｶﾞﾗｽの瓶、iPhoneの値段"};
  EXPECT_EQ(first(texts, "租约什么时候结束？"), 0);
  EXPECT_EQ(first(texts, "船长喜欢喝什么？"), 1);
  EXPECT_EQ(first(texts, "鍵はどこですか"), 2);
  EXPECT_EQ(first(texts, "열쇠가 어디에 있나요?"), 3);
  EXPECT_EQ(first(texts, "\u1109\u1165\u1105\u1161\u11b8"), 3);  // parts of 서랍
  EXPECT_EQ(first(texts, "กุญแจอยู่ที่ไหน"), 4);
  EXPECT_EQ(first(texts, "ガラス"), 5);
  EXPECT_EQ(first(texts, "IPHONE"), 5);
  const std::vector<Found> found = find_passages(texts, "秋天要付多少银币？", 1);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].passage, "每年秋天要付四十枚银币。");
}

TEST(Passages, TakesAnyBytes) {
  const std::vector<std::string_view> texts = {"\xff\xe5\x8c and \xe5", "\xcc\x81"};
  EXPECT_EQ(first(texts, "and\xe5\x8c"), 0);
}

/// Okapi BM25 by hand: two passages of four words, a word that one of them has twice.
TEST(Passages, ScoresAreThoseOfBm25) {
  const std::vector<std::string_view> texts = {"fox and fox run", "dog and cat run"};
  const std::vector<Found> found = find_passages(texts, "fox", 9);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NEAR(found[0].score, std::log(1 + 1.5 / 1.5) * 2 * 2.2 / (2 + 1.2), 1e-12);
}

TEST(MissingWords, AreThoseOfAnAnswerThatTheTextLacks) {
  const std::string_view text = "The roofer Tobben Hask charged 1,460 crowns for the Dächer.";
  const std::string_view question = "What is the name of the roofer?";
  EXPECT_EQ(missing_words(text, question, "The name of the roofer is Tobben HASK."), 0);
  EXPECT_EQ(missing_words(text, question, "The roofer is John."), 1);
  EXPECT_EQ(missing_words(text, question, "Tobben Smith"), 0.5);
  EXPECT_EQ(missing_words(text, question, "Daecher"), 0);
  EXPECT_EQ(missing_words(text, question, "The roofer."), 0);
  EXPECT_EQ(missing_words(text, question, "Yes, Tobben."), 0);
  EXPECT_EQ(missing_words(text, question, "14."), 1);
  EXPECT_EQ(missing_words("", "", ""), 0);
}

TEST(WordsNear, AreThoseBesideTheAnswer) {
  const std::string_view text =
      "The roofer came on Monday. He charged 1,460 crowns. It rained. The tenant slept all day. "
      "Her bank is the Harbour Mutual.";
  EXPECT_EQ(words_near(text, "roofer crowns", "1,460"), 1);
  EXPECT_EQ(words_near(text, "roofer bank", "Harbour Mutual"),
            words_near(text, "bank roofer", "1,460"));  // equally rare
  EXPECT_EQ(words_near(text, "At which airport?", "Harbour Mutual"), 0);
  EXPECT_EQ(words_near(text, "roofer", "Zanzibar"), 1);  // nothing says where it stands
  EXPECT_EQ(words_near("", "", ""), 0);
}

}  // namespace
}  // namespace ballast::test
