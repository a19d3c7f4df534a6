#include "report/gauge_json.h"

namespace ballast {

Json to_json(const GaugeReading& reading, const Policy& policy) {
  return {{"kl", reading.kl},
          {"tokens", reading.tokens},
          {"seconds", reading.seconds},
          {"text", to_text(reading, policy)}};
}

Json to_json(const Guarded& guarded) {
  Json out = Json::array();
  for (const GuardTry& one : guarded.tried) {
    out.push_back({{"bytes", one.bytes}, {"kl", one.gauge.kl}});
  }
  return out;
}

}  // namespace ballast
