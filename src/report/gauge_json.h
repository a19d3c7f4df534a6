// What a cache costs, as JSON.
#pragma once

#include "ballast/engine/guard.h"
#include "report/json.h"

namespace ballast {

/// {"kl", "tokens", "seconds", "text": see to_text()}.
Json to_json(const GaugeReading& reading, const Policy& policy);
/// A list of {"bytes", "kl"} of what was tried, the smallest first.
Json to_json(const Guarded& guarded);

}  // namespace ballast
