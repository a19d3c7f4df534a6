// The table at the end of ./lab/bench.sh: targets and results.
//
//   bench_table OUT.json results/bench-attention.json …
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "base/fail.h"
#include "base/output_file.h"
#include "base/read_file.h"
#include "targets.h"

namespace ballast {
namespace {

Json read(const std::filesystem::path& path) {
  const Json json = Json::parse(read_file(path), nullptr, false);
  require(json.contains("results") || json.contains("benchmarks"),
          "{}: not the JSON of a benchmark; run ./lab/bench.sh again", path.string());
  return json;
}

void run(int count, char** arguments) {
  require(count >= 3, "expected OUT.json and results/bench-NAME.json …");
  std::map<std::string, Json> files;
  for (int i = 2; i < count; ++i) {
    const std::filesystem::path path = arguments[i];
    std::string name = path.stem().string();
    constexpr std::string_view kPrefix = "bench-";
    if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
    files[name] = read(path);
  }
  const std::vector<Target> targets = targets_of(files);
  OutputFile out(arguments[1]);
  out.write(to_text(to_json(targets)));
  out.commit();
  std::fputs(targets.empty() ? "No target was measured.\n" : to_text(targets).c_str(), stdout);
}

}  // namespace
}  // namespace ballast

int main(int count, char** arguments) {
  try {
    ballast::run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_table: %s\n", error.what());
    return 1;
  }
}
