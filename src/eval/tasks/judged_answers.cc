#include "eval/tasks/judged_answers.h"

#include <fmt/format.h>

#include <fstream>

#include "base/fail.h"
#include "eval/data/json_lines.h"
#include "formats/json_file.h"

namespace ballast {
namespace {

JudgedQuestion alpaca_question(const Json& item, const std::string& place) {
  require(item.is_object() && item.contains("instruction") && item["instruction"].is_string(),
          "{}: expected an object with the text \"instruction\"", place);
  return {item, {item["instruction"].get<std::string>()}};
}

JudgedQuestion mt_question(const Record& record) {
  record.number("question_id");
  return {Json(record.fields), record.texts("turns")};
}

}  // namespace

std::vector<JudgedQuestion> read_judged(const std::filesystem::path& path, JudgedFormat& format) {
  std::ifstream file(path);
  char first = 0;
  file >> first;
  format = first == '[' ? JudgedFormat::alpaca_eval : JudgedFormat::mt_bench;
  if (format == JudgedFormat::mt_bench) return read_all(path, mt_question);
  const Json all = read_json(path);
  require(!all.empty(), "{}: holds no instruction", path.string());
  std::vector<JudgedQuestion> out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    out.push_back(alpaca_question(all[i], fmt::format("{}: number {}", path.string(), i)));
  }
  return out;
}

std::string judged_file(JudgedFormat format, const std::vector<JudgedQuestion>& questions,
                        const std::vector<std::vector<std::string>>& answers,
                        const std::string& generator) {
  if (format == JudgedFormat::alpaca_eval) {
    Json out = Json::array();
    for (std::size_t i = 0; i < questions.size(); ++i) {
      Json item = {{"instruction", questions[i].turns[0]},
                   {"output", answers[i].at(0)},
                   {"generator", generator}};
      if (questions[i].record.contains("dataset")) {
        item["dataset"] = questions[i].record["dataset"];
      }
      out.push_back(std::move(item));
    }
    return out.dump(2) + "\n";
  }
  std::string out;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const Json& id = questions[i].record["question_id"];
    const Json line = {{"question_id", id},
                       {"answer_id", fmt::format("{}-{}", generator, id.dump())},
                       {"model_id", generator},
                       {"choices", {{{"index", 0}, {"turns", answers[i]}}}},
                       {"tstamp", 0}};
    out += line.dump() + "\n";
  }
  return out;
}

}  // namespace ballast
