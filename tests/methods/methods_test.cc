// What method strings mean to those who have written them down: every default and range of every
// method. A change is deliberate: then copy what the test wrote over methods.txt.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "ballast/method.h"
#include "paths.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

std::string described(const Parameter& parameter) {
  using Kind = Parameter::Kind;
  const char* kinds[] = {"integer", "real", "choice", "memory", "text"};
  std::string out =
      fmt::format("  {} {} {}", parameter.name, kinds[static_cast<int>(parameter.kind)],
                  parameter.standard.empty() ? "-" : parameter.standard);
  if (parameter.kind == Kind::integer || parameter.kind == Kind::real) {
    out += fmt::format(" {}..{}", parameter.low, parameter.high);
  }
  if (!parameter.choices.empty()) out += fmt::format(" {}", parameter.choices);
  return out + "\n";
}

std::string described(const MethodInfo& info) {
  const char* windows[] = {"fixed", "half", "rest", "all"};
  std::string out =
      fmt::format("{}: sink {}, window {} {}, step {}", info.name, info.sink,
                  windows[static_cast<int>(info.window_policy)], info.window, info.step);
  if (!info.keeps_generated) out += ", summarises what it generates";
  if (info.pyramid) out += ", pyramid";
  if (info.merges) out += ", merges";
  if (info.global_budget) out += ", whole cache";
  out += fmt::format(", attention {}\n", info.needs.attention_sums   ? 1
                                         : info.needs.recent_queries ? 2
                                                                     : 0);
  for (const Parameter& parameter : info.parameters) out += described(parameter);
  return out;
}

TEST(Methods, DefaultsAndRangesAreThoseWrittenDown) {
  std::string text = "every method:\n";
  for (const Parameter& parameter : common_parameters()) text += described(parameter);
  for (const MethodInfo* info : methods()) {
    if (info->name.find("test") == info->name.npos)
      text += described(*info);  // those that tests register
  }
  const std::filesystem::path expected = BALLAST_SOURCE_DIR "/tests/methods/methods.txt";
  if (text == read_text(expected)) return;
  const auto written = std::filesystem::temp_directory_path() / "methods.txt";
  std::ofstream(written) << text;
  FAIL() << expected << " differs from " << written;
}

}  // namespace
}  // namespace ballast::test
