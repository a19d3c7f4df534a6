// ballast bench --serve: the server under clients that ask at once.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ballast/engine/model.h"
#include "program/load.h"
#include "report/json.h"
#include "report/table.h"

namespace ballast::cli {

struct ServeBench {
  std::vector<std::size_t> streams = {1, 4, 16};
  std::vector<std::size_t> prompts = {512, 4096};
  std::size_t generate = 64;
  std::vector<Policy> policies;
  CacheOptions cache;
};

struct ServeRow {
  std::string method;
  std::size_t prompt = 0, streams = 0;
  serve::LoadResult load;
  std::size_t peak_memory = 0;  ///< of the process: weights, caches and clients
};

/// Starts a server in this process for each method, and asks it by HTTP.
std::vector<ServeRow> measure_serve(const Model& model, const ServeBench& bench);

Table serve_table(std::span<const ServeRow> rows);
Json to_json(std::span<const ServeRow> rows);

}  // namespace ballast::cli
