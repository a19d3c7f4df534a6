// Tables on pages whose text keeps its places.
#include "documents/layout.h"

#include <gmock/gmock.h>

#include <ctime>
#include <string>

#include "sanitized.h"

namespace ballast {
namespace {

using testing::HasSubstr;

std::string tables(const std::string& page) { return text_with_tables(page).value_or("no table"); }

TEST(Layout, RowsOfATableStayRows) {
  EXPECT_EQ(tables("The tenant pays as the table says; what it does not name is paid by\n"
                   "the landlord.\n\n"
                   "Item                       Paid by        Per month\n"
                   "Internet                   landlord              12\n"
                   "Cleaning of the stairs     tenant\n"
                   "Waste                                          48.5\n\n"
                   "Prices are those of the first year. The landlord tells of others.\n"),
            "The tenant pays as the table says; what it does not name is paid by\n"
            "the landlord.\n\n"
            "Item | Paid by | Per month\nInternet | landlord | 12\n"
            "Cleaning of the stairs | tenant |\nWaste | | 48.5\n\n"
            "Prices are those of the first year. The landlord tells of others.\n");
  EXPECT_EQ(tables("Protocol\n\nLandlord        Jörg Ähnlich\n\nTenant          Agnes Pell\n\n"
                   "Keys            two\n"),
            "Protocol\n\nLandlord | Jörg Ähnlich\nTenant | Agnes Pell\nKeys | two\n");
}

TEST(Layout, ACellMayGoOnInTheNextLine) {
  EXPECT_EQ(tables("Duty       Who and when\n"
                   "Stairs     The tenant sweeps them weekly and washes\n"
                   "           them once a month.\n"
                   "Snow       The landlord before seven.\n"),
            "Duty | Who and when\nStairs | The tenant sweeps them weekly and washes them once a "
            "month.\nSnow | The landlord before seven.\n");
}

TEST(Layout, ProseIsNoTable) {
  // What a margin has stretched.
  EXPECT_EQ(text_with_tables("are for   the tenant. Pets other than     small ones need the\n"
                             "written consent   of the landlord, which    is given where nobody\n"
                             "is      disturbed. The tenant pays   the rent on the third day of\n"),
            std::nullopt);
  EXPECT_EQ(text_with_tables("1.    The tenant pays the rent.\n2.    The landlord keeps the roof.\n"
                             "      He is told of damage.\n3.    Pets are small.\n"),
            std::nullopt);
  EXPECT_EQ(text_with_tables("def f(x):\n    if x > 3:\n        return  x\n"), std::nullopt);
  EXPECT_EQ(
      text_with_tables("Agnes Pell                   3 March 1998\nPier Road 4\n\nDear Sir,\n"),
      std::nullopt);
  EXPECT_EQ(text_with_tables(""), std::nullopt);
}

std::string two_columns(const std::string& left, const std::string& right) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += left + "      " + right + "\n";
  return out;
}

TEST(Layout, ColumnsOfProseAreReadOneAfterAnother) {
  const std::string prose =
      two_columns("the tenant pays what he owes ", "and the landlord keeps it all");
  EXPECT_EQ(text_with_tables(prose), std::nullopt);
  const std::string both =
      tables(prose +
             "crop      1990   1991           and the landlord keeps it all\n"
             "wheat       41     17           and the landlord keeps it all\n"
             "oats         9     23           and the landlord keeps it all\n" +
             prose);
  EXPECT_THAT(both, testing::StartsWith("the tenant pays what he owes\nthe tenant"));
  EXPECT_THAT(
      both, HasSubstr("owes\n\ncrop | 1990 | 1991\nwheat | 41 | 17\noats | 9 | 23\n\nthe tenant"));
  EXPECT_THAT(both, HasSubstr("he owes\n\nand the landlord keeps it all\nand the landlord"));
}

TEST(Layout, ShortColumnsOfProseAreNoTable) {
  const std::string english =
      "The harbour of Lund has two piers and      The keeper of the light is Agnes Pell.\n"
      "one light. The older pier was built in     She climbs the ninety steps each night\n"
      "1871 by a merchant who sold herring, and   and writes the weather into a book that\n"
      "it is made of oak.                         nobody has ever asked for.\n";
  const std::string german =
      "Der Hafen von Lund hat zwei Molen und    Die Wärterin des Feuers heißt Agnes\n"
      "ein Leuchtfeuer. Die ältere Mole wurde   Pell. Sie steigt jede Nacht die neunzig\n"
      "1871 von einem Kaufmann gebaut, der      Stufen hinauf und schreibt das Wetter in\n"
      "Heringe verkaufte.                       ein Buch.\n";
  const std::string uneven =
      "The ferry leaves from pier four at      The captain is Lin Hai, who drinks\n"
      "seven, and it comes back at nine in     green tea. He has a dog that sleeps\n"
      "the evening.                            behind the wheel and barks at every\n"
      "                                        gull that comes near it. Nobody on\n"
      "                                        board has seen it swim.\n";
  const std::string capitals =
      "THE TENANT PAYS THE RENT ON THE      THE LANDLORD KEEPS THE ROOF AND\n"
      "THIRD DAY OF EACH MONTH AND THE      THE WALLS IN GOOD ORDER. HE MAY\n"
      "DEPOSIT AT ONCE. PETS ARE NOT        ENTER AFTER NOTICE OF ONE DAY\n"
      "ALLOWED IN THE HOUSE.                AND NOT BEFORE EIGHT.\n";
  for (const std::string& page : {english, german, uneven, capitals}) {
    EXPECT_EQ(text_with_tables(page), std::nullopt) << page;
  }
  const std::string table = "Pier     Built\nold      1871\nnew      1990\n\n";
  EXPECT_THAT(tables(table + english), HasSubstr("new | 1990\n\nThe harbour of Lund has two piers "
                                                 "and\none light."));
}

TEST(Layout, WideCellsAreATable) {
  EXPECT_EQ(tables("electricity and heating   paid by the tenant monthly\n"
                   "internet and telephone    paid by the landlord yearly\n"
                   "cleaning of the stairs    paid by the tenant in turn\n"
                   "waste and its removal     paid by the town council\n"),
            "electricity and heating | paid by the tenant monthly\n"
            "internet and telephone | paid by the landlord yearly\n"
            "cleaning of the stairs | paid by the tenant in turn\n"
            "waste and its removal | paid by the town council\n");
  std::string page, rows;
  for (int i = 0; i < 9; ++i) {
    page += "The garden of house no. 1" + std::to_string(i) + "    St. Agnes of the old harbour\n";
    rows += "The garden of house no. 1" + std::to_string(i) + " | St. Agnes of the old harbour\n";
  }
  EXPECT_EQ(tables(page), rows);
}

TEST(Layout, TakesTimeInProportionToThePage) {
  for (const std::string& line : {std::string("a  b\n"), std::string("a\n"),
                                  std::string("a  b\n\n"), "a  " + std::string(5000, 'b') + "\n"}) {
    std::string page;
    for (int i = 0; i < 999; ++i) page += line;
    const std::clock_t begin = std::clock();  // other programs may have the processor
    text_with_tables(page);
    const auto seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    EXPECT_LT(seconds, test::kSanitized ? 60 : 6) << line.substr(0, 9);
  }
}

}  // namespace
}  // namespace ballast
