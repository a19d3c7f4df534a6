// Writes queries, keys and values of a running model in the format of KvFile.
#pragma once

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ballast/engine/model.h"
#include "ballast/engine/tensor.h"
#include "ballast/rotary.h"
#include "experiments/data/loaded_model.h"
#include "report/json.h"

namespace ballast {

/// Collects attention inputs chunk by chunk and writes layer.{i}.q|k|v of [heads, tokens, dim] at
/// the end. An unnamed temporary file beside the output holds the chunks, so memory stays that of
/// one chunk.
class KvCapture {
 public:
  /// `layers`: the captured layers, ascending. `type`: f32, f16 or bf16. Throws Error if the model
  /// has no such layer, or the file cannot be made.
  KvCapture(const std::filesystem::path& path, const ModelConfig& config,
            std::vector<std::size_t> layers, TensorType type);
  ~KvCapture();
  KvCapture(const KvCapture&) = delete;
  KvCapture& operator=(const KvCapture&) = delete;

  /// For PrefillOptions::on_attention.
  void add(const AttentionStep& step);
  /// Scores of a replay pass of a captured layer, a row for each KV head; for all such layers,
  /// or none.
  void set_scores(std::size_t layer, Matrix scores);
  /// Writes the file. Throws Error if nothing was added or it cannot be written.
  void write(const std::map<std::string, std::string>& metadata);

 private:
  /// Heads of one chunk of one layer's queries, keys or values, one head after another.
  struct Piece {
    std::uint64_t offset = 0;
    std::size_t tokens = 0;
  };
  struct Part {
    char name = 'q';
    std::size_t heads = 0;
    std::size_t dim = 0;
  };
  void spool(ConstMatrix rows, const Part& part, std::vector<Piece>& pieces);
  std::vector<std::byte> read_head(const Piece& piece, std::size_t head, std::size_t row_bytes);

  std::filesystem::path path_;
  std::vector<std::size_t> layers_;
  TensorType type_;
  std::vector<Part> parts_;
  std::vector<std::vector<Piece>> pieces_;  ///< of layer i, part p: pieces_[3 i + p]
  std::map<std::size_t, Matrix> scores_;    ///< by layer
  std::FILE* spool_ = nullptr;
  std::uint64_t spooled_ = 0;
};

/// Refuses attention that such a file cannot carry: ALiBi, and sliding windows shorter than the
/// text in one of `layers`. `model` is the name in the Error.
void check_capturable(const ModelConfig& config, const std::string& model,
                      std::span<const std::size_t> layers, std::size_t tokens);

/// `scale`, `softcap` and `rotary`, as KvFile reads them.
std::map<std::string, std::string> attention_metadata(const ModelConfig& config,
                                                      const Rotary& rotary = {});

struct CaptureOptions {
  std::vector<std::size_t> layers = {};  ///< ascending; empty: all
  std::size_t tokens = 0;                ///< only the first ones; 0: all
  TensorType type = TensorType::f16;     ///< f32, f16 or bf16
  std::string score = "max";  ///< what a replay pass scores tokens by; "none": it is read once
  bool quiet = false;         ///< shows no progress
  std::string command = {};   ///< noted in the file
};

/// Reads a text and writes what its attention was given to `out`; returns what to say of it.
/// `source`: the text's name in errors. Throws Error where the text is longer than the model's
/// positions, or cannot be captured.
Json capture_text(LoadedModel& m, const std::string& text, const std::string& source,
                  const std::filesystem::path& out, const CaptureOptions& options);
/// The same of the first `count` prompts (0: of all) of LongBench's or LongEval's file `data`,
/// without a chat template, in files 0001.safetensors, … of a folder. An array.
Json capture_prompts(LoadedModel& m, const std::filesystem::path& data, std::size_t count,
                     const std::filesystem::path& folder, const CaptureOptions& options);

}  // namespace ballast
