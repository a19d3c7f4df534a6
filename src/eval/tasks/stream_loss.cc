#include "eval/tasks/stream_loss.h"

#include <algorithm>

#include "ballast/engine/sampler.h"
#include "base/fail.h"
#include "base/stopwatch.h"
#include "cache/byte_budget.h"
#include "eval/single_layer/mean_entries.h"

namespace ballast {

StreamLoss measure_stream_loss(Engine& engine, const CacheOptions& options,
                               std::span<const Token> tokens, std::size_t part,
                               const Advance& advance) {
  require(tokens.size() >= 2, "a stream of {} tokens; at least 2 are needed", tokens.size());
  require(part > 0, "a part needs at least 1 token");
  require(options.protocol == Protocol::stream, "stream loss needs --protocol stream");
  const Stopwatch watch;
  Sequence sequence(engine.model(), options);
  require_bytes(sequence.cache());
  StreamLoss out;
  double sum = 0, part_sum = 0;
  std::size_t in_part = 0;
  const auto end_part = [&] {
    out.nats.push_back(part_sum / static_cast<double>(in_part));
    out.most_bytes = std::max(out.most_bytes, sequence.cache().bytes().total());
    part_sum = 0;
    in_part = 0;
  };
  // Logits do not depend on chunk boundaries, so the stream is read in chunks.
  constexpr std::size_t kChunk = 256;
  const std::size_t last = tokens.size() - 1;  // predicted, not read
  for (std::size_t done = 0; done < last;) {
    const std::size_t count = std::min({kChunk, last - done, part - in_part});
    if (sequence.positions_after(count) > engine.model().config().max_positions) {
      out.whole = false;
      break;
    }
    PrefillOptions reading;
    reading.finish_prompt = false;
    reading.all_logits = [&](std::size_t first, ConstMatrix logits) {
      for (std::size_t i = 0; i < logits.rows; ++i) {
        const double nats = token_loss(logits[i], tokens[done + first + i + 1]);
        sum += nats;
        part_sum += nats;
      }
    };
    engine.prefill(sequence, tokens.subspan(done, count), reading);
    done += count;
    in_part += count;
    out.tokens = done;
    if (in_part == part) end_part();
    if (advance) advance(static_cast<double>(done) / static_cast<double>(last));
  }
  require(out.tokens > 0, "the model has no position for a first token");
  if (in_part > 0) end_part();
  out.mean = sum / static_cast<double>(out.tokens);
  out.entries = mean_entries(sequence.cache());
  out.seconds = watch.seconds();
  return out;
}

}  // namespace ballast
