#include "experiments/tasks/sample_run.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <map>

#include "ballast/engine/context_file.h"
#include "ballast/engine/vision.h"
#include "base/base64.h"
#include "base/fail.h"
#include "base/read_file.h"
#include "experiments/data/benchmarks.h"
#include "experiments/tasks/score_plots.h"
#include "report/placed_picture.h"

namespace ballast {
namespace {

constexpr std::string_view kPicturePiece = "\uFFFC";  ///< as PromptRunner shows a token of one

/// A picture's file for a page, or "" where it is larger than one should hold or of no type that
/// browsers know.
std::string data_url(const std::filesystem::path& path) {
  constexpr std::size_t kMost = std::size_t{4} << 20;
  const std::string file = read_file(path);
  const char* type = file.starts_with("\xFF\xD8")  ? "jpeg"
                     : file.starts_with("\x89PNG") ? "png"
                     : file.starts_with("RIFF")    ? "webp"
                                                   : nullptr;
  if (file.size() > kMost || type == nullptr) return "";
  return fmt::format("data:image/{};base64,{}", type,
                     encode_base64(std::as_bytes(std::span(file))));
}

/// The sample's picture where it stands whole in the text; see kept_html().
Json picture_in(const std::vector<std::string>& pieces, const std::string& path,
                const VisionModel& vision) {
  const Picture picture = read_picture(path);
  const PlacedPicture placed = {
      static_cast<std::size_t>(std::ranges::find(pieces, kPicturePiece) - pieces.begin()),
      vision.layout(picture.width, picture.height)};
  const auto held = std::ranges::count(pieces, kPicturePiece);
  if (static_cast<std::size_t>(held) != placed.layout.tokens()) return Json::array();
  Json out = ballast::to_json({&placed, 1});
  out[0]["data"] = data_url(path);
  return out;
}

}  // namespace

void SampleParameters::describe(Parameters& p, const std::string& methods, const Memory& sizes) {
  p.add_model(model);
  variants.describe(p, methods, sizes);
  p.group("Methods");
  p.add("--protocol", protocol,
        "prefill: summarise once, when the prompt has been read; stream: as tokens come",
        {.type = "NAME"});
  p.add("--positions", positions, "absolute or rolling", {.type = "NAME"});
  p.group("");
  p.add("--question-later", ask.question_later,
        "Summarise the context before the question is read");
  p.add("--raw", ask.raw, "Use no chat template");
  p.add("--longest", ask.longest,
        "Leave out the middle of prompts that exceed this with their answers; the model's "
        "positions if not given");
  p.add("--limit", limit, "Ask the first N samples of each group only");
  p.add("--show-kept", show_kept,
        "In JSON: the text of one question and what each method kept of it, for ballast report");
}

Json model_identity(const Model& model) {
  return {{"path", model.file().path().string()},
          {"fingerprint", fmt::format("{:016x}", fingerprint(model))}};
}

std::string fingerprint(std::span<const Token> tokens) {
  const auto* bytes = reinterpret_cast<const Bytef*>(tokens.data());
  return fmt::format("{:08x}", crc32_z(0, bytes, tokens.size_bytes()));
}

SampleRun::SampleRun(const SampleParameters& given, Work& work)
    : given_(given), work_(work), variants_(given_.variants.parse()), model_(given.model) {
  given_.ask.protocol = parse_protocol(given.protocol);
  given_.ask.positions = parse_positions(given.positions);
}

void SampleRun::check_lengths(std::span<const std::size_t> lengths) const {
  if (given_.ask.longest != 0 || given_.ask.positions == Positions::rolling) return;
  const std::size_t positions = model_.model.config().max_positions;
  for (const std::size_t length : lengths) {
    require(length <= positions,
            "--lengths {0}: the model has {1} positions; give at most {1}, or --longest {1} to "
            "leave out the middle of longer prompts",
            length, positions);
  }
}

Json SampleRun::kept_of(std::size_t shown, const Scorer& scorer) const {
  const Sample& sample = samples_[shown];
  const CacheShape shape = model_.model.cache_shape();
  Json out = {{"question", sample.question}, {"expected", sample.expected},
              {"layers", shape.layers},      {"kv_heads", shape.kv_heads},
              {"pieces", Json::array()},     {"methods", Json::array()}};
  for (std::size_t v = 0; v < variants_.size(); ++v) {
    const Answered& answer = answers_[shown][v];
    if (variants_[v].seed != variants_[0].seed) continue;
    if (!answer.pieces.empty()) {
      out["pieces"] = answer.pieces;
      if (!sample.picture.empty()) {
        out["pictures"] = picture_in(answer.pieces, sample.picture, *given_.ask.vision);
      }
    }
    Json& method = out["methods"].emplace_back();
    method["name"] = variants_[v].name();
    if (!answer.failure.empty()) {
      method["failure"] = answer.failure;
      if (!answer.fits) method["fits"] = false;
      continue;
    }
    method.update({{"answer", answer.text},
                   {"score", scorer(sample, answer)},
                   {"entries", answer.entries},
                   {"kept", answer.kept}});
  }
  return out;
}

Result SampleRun::run(const SampleExperiment& experiment, std::vector<Sample> samples,
                      const Scorer& scorer) {
  if (experiment.join && !given_.ask.question_later) join_prompts(samples);
  if (given_.limit > 0) {
    std::map<std::string, std::size_t> seen;
    std::erase_if(samples, [&](const Sample& s) { return ++seen[s.group.dump()] > given_.limit; });
  }
  require(!samples.empty(), "eval {}: no samples", experiment.name);
  samples_ = std::move(samples);
  const std::size_t shown = std::min(experiment.shown, samples_.size() - 1);
  if (given_.show_kept) given_.ask.show = samples_[shown].id;
  Json settings = {{"model", given_.model},
                   {"protocol", given_.protocol},
                   {"positions", given_.positions},
                   {"question_later", given_.ask.question_later},
                   {"longest", given_.ask.longest},
                   {"seeds", given_.variants.seeds},
                   {"first_seed", given_.variants.seed},
                   {"samples", samples_.size()}};
  settings.update(experiment.settings);
  Json identity = {{"experiment", experiment.name},
                   {"model_file", model_identity(model_.model)},
                   {"samples_fingerprint", fingerprint(samples_)},
                   {"raw", given_.ask.raw},
                   {"show", given_.ask.show}};
  identity.update(settings);
  ResultLog& log = work_.log(identity, true);

  Result result;
  result.experiment = experiment.name;
  result.title = experiment.title;
  result.settings = settings;
  given_.ask.vision = experiment.vision;
  PromptRunner runner(model_.engine, model_.tokenizer, given_.ask);
  answers_ =
      ask_all(runner, samples_, variants_, log, work_.part(0, 1), work_.options().ranks.get());
  const bool loss =
      experiment.loss && variants_.size() > 1 && std::ranges::any_of(variants_, is_baseline);
  result.columns = score_columns(experiment.group, given_.variants.memory, experiment.score_title,
                                 experiment.score_unit, loss);
  if (given_.variants.many_types()) {
    const auto method = std::ranges::find(result.columns, "method", &ResultColumn::key);
    result.columns.insert(method + 1, {"cache_type", "storage", Unit::text, ""});
  }
  for (const ResultColumn& column : result.columns) {
    if (column.key == "score") break;
    result.named_by.push_back(column.key);
  }
  result.supporting = {"seconds_per_token", "compress_seconds", "attention_error", "ratio",
                       "samples",           "entries",          "cache_bytes",     "loss"};
  if (!experiment.group.empty()) result.gap_key = experiment.group[0].key;
  result.rows = score_rows(samples_, variants_, answers_, scorer, experiment.overall);
  if (!experiment.score_note.empty()) {
    const std::size_t width = std::max<std::size_t>(experiment.score_title.size(), 7) + 2;
    const auto line = [&](const std::string& name, const std::string& text) {
      return fmt::format("{:{}}{}", name, width, text);
    };
    result.notes = {
        line(experiment.score_title, experiment.score_note),
        line("entries",
             "kept per KV head when the text is summarised; cache: the bytes of all layers then")};
  }
  result.notes.insert(result.notes.end(), experiment.notes.begin(), experiment.notes.end());
  if (given_.show_kept) result.kept = kept_of(shown, scorer);
  for (std::size_t v = 0; v < variants_.size(); ++v) {
    std::size_t failures = 0, unfit = 0;
    std::string why, why_unfit;
    for (const std::vector<Answered>& of_sample : answers_) {
      const Answered& answer = of_sample[v];
      if (answer.failure.empty()) continue;
      ++(answer.fits ? failures : unfit);
      (answer.fits ? why : why_unfit) = answer.failure;
    }
    if (unfit > 0) {
      result.notes.push_back(
          fmt::format("–         {} does not fit in {} of {} samples, which count as wrong where "
                      "others of the row fit: {}",
                      variants_[v].name(), unfit, answers_.size(), why_unfit));
    }
    if (failures == 0) continue;
    result.notes.push_back(fmt::format("{}: no value for {} of {} samples, counted as wrong: {}",
                                       variants_[v].name(), failures, answers_.size(), why));
  }
  const auto cut = static_cast<std::size_t>(std::ranges::count_if(
      answers_, [](const std::vector<Answered>& a) { return !a.empty() && a[0].cut; }));
  if (cut > 0) {
    result.notes.push_back(fmt::format(
        "{} of {} prompts were longer than fits; their middle was left out", cut, samples_.size()));
  }
  result.plots =
      score_plots(result.title, result.rows, experiment.group, "score", experiment.score_title);
  return result;
}

}  // namespace ballast
