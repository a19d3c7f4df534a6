// Options of a cache as C and Python write them.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "ballast/cache.h"
#include "ballast/engine/gauge.h"
#include "ballast/threads.h"

namespace ballast {

class Session;

/// A policy from a method string and, unless empty, the bytes of the whole cache (see MemorySize).
/// No method: exact, or where bytes are given that of the model (Model::policy_for), `replay`
/// without a model. Throws Error on an unknown method, or one
/// that is told twice how much to keep or takes no bytes.
Policy parse_policy(std::string_view method, std::string_view bytes, const Model* model = nullptr);

/// The whole options of a context whose bytes are "auto": a guard chooses them when the prompt
/// ends. Others stay as they are. Throws Error where none can be chosen.
CacheOptions choose_later(CacheOptions options, std::string_view method, std::string_view bytes,
                          const Model* model);
/// Ends the prompt. What the cache costs, if `measure` or where it was chosen.
std::optional<GaugeReading> finish_prompt(Session& session, bool measure = false);

/// A pool of that many threads; null below 1: the shared one.
std::shared_ptr<ThreadPool> make_pool(int threads);

}  // namespace ballast
