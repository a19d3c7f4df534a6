// Tables and JSON of speed measurements.
#pragma once

#include <span>
#include <string>

#include "experiments/speed/peer.h"
#include "experiments/speed/scale.h"
#include "experiments/speed/speed.h"
#include "experiments/speed/throughput.h"
#include "pages/plot.h"
#include "report/json.h"
#include "report/table.h"

namespace ballast {

std::string to_text(const Machine& machine);
Json to_json(const Machine& machine);

/// `peer`: times to compare with at the same length, or null.
Table speed_table(std::span<const SpeedRow> rows, const Peer* peer);
Json to_json(std::span<const SpeedRow> rows, const Peer* peer);
Json to_json(const Peer& peer);
/// The JSON of speed measurements with the peer's rows behind, its name being the method.
Json with_peer(Json rows, const Peer& peer);

Table throughput_table(std::span<const ThroughputRow> rows);
Json to_json(std::span<const ThroughputRow> rows);

Table scale_table(std::span<const ScaleRow> rows);
Json to_json(std::span<const ScaleRow> rows);
/// Plots decode time a token, or the cache's size if `memory`, over the length.
Plot scale_plot(std::span<const ScaleRow> rows, bool memory);

}  // namespace ballast
