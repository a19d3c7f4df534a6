// What ballast calibrate reads where it is given no text.
#include <gmock/gmock.h>

#include <filesystem>
#include <set>

#include "ballast/engine/calibration.h"
#include "model/calibration_data.h"
#include "paths.h"

namespace ballast {
namespace {

class CalibrationPieces : public testing::Test {
 protected:
  const std::filesystem::path path_ = BALLAST_SOURCE_DIR "/models/ballast-mini.gguf";
  const Model model_{path_};
  const Tokenizer tokenizer_{read_vocabulary(path_)};
  const std::vector<CalibrationPiece> pieces_ = calibration_pieces(model_, tokenizer_, "");
};

TEST_F(CalibrationPieces, AreOfCodeTablesAndLogsAsWellAsProse) {
  std::string all;
  for (const CalibrationPiece& piece : pieces_) all += tokenizer_.decode(piece.tokens) + "\n";
  EXPECT_THAT(all, testing::HasSubstr("class RingBuffer"));                // code
  EXPECT_THAT(all, testing::HasSubstr("| Month | Electricity (kWh)"));     // a table
  EXPECT_THAT(all, testing::HasSubstr("kernel: [88213.551204] nvme0n1"));  // a log
  EXPECT_THAT(all, testing::HasSubstr("\"generated\": \"2031-05-18"));     // JSON
}

TEST_F(CalibrationPieces, AreAllReadForScores) {
  std::set<double> told;
  CalibrateOptions options;
  options.packing = false;
  const double first = 1 / (2 * double(pieces_.size()));  // the part of a piece's first reading
  options.progress = [&](double done) {
    told.insert(done);
    return done < first;
  };
  EXPECT_EQ(calibrate(model_, tokenizer_, options).scores, nullptr);
  EXPECT_DOUBLE_EQ(*told.rbegin(), first);
}

TEST_F(CalibrationPieces, OfOneTextAreThatTextAlone) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "Line " + std::to_string(i) + " of a text of one's own.\n";
  const auto pieces = calibration_pieces(model_, tokenizer_, text);
  std::vector<Token> all;
  for (const CalibrationPiece& piece : pieces) {
    all.insert(all.end(), piece.tokens.begin(), piece.tokens.end());
  }
  const std::string read = tokenizer_.decode(all);
  EXPECT_EQ(read, text.substr(0, read.size()));
  EXPECT_FALSE(pieces.at(0).held_out);
  EXPECT_TRUE(pieces.at(1).held_out);
}

}  // namespace
}  // namespace ballast
