#include "bindings/options.h"

#include "ballast/engine/guard.h"
#include "ballast/engine/session.h"
#include "base/fail.h"

namespace ballast {

namespace {

constexpr std::string_view kAuto = "auto";

}  // namespace

Policy parse_policy(std::string_view method, std::string_view bytes, const Model* model) {
  if (bytes == kAuto) return {};
  if (method.empty() && !bytes.empty() && model != nullptr) return model->policy_for(bytes);
  Policy policy = Policy::parse(!method.empty() ? method : bytes.empty() ? "exact" : "replay");
  if (bytes.empty()) return policy;
  require(!policy.has_memory(), "bytes {} and method {} both say how much to keep", bytes, method);
  return policy.with("bytes", bytes);
}

CacheOptions choose_later(CacheOptions options, std::string_view method, std::string_view bytes,
                          const Model* model) {
  if (bytes != kAuto) return options;
  require(method.empty() && model != nullptr,
          "bytes auto: only for the contexts of a model, whose method is its own; give a size");
  return Guard(*model).reading(std::move(options));
}

std::optional<GaugeReading> finish_prompt(Session& session, bool measure) {
  std::optional<GaugeReading> gauge;
  if (session.cache().options().recording.any()) {
    Guarded chosen;
    session.finish_prompt({}, Guard(session.model().model), chosen);
    if (!chosen.exact) gauge = chosen.tried.back().gauge;
  } else if (measure) {
    session.finish_prompt({}, gauge);
  } else {
    session.finish_prompt();
  }
  return gauge;
}

std::shared_ptr<ThreadPool> make_pool(int threads) {
  return threads < 1 ? nullptr : std::make_shared<ThreadPool>(threads);
}

}  // namespace ballast
