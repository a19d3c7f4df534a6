// The files of data/calibration, which are compiled into the library: texts to calibrate on, and
// finished calibrations.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "ballast/engine/model.h"
#include "ballast/engine/tokenizer.h"

namespace ballast {

/// A file of the source tree that is compiled into the library.
struct BuiltInFile {
  std::string_view name;
  std::span<const std::byte> bytes;

  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

/// <key>.scores, one a model.
std::span<const BuiltInFile> built_in_calibrations();
/// Texts of many kinds, a file each.
std::span<const BuiltInFile> calibration_texts();
/// More languages and kinds, from data/calibration/packing, a file each; none is held out.
std::span<const BuiltInFile> packing_texts();
/// Texts that nothing is calibrated on, from data/held-out.
std::span<const BuiltInFile> held_out_texts();

constexpr std::size_t kCalibrationPiece = 1536;  ///< tokens that are read and scored together

/// Tokens of a text that are read together.
struct CalibrationPiece {
  std::vector<Token> tokens;
  bool held_out = false;  ///< what the steps of packing are found on
};

/// The pieces of a text or, where it is empty, of all built-in ones. Ends under an eighth of a
/// piece are left out.
std::vector<CalibrationPiece> calibration_pieces(const Model& model, const Tokenizer& tokenizer,
                                                 std::string_view text);

/// The tokens as what a user says, the last quarter as the answer, in the model's chat template
/// where it has one. Packing must know its marks: they draw much attention.
std::vector<Token> as_chat(const Tokenizer& tokenizer, std::span<const Token> tokens);

/// A token's features, as Calibration::Layer says. `heads`: KV heads.
void fill_features(std::span<const float> input, std::span<const float> keys,
                   std::span<const float> values, std::size_t heads, std::span<float> out);

}  // namespace ballast
