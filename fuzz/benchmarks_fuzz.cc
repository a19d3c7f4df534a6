// The benchmarks' files: JSON lines, read by each of their readers.
#include "experiments/data/benchmarks.h"

#include "ballast/error.h"
#include "memory_file.h"
#include "target.h"

namespace {

using namespace ballast;

template <typename Read>
void attempt(Read&& read) {
  try {
    (void)read();
  } catch (const Error&) {
  }
}

void read_all_ways(std::string_view input) {
  // The names say which task it is.
  const TempFile qasper("qasper.jsonl", input);
  const TempFile ruler("niah_single_1.jsonl", input);
  attempt([&] { return read_longbench(qasper.path(), {.by_length = true}); });
  attempt([&] { return read_ruler(ruler.path()); });
  attempt([&] { return read_lines(qasper.path()); });
  attempt([&] { return read_summaries(qasper.path()); });
}

}  // namespace

BALLAST_FUZZ_TARGET(benchmarks, read_all_ways)
