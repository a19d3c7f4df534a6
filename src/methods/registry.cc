// The methods by name: the library's own ones, then those that programs register.
#include "methods/registry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>

#include "ballast/summary.h"
#include "base/fail.h"
#include "base/nearest.h"
#include "base/printable.h"

namespace ballast {
namespace {

using MethodList = std::vector<const MethodInfo*>;

/// Nothing is ever removed: a Policy points to its method, and callers hold spans of the lists.
class Registry {
 public:
  static Registry& shared() {
    static Registry& registry = *new Registry;  // lives until the process ends
    return registry;
  }

  std::span<const MethodInfo* const> methods() const {
    return *current_.load(std::memory_order_acquire);
  }

  void add(const MethodInfo& info) {
    const std::lock_guard lock(mutex_);
    MethodList list = lists_.back();
    require(std::ranges::find(list, info.name, &MethodInfo::name) == list.end(),
            "method {} is registered already; give yours another name", info.name);
    list.push_back(&added_.emplace_back(info));
    publish(std::move(list));
  }

 private:
  Registry() {
#define BALLAST_LIST_METHOD(name) &name##_method(),
    publish({BALLAST_METHODS(BALLAST_LIST_METHOD)});
#undef BALLAST_LIST_METHOD
  }

  void publish(MethodList list) {
    current_.store(&lists_.emplace_back(std::move(list)), std::memory_order_release);
  }

  std::mutex mutex_;
  std::deque<MethodInfo> added_;
  std::deque<MethodList> lists_;  ///< the last one counts
  std::atomic<const MethodList*> current_ = nullptr;
};

}  // namespace

std::span<const MethodInfo* const> methods() { return Registry::shared().methods(); }

const MethodInfo& find_method(std::string_view name) {
  std::vector<std::string_view> known;
  for (const MethodInfo* method : methods()) {
    if (method->name == name) return *method;
    known.push_back(method->name);
  }
  // As papers write it: BalanceKV, StreamingLLM.
  const auto plain = [](std::string_view text) {
    std::string out;
    for (char c : text) {
      if (c == '-' || c == '_' || c == ' ') continue;
      out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    return out;
  };
  for (const MethodInfo* method : methods()) {
    if (plain(method->name) == plain(name)) return *method;
  }
  fail("unknown method '{}'{}; known: {}", printable(name), did_you_mean(name, known),
       fmt::join(known, ", "));
}

void register_method(const MethodInfo& info) {
  require(info.make != nullptr, "method {}: make is not set; it makes the summary of one head",
          info.name);
  check_parameters(info);
  Registry::shared().add(info);
}

std::unique_ptr<Summary> make_summary(const SummarySetup& setup) {
  const MethodInfo& info = setup.policy.info();
  return info.make == nullptr ? nullptr : info.make(setup);
}

void Summary::observe(std::span<const float>) {}

void Summary::observe_recent(const Observed&) {}

std::span<const float> Observed::attention(Position, std::size_t) const { return {}; }

const Observed& Observed::nothing() {
  static const Observed observed;
  return observed;
}

std::span<const float> Block::recent_attention() const {
  return observed->attention(first, size());
}

void Summary::scores(const Block&, std::span<float>) {
  throw Error("this method does not score tokens one by one");
}

void Summary::merge(const Summary&) {
  throw Error("this method's summaries do not unite; `ballast methods` shows those that do");
}

}  // namespace ballast
