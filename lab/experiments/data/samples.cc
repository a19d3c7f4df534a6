#include "experiments/data/samples.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "ballast/engine/ranks.h"
#include "base/fail.h"
#include "base/running_mean.h"
#include "experiments/data/packed_variant.h"
#include "experiments/metrics/interval.h"
#include "formats/json_text.h"
#include "methods/entry_budget.h"

namespace ballast {
namespace {

/// The data of one row: one group and one variant.
struct Cell {
  RunningMean score, entries, bytes, exact, error, read, compress, per_token;
  RunningMean chance;                         ///< of a choice
  RunningMean loss;                           ///< against the exact cache, a sample each
  std::size_t only_exact = 0, only_this = 0;  ///< samples that one of the two gets right
  std::size_t failures = 0, fitting = 0;
  Json scores = Json::array();   ///< of each sample, seeds averaged
  Json answers = Json::array();  ///< of each sample with the first seed
  bool shares = true;            ///< every answer scores 0 or 1
  bool whole_loss = true;        ///< every sample's score, and the exact cache's, is 0 or 1

  void add_loss(double exact_score, double this_score) {
    const auto whole = [](double x) { return x == 0 || x == 1; };
    loss.add(exact_score - this_score);
    only_exact += exact_score == 1 && this_score == 0;
    only_this += exact_score == 0 && this_score == 1;
    whole_loss &= whole(exact_score) && whole(this_score);
  }
  void write_loss(Json& row, double mean, double standard_error) const {
    constexpr double kNormal = 1.959963984540054;
    row["loss"] = mean;
    const Interval interval =
        whole_loss ? tango(only_exact, only_this, loss.count)
                   : Interval{mean - kNormal * standard_error, mean + kNormal * standard_error};
    row["loss_low"] = interval.low;
    row["loss_high"] = interval.high;
  }
  /// The mean score of `count` questions, its standard error and Wilson's interval.
  void write_score(Json& row, double mean, double standard_error, std::size_t count) const {
    row["samples"] = count;
    row["score"] = mean;
    row["score_error"] = standard_error;
    if (!shares) return;
    const Interval interval = wilson(mean, count);
    row["score_low"] = interval.low;
    row["score_high"] = interval.high;
  }
  void add(const Answered& a) {
    if (!a.fits) {
      ++failures;
      return;
    }
    ++fitting;
    entries.add(static_cast<double>(a.entries));
    bytes.add(static_cast<double>(a.bytes));
    exact.add(static_cast<double>(a.exact_bytes));
    if (std::isfinite(a.attention_error)) error.add(a.attention_error);
    failures += !a.failure.empty();
    read.add(a.read_seconds);
    compress.add(a.compress_seconds);
    if (a.made > 0) per_token.add(a.answer_seconds / static_cast<double>(a.made));
  }
  void write(Json& row) const {
    row["entries"] = entries.mean();
    row["cache_bytes"] = bytes.mean();
    row["exact_bytes"] = exact.mean();
    row["ratio"] = bytes.mean() > 0 ? exact.mean() / bytes.mean() : 1.0;
    row["attention_error"] = error.count > 0 ? Json(error.mean()) : Json();
    if (failures > 0) row["failures"] = failures;
    row["read_seconds"] = read.mean();
    row["compress_seconds"] = compress.mean();
    row["seconds_per_token"] = per_token.mean();
  }
  /// In place of all of the above where no sample fits.
  static void write_unfit(Json& row, std::size_t count) {
    row["samples"] = count;
    row["fits"] = false;
    for (const char* key :
         {"score", "score_error", "entries", "cache_bytes", "exact_bytes", "ratio",
          "attention_error", "read_seconds", "compress_seconds", "seconds_per_token"}) {
      row[key] = nullptr;
    }
  }
};

/// Variants that differ only in their seed share a row: the index of the first of them.
std::vector<std::size_t> first_of_seeds(const std::vector<Variant>& variants) {
  std::vector<std::size_t> first(variants.size());
  for (std::size_t v = 0; v < variants.size(); ++v) {
    first[v] = v;
    for (std::size_t u = 0; u < v; ++u) {
      const Variant &a = variants[u], &b = variants[v];
      if (a.method == b.method && a.rate == b.rate && a.budget == b.budget && a.cache == b.cache &&
          a.key_type == b.key_type && a.value_type == b.value_type) {
        first[v] = u;
        break;
      }
    }
  }
  return first;
}

void describe(const Variant& variant, Json& row) {
  row["method"] = variant.method;
  if (variant.rate > 0) row["rate"] = variant.rate;
  if (variant.budget > 0) row["budget"] = variant.budget;
  if (variant.share > 0) {
    row["share"] = variant.share;
  } else if (!variant.cache.empty()) {
    row["cache"] = variant.cache;
  }
  if (variant.storage_only()) row["storage_only"] = true;
  if (variant.key_type == variant.value_type) {
    row["cache_type"] = std::string(to_string(variant.key_type));
  } else {
    row["cache_type"] =
        fmt::format("{}/{}", to_string(variant.key_type), to_string(variant.value_type));
  }
}

}  // namespace

std::string Variant::name() const {
  if (exact()) return method;
  if (rate > 0) return fmt::format("{} {:g}", method, rate);
  if (budget > 0) return fmt::format("{} {}", method, budget);
  if (share > 0) return fmt::format("{} {} of bytes", method, cache);
  if (!cache.empty()) return fmt::format("{} {}", method, cache);
  return method;
}

bool Variant::is_of_row(const Json& row) const {
  Json mine = Json::object();
  describe(*this, mine);
  return std::ranges::all_of(std::array{"method", "rate", "budget", "share", "cache", "cache_type"},
                             [&](const char* key) {
                               return row.contains(key) == mine.contains(key) &&
                                      (!mine.contains(key) || row[key] == mine[key]);
                             });
}

std::vector<Variant> make_variants(const std::vector<std::string>& methods, const Memory& memory,
                                   std::size_t seeds, std::uint64_t first_seed,
                                   StorageType key_type, StorageType value_type) {
  require(!methods.empty(), "--methods: no method given");
  require(seeds > 0, "--seeds must be at least 1");
  const int lists = !memory.rates.empty() + !memory.budgets.empty() + !memory.caches.empty();
  require(lists <= 1, "--cache, --rates and --budgets exclude each other; give one of them");
  for (double x : memory.rates) {
    require(x > 0 && x <= 1, "--rates {}: a rate must be above 0 and at most 1", x);
  }
  for (std::size_t x : memory.budgets) require(x > 0, "--budgets must be at least 1");
  std::vector<Variant> out;
  const auto add = [&](const Variant& base) {
    for (std::size_t s = 0; s < (base.exact() ? 1 : seeds); ++s) {
      Variant variant = base;
      variant.seed = first_seed + s;
      out.push_back(std::move(variant));
    }
  };
  for (const std::string& method : methods) {
    Variant variant;
    variant.method = method;
    variant.policy = policy_of(method);
    variant.pack = packed_form(method);
    variant.key_type = key_type;
    variant.value_type = value_type;
    set_types(variant.policy, variant.key_type, variant.value_type);
    const bool own = variant.policy.has_memory();
    if (variant.exact() || own || lists == 0) {
      require(variant.exact() || !own || lists == 0,
              "method {}: remove its rate, budget or bytes; --cache, --rates or --budgets set it",
              method);
      require(variant.exact() || own,
              "method {} needs a size: give --cache, --rates or --budgets, or write {}:bytes=1/8",
              method, variant.policy.info().name);
      add(variant);
      continue;
    }
    require(!variant.policy.info().global_budget || !memory.caches.empty(),
            "method {} has one budget for the whole cache: give --cache, or write {}:bytes=1/8",
            method, variant.policy.info().name);
    for (double rate : memory.rates) {
      variant.rate = rate;
      variant.policy = Policy::parse(method).with("rate", fmt::format("{}", rate));
      add(variant);
    }
    for (std::size_t budget : memory.budgets) {
      variant.budget = budget;
      variant.policy = Policy::parse(method).with("budget", fmt::format("{}", budget));
      add(variant);
    }
    for (const std::string& size : memory.caches) {
      const MemorySize parsed = MemorySize::parse(size);
      variant.cache = size;
      variant.share = parsed.unit == MemorySize::Unit::share ? parsed.amount : 0;
      variant.policy = Policy::parse(method).with("bytes", size);
      add(variant);
    }
  }
  return out;
}

namespace {

/// Adds the members of the object that each of the others gives.
void share_members(Ranks& ranks, Json& object) {
  std::string text = object.dump();
  const std::uint64_t length = text.size();
  std::vector<std::uint64_t> lengths(ranks.size());
  ranks.gather(std::as_bytes(std::span(&length, 1)), std::as_writable_bytes(std::span(lengths)));
  const std::size_t most = std::ranges::max(lengths);
  text.resize(most);
  std::string all(most * ranks.size(), ' ');
  ranks.gather(std::as_bytes(std::span(text)), std::as_writable_bytes(std::span(all)));
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (r != ranks.rank()) object.update(parse_own_json({all.data() + r * most, lengths[r]}));
  }
}

}  // namespace

std::vector<std::vector<Answered>> ask_all(PromptRunner& runner, const std::vector<Sample>& samples,
                                           const std::vector<Variant>& variants, ResultLog& log,
                                           const Advance& advance, Ranks* ranks) {
  const auto key_of = [&](const Sample& sample, const Variant& v) {
    return fmt::format("{}/{}/{}/{}", sample.id, v.name(), v.seed,
                       fmt::format("{}-{}", to_string(v.key_type), to_string(v.value_type)));
  };
  std::set<std::string> ids;
  std::vector<std::vector<Answered>> out(samples.size());
  std::vector<double> cost_before = {0};  // of the samples before each
  for (const Sample& sample : samples)
    cost_before.push_back(cost_before.back() + runner.cost(sample));
  Json known = Json::object();  // with ranks: what any of them has found
  const auto find = [&](const std::string& key) -> const Json* {
    const auto at = known.find(key);
    return at != known.end() ? &*at : log.find(key);
  };
  // Variants of which there is no answer.
  const auto missing_of = [&](std::size_t i) {
    std::vector<std::size_t> places;
    for (std::size_t v = 0; v < variants.size(); ++v) {
      if (find(key_of(samples[i], variants[v])) == nullptr) places.push_back(v);
    }
    return places;
  };
  if (ranks != nullptr) {
    for (const Sample& sample : samples) {
      for (const Variant& v : variants) {
        if (const Json* found = log.find(key_of(sample, v))) known[key_of(sample, v)] = *found;
      }
    }
    share_members(*ranks, known);
  }
  Json made_here = Json::object();
  std::size_t turn = 0;  // texts of which answers are missing
  for (const Sample& sample : samples) {
    require(ids.insert(sample.id).second, "two samples have the id {}", sample.id);
  }
  for (std::size_t i = 0, end = 0; i < samples.size(); i = end) {
    const std::vector<std::size_t> places = missing_of(i);
    // Those that follow and are asked of the same text.
    for (end = i + 1; end < samples.size() && runner.share_context(samples[i], samples[end]) &&
                      missing_of(end) == places;) {
      ++end;
    }
    std::vector<Variant> missing;
    for (std::size_t v : places) missing.push_back(variants[v]);
    std::vector<std::vector<Answered>> made(end - i);
    if (!missing.empty() && ranks != nullptr && turn++ % ranks->size() != ranks->rank()) continue;
    if (!missing.empty()) {
      made = runner.ask(
          std::span(samples).subspan(i, end - i), missing,
          [&](double done) {
            if (advance) {
              // The first answer includes the reading, which takes about as long as all answers.
              const double share = (1 + done) / 2;
              const double here = cost_before[i] + share * (cost_before[end] - cost_before[i]);
              advance(here / cost_before.back());
            }
          },
          [&](std::size_t m, const std::vector<std::vector<Answered>>& answers) {
            for (std::size_t s = i; s < end; ++s) {
              const std::string key = key_of(samples[s], missing[m]);
              const Json answer = answers[s - i][m].to_json();
              log.add(key, answer);
              if (ranks != nullptr) made_here[key] = answer;
            }
          });
    }
    for (std::size_t s = i; s < end; ++s) {
      out[s].resize(variants.size());
      for (std::size_t v = 0, m = 0; v < variants.size(); ++v) {
        const std::string key = key_of(samples[s], variants[v]);
        if (m == places.size() || places[m] != v) {
          out[s][v] = Answered::from_json(*find(key));
          continue;
        }
        out[s][v] = made[s - i][m++];
      }
    }
  }
  if (ranks == nullptr) return out;
  share_members(*ranks, made_here);
  for (std::size_t s = 0; s < samples.size(); ++s) {
    out[s].resize(variants.size());
    for (std::size_t v = 0; v < variants.size(); ++v) {
      const std::string key = key_of(samples[s], variants[v]);
      const auto at = made_here.find(key);
      out[s][v] = Answered::from_json(at != made_here.end() ? *at : *find(key));
    }
  }
  return out;
}

bool is_baseline(const Variant& variant) { return variant.exact() && !variant.storage_only(); }

std::vector<Json> score_rows(const std::vector<Sample>& samples,
                             const std::vector<Variant>& variants,
                             const std::vector<std::vector<Answered>>& answers,
                             const Scorer& scorer, bool overall) {
  const std::vector<std::size_t> first = first_of_seeds(variants);
  std::vector<Json> groups;
  std::vector<std::size_t> group_of;
  for (const Sample& sample : samples) {
    const auto at = std::ranges::find(groups, sample.group);
    group_of.push_back(static_cast<std::size_t>(at - groups.begin()));
    if (at == groups.end()) groups.push_back(sample.group);
  }
  std::vector<std::vector<Cell>> cells(groups.size(), std::vector<Cell>(variants.size()));
  std::vector<Cell> all(variants.size());
  const auto exact =
      static_cast<std::size_t>(std::ranges::find_if(variants, is_baseline) - variants.begin());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    std::vector<RunningMean> over_seeds(variants.size());
    for (std::size_t v = 0; v < variants.size(); ++v) {
      const Answered& answer = answers[i][v];
      const double score = answer.failure.empty() ? scorer(samples[i], answer) : 0.0;
      over_seeds[first[v]].add(score);
      for (Cell* cell : {&cells[group_of[i]][first[v]], &all[first[v]]}) {
        cell->shares &= score == 0 || score == 1;
        cell->add(answer);
      }
    }
    for (std::size_t v = 0; v < variants.size(); ++v) {
      if (first[v] != v) continue;
      Cell& mine = cells[group_of[i]][v];
      mine.score.add(over_seeds[v].mean());
      mine.scores.push_back(over_seeds[v].mean());
      mine.answers.push_back(answers[i][v].text);
      if (const std::size_t choices = samples[i].choices.size(); choices > 0) {
        mine.chance.add(1 / static_cast<double>(choices));
      }
      if (v == exact || exact == variants.size()) continue;
      for (Cell* cell : {&cells[group_of[i]][v], &all[v]}) {
        cell->add_loss(over_seeds[exact].mean(), over_seeds[v].mean());
      }
    }
  }
  std::vector<Json> rows;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t v = 0; v < variants.size(); ++v) {
      if (first[v] != v) continue;
      const Cell& cell = cells[g][v];
      Json row = groups[g];
      describe(variants[v], row);
      if (cell.fitting == 0) {
        Cell::write_unfit(row, cell.score.count);
      } else {
        cell.write_score(row, cell.score.mean(), cell.score.error(), cell.score.count);
        row["scores"] = cell.scores;
        row["answers"] = cell.answers;
        if (cell.chance.count > 0) row["chance"] = cell.chance.mean();
        cell.write(row);
        if (cell.loss.count > 0) cell.write_loss(row, cell.loss.mean(), cell.loss.error());
      }
      rows.push_back(std::move(row));
    }
  }
  if (!overall || groups.size() < 2) return rows;
  for (std::size_t v = 0; v < variants.size(); ++v) {
    if (first[v] != v) continue;
    RunningMean score, loss;
    double variance = 0, loss_variance = 0;
    const auto count = static_cast<double>(groups.size());
    for (std::size_t g = 0; g < groups.size(); ++g) {
      score.add(cells[g][v].score.mean());
      variance += std::pow(cells[g][v].score.error() / count, 2);
      loss.add(cells[g][v].loss.mean());
      loss_variance += std::pow(cells[g][v].loss.error() / count, 2);
    }
    Json row = groups[0];
    for (auto& [key, value] : row.items()) value = "all";
    describe(variants[v], row);
    if (std::ranges::any_of(cells, [&](const auto& c) { return c[v].fitting == 0; })) {
      Cell::write_unfit(row, samples.size());
      rows.push_back(std::move(row));
      continue;
    }
    // Groups of other sizes weigh other than their questions do.
    const bool equal = std::ranges::all_of(
        cells, [&](const auto& c) { return c[v].score.count == cells[0][v].score.count; });
    all[v].shares &= equal;
    all[v].whole_loss &= equal;
    all[v].write_score(row, score.mean(), std::sqrt(variance), samples.size());
    all[v].write(row);
    if (all[v].loss.count > 0) all[v].write_loss(row, loss.mean(), std::sqrt(loss_variance));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<ResultColumn> score_columns(const std::vector<ResultColumn>& group,
                                        const Memory& memory, std::string_view score_title,
                                        Unit score_unit, bool loss) {
  std::vector<ResultColumn> out = group;
  out.push_back({"method", "method", Unit::text, ""});
  if (!memory.rates.empty()) out.push_back({"rate", "rate", Unit::number, ""});
  if (!memory.budgets.empty()) out.push_back({"budget", "budget", Unit::count, ""});
  const auto is_share = [](const std::string& size) {
    return MemorySize::parse(size).unit == MemorySize::Unit::share;
  };
  if (std::ranges::any_of(memory.caches, is_share)) {
    out.push_back({"share", "of bytes", Unit::percent, ""});
  }
  if (!std::ranges::all_of(memory.caches, is_share)) {
    out.push_back({"cache", "size", Unit::text, ""});
  }
  out.push_back({"score", std::string(score_title), score_unit, "score_error"});
  out.push_back({"samples", "samples", Unit::count, "", true});
  out.push_back({"entries", "entries", Unit::count, "", true});
  out.push_back({"cache_bytes", "cache", Unit::bytes, ""});
  out.push_back({"ratio", "ratio", Unit::ratio, "", true});
  out.push_back({"attention_error", "attention error", Unit::number, "", true});
  out.push_back({"compress_seconds", "compress", Unit::seconds, "", true});
  out.push_back({"seconds_per_token", "token", Unit::seconds, "", true});
  if (loss) out.push_back({"loss", "loss", score_unit, ""});
  return out;
}

std::string fingerprint(const std::vector<Sample>& samples) {
  uLong crc = crc32_z(0, nullptr, 0);
  const auto add = [&](std::string_view text) {
    const std::uint64_t size = text.size();
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(&size), sizeof size);
    if (size > 0) crc = crc32_z(crc, reinterpret_cast<const Bytef*>(text.data()), size);
  };
  for (const Sample& sample : samples) {
    for (const std::string& text :
         {sample.id, sample.context, sample.question, sample.answer_start}) {
      add(text);
    }
    for (const std::string& text : sample.choices) add(text);
    for (const std::string& text : sample.stop) add(text);
    add(fmt::format("{} {} {}", sample.max_tokens, sample.raw, sample.whole_length));
  }
  return fmt::format("{:08x}", static_cast<std::uint32_t>(crc));
}

}  // namespace ballast
