#include "bindings/options.h"

#include "ballast/engine/model.h"
#include "base/fail.h"

namespace ballast {

Policy parse_policy(std::string_view method, std::string_view bytes, const Model* model) {
  if (method.empty() && !bytes.empty() && model != nullptr) return model->policy_for(bytes);
  Policy policy = Policy::parse(!method.empty() ? method : bytes.empty() ? "exact" : "replay");
  if (bytes.empty()) return policy;
  require(!policy.has_memory(), "bytes {} and method {} both say how much to keep", bytes, method);
  return policy.with("bytes", bytes);
}

std::shared_ptr<ThreadPool> make_pool(int threads) {
  return threads < 1 ? nullptr : std::make_shared<ThreadPool>(threads);
}

}  // namespace ballast
