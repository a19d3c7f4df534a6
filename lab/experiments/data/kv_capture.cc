#include "experiments/data/kv_capture.h"

#include <stdlib.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "ballast/engine/safetensors.h"
#include "ballast/scoring.h"
#include "base/fail.h"
#include "experiments/data/benchmarks.h"
#include "model/prefill_cost.h"
#include "report/progress.h"

namespace ballast {
namespace {

std::FILE* unnamed_file_beside(const std::filesystem::path& path) {
  std::string name = path.string() + ".spool-XXXXXX";
  const int fd = ::mkstemp(name.data());
  if (fd < 0) fail(ErrorCode::io, "{}: cannot create: {}", path.string(), std::strerror(errno));
  ::unlink(name.c_str());
  std::FILE* file = ::fdopen(fd, "w+b");
  if (file == nullptr)
    fail(ErrorCode::io, "{}: cannot create: {}", path.string(), std::strerror(errno));
  return file;
}

}  // namespace

KvCapture::KvCapture(const std::filesystem::path& path, const ModelConfig& config,
                     std::vector<std::size_t> layers, TensorType type)
    : path_(path),
      layers_(std::move(layers)),
      type_(type),
      parts_({{'q', config.heads, config.key_dim},
              {'k', config.kv_heads, config.key_dim},
              {'v', config.kv_heads, config.value_dim}}) {
  require(!layers_.empty(), "{}: no layer is to be captured", path.string());
  const std::size_t attending = config.attending().size();
  for (std::size_t layer : layers_) {
    require(layer < attending, "there is no layer {}; the model has {} that attend, counted from 0",
            layer, attending);
  }
  pieces_.resize(layers_.size() * parts_.size());
  spool_ = unnamed_file_beside(path_);
}

KvCapture::~KvCapture() { std::fclose(spool_); }

void KvCapture::add(const AttentionStep& step) {
  const auto found = std::ranges::lower_bound(layers_, step.layer);
  if (found == layers_.end() || *found != step.layer) return;
  const auto i = static_cast<std::size_t>(found - layers_.begin());
  const ConstMatrix rows[] = {step.queries, step.keys, step.values};
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    spool(rows[p], parts_[p], pieces_[i * parts_.size() + p]);
  }
}

void KvCapture::spool(ConstMatrix rows, const Part& part, std::vector<Piece>& pieces) {
  std::vector<float> head(rows.rows * part.dim);
  std::vector<std::byte> bytes(tensor_bytes(type_, head.size()));
  pieces.push_back({spooled_, rows.rows});
  for (std::size_t h = 0; h < part.heads; ++h) {
    for (std::size_t t = 0; t < rows.rows; ++t) {
      std::ranges::copy(rows[t].subspan(h * part.dim, part.dim),
                        head.begin() + static_cast<std::ptrdiff_t>(t * part.dim));
    }
    encode(type_, head, bytes);
    if (std::fwrite(bytes.data(), 1, bytes.size(), spool_) != bytes.size()) {
      fail(ErrorCode::io, "{}: cannot write what was captured: {}", path_.string(),
           std::strerror(errno));
    }
    spooled_ += bytes.size();
  }
}

std::vector<std::byte> KvCapture::read_head(const Piece& piece, std::size_t head,
                                            std::size_t row_bytes) {
  std::vector<std::byte> bytes(piece.tokens * row_bytes);
  const auto offset = static_cast<off_t>(piece.offset + head * bytes.size());
  if (::fseeko(spool_, offset, SEEK_SET) != 0 ||
      std::fread(bytes.data(), 1, bytes.size(), spool_) != bytes.size()) {
    fail(ErrorCode::io, "{}: cannot read back what was captured: {}", path_.string(),
         std::strerror(errno));
  }
  return bytes;
}

void KvCapture::write(const std::map<std::string, std::string>& metadata) {
  std::size_t tokens = 0;
  for (const Piece& piece : pieces_[0]) tokens += piece.tokens;
  require(tokens > 0, "{}: nothing was captured", path_.string());
  if (std::fflush(spool_) != 0) {
    fail(ErrorCode::io, "{}: cannot write what was captured: {}", path_.string(),
         std::strerror(errno));
  }
  std::vector<SafetensorsWriter::Declaration> tensors;
  for (std::size_t layer : layers_) {
    for (const Part& part : parts_) {
      tensors.push_back(
          {fmt::format("layer.{}.{}", layer, part.name), type_, {part.heads, tokens, part.dim}});
    }
  }
  for (const auto& [layer, scores] : scores_) {
    tensors.push_back(
        {fmt::format("layer.{}.scores", layer), TensorType::f32, {scores.rows(), scores.cols()}});
  }
  SafetensorsWriter writer(path_, tensors, metadata);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const Part& part = parts_[i % parts_.size()];
    for (std::size_t h = 0; h < part.heads; ++h) {
      for (const Piece& piece : pieces_[i]) {
        const auto bytes = read_head(piece, h, tensor_bytes(type_, part.dim));
        writer.write(std::span<const std::byte>(bytes));
      }
    }
  }
  for (const auto& [layer, scores] : scores_) {
    writer.write(std::span<const float>(scores.data(), scores.rows() * scores.cols()));
  }
  writer.commit();
}

void KvCapture::set_scores(std::size_t layer, Matrix scores) {
  require(std::ranges::binary_search(layers_, layer), "layer {} is not captured", layer);
  scores_[layer] = std::move(scores);
}

void check_capturable(const ModelConfig& config, const std::string& model,
                      std::span<const std::size_t> layers, std::size_t tokens) {
  require(config.alibi_max_bias <= 0,
          "{}: attention has ALiBi, which experiments on captured data leave out; capture a model "
          "without it",
          model);
  for (std::size_t layer : layers) {
    const std::size_t window =
        layer < config.sliding_windows.size() ? config.sliding_windows[layer] : 0;
    require(window == 0 || window >= tokens,
            "{}: layer {} attends to a sliding window of {} tokens, which experiments on captured "
            "data leave out; give --tokens {} or other --layers",
            model, layer, window, window);
  }
}

std::map<std::string, std::string> attention_metadata(const ModelConfig& config,
                                                      const Rotary& rotary) {
  std::map<std::string, std::string> out = {
      {"scale", fmt::format("{:.9g}", config.attention_scale)},
      {"softcap", fmt::format("{:.9g}", config.attention_softcap)}};
  if (rotary.frequencies.empty()) return out;
  std::string text =
      fmt::format("{} {:.9g}", rotary.pairs ? "adjacent" : "apart", rotary.magnitude);
  for (float frequency : rotary.frequencies) text += fmt::format(" {:.9g}", frequency);
  out["rotary"] = text;
  return out;
}

Json capture_text(LoadedModel& m, const std::string& text, const std::string& source,
                  const std::filesystem::path& out, const CaptureOptions& o) {
  const ModelConfig& config = m.model.config();
  std::vector<Token> tokens = m.tokenizer.encode(text);
  if (o.tokens > 0 && o.tokens < tokens.size()) tokens.resize(o.tokens);
  require(tokens.size() <= config.max_positions, ErrorCode::over_limit,
          "{}: {} tokens, but the model has {} positions; --tokens {} takes the first ones", source,
          tokens.size(), config.max_positions, config.max_positions);
  std::vector<std::size_t> layers = o.layers;
  if (layers.empty()) {
    layers.resize(config.attending().size());
    std::iota(layers.begin(), layers.end(), std::size_t{0});
  }
  const std::string model = m.model.file().path().string();
  check_capturable(config, model, layers, tokens.size());
  KvCapture capture(out, config, layers, o.type);

  CacheOptions cache;
  cache.key_type = cache.value_type = StorageType::f16;
  cache.expected_tokens = tokens.size();
  const bool scored = o.score != "none";
  if (scored) cache.recording.include(Policy::parse("replay:bytes=1/8,score=" + o.score));
  require_memory(m.model.estimate(cache, tokens.size()), available_memory(), "this run");
  Sequence sequence(m.model, cache);
  {
    Progress progress("capture", prefill_share(config, tokens.size()));
    PrefillOptions options;
    options.progress = [&](std::size_t done, std::size_t total) {
      if (!o.quiet) progress.update(static_cast<double>(done) / static_cast<double>(total));
      return true;
    };
    options.on_attention = [&](const AttentionStep& step) { capture.add(step); };
    options.finish_prompt = false;
    m.engine.prefill(sequence, tokens, options);
  }
  if (scored) {
    Progress progress("capture, replay pass");
    m.engine.replay(sequence,
                    {replay_wording(m.tokenizer, false), [&](std::size_t n, std::size_t all) {
                       if (!o.quiet) {
                         progress.update(static_cast<double>(n) / static_cast<double>(all));
                       }
                       return true;
                     }});
    for (std::size_t layer : layers) {
      Matrix scores(config.kv_heads, tokens.size());
      for (std::size_t h = 0; h < config.kv_heads; ++h) {
        std::ranges::copy(scoring_of(sequence.cache()).scores(layer, h), scores[h].begin());
      }
      capture.set_scores(layer, std::move(scores));
    }
  }
  auto metadata = attention_metadata(config, sequence.cache().shape().rotary);
  if (scored) metadata["score"] = o.score;
  metadata["model"] = model;
  metadata["command"] = o.command;
  capture.write(metadata);
  std::string type(to_string(o.type));
  for (char& c : type) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return {{"file", out.string()},
          {"model", model},
          {"command", o.command},
          {"type", type},
          {"score", scored ? Json(o.score) : Json()},
          {"layers", layers},
          {"heads", config.heads},
          {"kv_heads", config.kv_heads},
          {"tokens", tokens.size()},
          {"key_dim", config.key_dim},
          {"value_dim", config.value_dim},
          {"bytes", std::filesystem::file_size(out)}};
}

Json capture_prompts(LoadedModel& m, const std::filesystem::path& data, std::size_t count,
                     const std::filesystem::path& folder, const CaptureOptions& options) {
  std::vector<Sample> samples =
      data.string().ends_with("_lines.jsonl") ? read_lines(data) : read_longbench(data, {});
  join_prompts(samples);
  if (count > 0 && count < samples.size()) samples.resize(count);
  std::filesystem::create_directories(folder);
  Json files = Json::array();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    files.push_back(capture_text(m, samples[i].question,
                                 fmt::format("{}: prompt {}", data.string(), i + 1),
                                 folder / fmt::format("{:04}.safetensors", i + 1), options));
  }
  return files;
}

}  // namespace ballast
