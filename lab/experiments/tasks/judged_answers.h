// Answers for benchmarks that another model judges: AlpacaEval and MT-bench, in their formats.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "report/json.h"

namespace ballast {

/// One conversation: what the user says, turn by turn.
struct JudgedQuestion {
  Json record;  ///< as the file has it
  std::vector<std::string> turns;
};

enum class JudgedFormat : std::uint8_t { alpaca_eval, mt_bench };

/// AlpacaEval's JSON array of {"instruction", "dataset"}, or MT-bench's question.jsonl of
/// {"question_id", "turns"}; a file whose first character is '[' is the former. Throws Error that
/// names the file and the place of what is wrong.
std::vector<JudgedQuestion> read_judged(const std::filesystem::path& path, JudgedFormat& format);

/// What the judge's program reads: AlpacaEval's model_outputs (a JSON array of instruction, output,
/// generator, and dataset where there is one), or MT-bench's model_answer lines (question_id,
/// answer_id, model_id, choices, tstamp). `answers[i]`: one text a turn of question i.
std::string judged_file(JudgedFormat format, const std::vector<JudgedQuestion>& questions,
                        const std::vector<std::vector<std::string>>& answers,
                        const std::string& generator);

}  // namespace ballast
