#include "experiments/speed/speed_report.h"

#include <fmt/format.h>

#include "report/table.h"
#include "report/terminal.h"
#include "report/units.h"

namespace ballast {
namespace {

std::string bytes_text(std::size_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string times(double ratio) { return fmt::format("{:.2f}×", ratio); }

/// Separates groups of rows of the same method or the same prompt.
template <typename Row, typename Key>
void gap(Table& table, std::span<const Row> rows, std::size_t i, Key Row::*key) {
  if (i > 0 && rows[i].*key != rows[i - 1].*key) table.add_gap();
}

double prompt_ratio(const SpeedRow& row, const PeerRow& peer) {
  return peer.prompt_seconds / row.prompt_seconds;
}

/// Tokens a second of a whole batch.
double decode_ratio(const SpeedRow& row, const PeerRow& peer) {
  return row.decode_rate() * peer.token_seconds();
}

/// The first method's row of the same memory and prompt, which ratios compare with.
const ThroughputRow& first_method(std::span<const ThroughputRow> rows, std::size_t i) {
  while (i > 0 && rows[i - 1].prompt == rows[i].prompt && rows[i - 1].memory == rows[i].memory) --i;
  return rows[i];
}

/// Null where one of them does not fit.
Json rate_ratio(double rate, double first) {
  return rate > 0 && first > 0 ? Json(rate / first) : Json();
}

std::string times(const Json& ratio) { return ratio.is_null() ? "" : times(ratio.get<double>()); }

void add_peer(Table& table, const Peer& peer) {
  table.add_gap();
  for (const PeerRow& row : peer.rows) {
    table.add({peer.name, format_count(row.prompt), format_seconds(row.prompt_seconds),
               format_number(static_cast<double>(row.prompt) / row.prompt_seconds), "", "",
               format_seconds(row.token_seconds()), format_number(1 / row.token_seconds()), "", "",
               "", "", ""});
  }
}

}  // namespace

std::string to_text(const Machine& m) {
  std::string others;
  if (m.bf16_flops > 0) others += fmt::format(", {:.0f} in bfloat16", m.bf16_flops * 1e-9);
  if (m.int16_flops > 0) others += fmt::format(", {:.0f} in 16-bit integers", m.int16_flops * 1e-9);
  if (m.int8_tile_flops > 0)
    others += fmt::format(", {:.0f} in int8 by tiles", m.int8_tile_flops * 1e-9);
  if (m.bf16_tile_flops > 0)
    others += fmt::format(", {:.0f} in bfloat16 by tiles", m.bf16_tile_flops * 1e-9);
  if (!m.bf16_tiles_refused.empty()) {
    others += "\nbfloat16 tiles are not used, their sums are not those of vectors: " +
              m.bf16_tiles_refused;
  }
  return fmt::format("{} thread{}: {:.1f} GB/s read, {:.0f} GFLOP/s in float32{}", m.threads,
                     m.threads == 1 ? "" : "s", m.read_bandwidth * 1e-9, m.f32_flops * 1e-9,
                     others);
}

Json to_json(const Machine& m) {
  return {
      {"threads", m.threads},
      {"read_bytes_per_second", m.read_bandwidth},
      {"f32_flops", m.f32_flops},
      {"bf16_flops", m.bf16_flops > 0 ? Json(m.bf16_flops) : Json()},
      {"int16_flops", m.int16_flops > 0 ? Json(m.int16_flops) : Json()},
      {"int8_tile_flops", m.int8_tile_flops > 0 ? Json(m.int8_tile_flops) : Json()},
      {"bf16_tile_flops", m.bf16_tile_flops > 0 ? Json(m.bf16_tile_flops) : Json()},
      {"bf16_tiles_refused", m.bf16_tiles_refused.empty() ? Json() : Json(m.bf16_tiles_refused)}};
}

Table speed_table(std::span<const SpeedRow> rows, const Peer* peer) {
  std::vector<Table::Column> columns = {
      {"method", Align::left, true},    {"prompt", Align::right, true},
      {"first token", Align::right},    {"prompt tokens/s", Align::right},
      {"prompt / floor", Align::right}, {"summarise", Align::right},
      {"a token", Align::right},        {"decode tokens/s", Align::right},
      {"decode / floor", Align::right}, {"cache", Align::right},
      {"peak memory", Align::right}};
  if (peer != nullptr) {
    columns.push_back({"prompt speed", Align::right});
    columns.push_back({"decode speed", Align::right});
  }
  Table table(std::move(columns));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const SpeedRow& r = rows[i];
    gap(table, rows, i, &SpeedRow::method);
    std::vector<std::string> cells = {r.method,
                                      format_count(r.prompt),
                                      format_seconds(r.prompt_seconds),
                                      format_number(r.prompt_rate()),
                                      times(r.prompt_seconds / r.prompt_floor),
                                      format_seconds(r.compress_seconds),
                                      format_seconds(r.token_seconds()),
                                      format_number(r.decode_rate()),
                                      times(r.decode_seconds / r.decode_floor),
                                      bytes_text(r.cache_bytes),
                                      bytes_text(r.peak_memory)};
    if (peer != nullptr) {
      const PeerRow* other = peer->find(r.prompt);
      cells.push_back(other == nullptr ? "" : times(prompt_ratio(r, *other)));
      cells.push_back(other == nullptr ? "" : times(decode_ratio(r, *other)));
    }
    table.add(std::move(cells));
  }
  if (peer != nullptr) add_peer(table, *peer);
  return table;
}

Json to_json(std::span<const SpeedRow> rows, const Peer* peer) {
  Json out = Json::array();
  for (const SpeedRow& r : rows) {
    Json json = {{"method", r.method},
                 {"prompt", r.prompt},
                 {"generated", r.generated},
                 {"batch", r.batch},
                 {"prompt_seconds", r.prompt_seconds},
                 {"prompt_tokens_per_second", r.prompt_rate()},
                 {"prompt_floor_seconds", r.prompt_floor},
                 {"prompt_over_floor", r.prompt_seconds / r.prompt_floor},
                 {"compress_seconds", r.compress_seconds},
                 {"decode_seconds", r.decode_seconds},
                 {"decode_seconds_per_token", r.token_seconds()},
                 {"decode_tokens_per_second", r.decode_rate()},
                 {"decode_floor_seconds", r.decode_floor},
                 {"decode_over_floor", r.decode_seconds / r.decode_floor},
                 {"entries", r.entries},
                 {"cache_bytes", r.cache_bytes},
                 {"exact_cache_bytes", r.exact_bytes},
                 {"peak_memory", r.peak_memory}};
    if (peer != nullptr) {
      const PeerRow* other = peer->find(r.prompt);
      json["prompt_speed_over_peer"] = other ? Json(prompt_ratio(r, *other)) : Json();
      json["decode_speed_over_peer"] = other ? Json(decode_ratio(r, *other)) : Json();
    }
    out.push_back(std::move(json));
  }
  return out;
}

Json to_json(const Peer& peer) {
  Json rows = Json::array();
  for (const PeerRow& r : peer.rows) {
    rows.push_back({{"prompt", r.prompt},
                    {"generated", r.generated},
                    {"prompt_seconds", r.prompt_seconds},
                    {"decode_seconds", r.decode_seconds}});
  }
  return {{"name", peer.name}, {"results", std::move(rows)}};
}

Json with_peer(Json rows, const Peer& peer) {
  for (const PeerRow& r : peer.rows) {
    rows.push_back({{"method", peer.name},
                    {"prompt", r.prompt},
                    {"generated", r.generated},
                    {"prompt_seconds", r.prompt_seconds},
                    {"prompt_tokens_per_second", static_cast<double>(r.prompt) / r.prompt_seconds},
                    {"decode_seconds", r.decode_seconds},
                    {"decode_seconds_per_token", r.token_seconds()},
                    {"decode_tokens_per_second", 1 / r.token_seconds()}});
  }
  return rows;
}

Table throughput_table(std::span<const ThroughputRow> rows) {
  Table table({{"memory", Align::right, true},
               {"prompt", Align::right, true},
               {"method", Align::left, true},
               {"cache", Align::right},
               {"batch", Align::right},
               {"prompts", Align::right},
               {"decode", Align::right},
               {"decode tokens/s", Align::right},
               {"decode ratio", Align::right},
               {"tokens/s", Align::right},
               {"ratio", Align::right}});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ThroughputRow& r = rows[i];
    const ThroughputRow& first = first_method(rows, i);
    if (i > 0 && &first == &r) table.add_gap();
    const std::string memory = bytes_text(r.memory);
    if (r.batch == 0) {
      table.add({memory, format_count(r.prompt), r.method, bytes_text(r.sequence_bytes),
                 "does not fit", "", "", "", "", "", ""});
      continue;
    }
    table.add({memory, format_count(r.prompt), r.method, bytes_text(r.sequence_bytes),
               format_count(r.batch) + (r.capped ? " (limit)" : ""),
               (r.extrapolated() ? "~" : "") + format_seconds(r.prompt_seconds),
               format_seconds(r.decode_seconds), format_number(r.decode_rate()),
               times(rate_ratio(r.decode_rate(), first.decode_rate())), format_number(r.rate()),
               times(rate_ratio(r.rate(), first.rate()))});
  }
  return table;
}

Json to_json(std::span<const ThroughputRow> rows) {
  Json out = Json::array();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ThroughputRow& r = rows[i];
    const ThroughputRow& first = first_method(rows, i);
    out.push_back({{"memory", r.memory},
                   {"method", r.method},
                   {"prompt", r.prompt},
                   {"generated", r.generated},
                   {"batch", r.batch},
                   {"entries", r.entries},
                   {"sequence_bytes", r.sequence_bytes},
                   {"reading_bytes", r.reading_bytes},
                   {"prompt_seconds", r.prompt_seconds},
                   {"prompts_read", r.prompts_read},
                   {"extrapolated", r.extrapolated()},
                   {"capped", r.capped},
                   {"decode_seconds", r.decode_seconds},
                   {"decode_tokens_per_second", r.decode_rate()},
                   {"decode_ratio", rate_ratio(r.decode_rate(), first.decode_rate())},
                   {"tokens_per_second", r.rate()},
                   {"ratio", rate_ratio(r.rate(), first.rate())}});
  }
  return out;
}

Table scale_table(std::span<const ScaleRow> rows) {
  Table table({{"method", Align::left, true},
               {"tokens", Align::right, true},
               {"prompt tokens/s", Align::right},
               {"a token", Align::right},
               {"entries", Align::right},
               {"cache", Align::right},
               {"peak memory", Align::right}});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ScaleRow& r = rows[i];
    gap(table, rows, i, &ScaleRow::method);
    table.add({r.method, format_count(r.tokens), format_number(r.prompt_rate),
               format_seconds(r.token_seconds), format_count(r.entries), bytes_text(r.cache_bytes),
               bytes_text(r.peak_memory)});
  }
  return table;
}

Json to_json(std::span<const ScaleRow> rows) {
  Json out = Json::array();
  for (const ScaleRow& r : rows) {
    out.push_back({{"method", r.method},
                   {"tokens", r.tokens},
                   {"prompt_tokens_per_second", r.prompt_rate},
                   {"decode_seconds_per_token", r.token_seconds},
                   {"entries", r.entries},
                   {"cache_bytes", r.cache_bytes},
                   {"peak_memory", r.peak_memory}});
  }
  return out;
}

Plot scale_plot(std::span<const ScaleRow> rows, bool memory) {
  Plot plot;
  plot.title = memory ? "Cache against length, stream protocol"
                      : "Time of a token against length, stream protocol";
  plot.x_title = "tokens read";
  plot.y_title = memory ? "cache, MiB" : "milliseconds a token";
  plot.log_x = plot.log_y = true;
  for (const ScaleRow& r : rows) {
    if (plot.lines.empty() || plot.lines.back().name != r.method) {
      plot.lines.push_back({r.method, {}});
    }
    const double y =
        memory ? static_cast<double>(r.cache_bytes) / (1 << 20) : 1e3 * r.token_seconds;
    plot.lines.back().points.push_back({static_cast<double>(r.tokens), y, 0});
  }
  return plot;
}

}  // namespace ballast
