// A fuzzer without feedback for builds that have no libFuzzer: every input of the corpus, then
// mutants of them until the time is over. Inputs run in a child, so that a crash costs one input.
//   fuzz_driver TARGET SECONDS SEED FOLDER...     inputs that crash or hang go to the last folder
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <new>

#include "target.h"

namespace {

using namespace ballast::fuzz;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kLargest = std::size_t{8} << 20;  // bytes of an input
constexpr unsigned kHang = 10;                          // seconds

/// What the child is doing, seen by its parent.
struct Shared {
  std::size_t runs;
  std::size_t size;
  char input[kLargest];
};

void run(const Target& target, const std::string& input, Shared& shared) {
  shared.size = std::min(input.size(), kLargest);
  std::memcpy(shared.input, input.data(), shared.size);
  ::alarm(kHang);
  try {
    target.run(std::string_view(shared.input, shared.size));
  } catch (const std::bad_alloc&) {
  }
  ++shared.runs;
}

[[noreturn]] void work(const Target& target, const std::vector<std::string>& corpus, bool replay,
                       std::uint32_t seed, Clock::time_point end, Shared& shared) {
  if (replay) {
    for (const std::string& input : corpus) run(target, input, shared);
  }
  std::mt19937 random(seed);
  std::string input;
  for (std::size_t i = 0; Clock::now() < end; ++i) {
    // Chains of up to eight mutants of one input.
    if (i % 8 == 0 || input.empty() || input.size() > kLargest / 2)
      input = corpus[random() % corpus.size()];
    input = target.mutate(input, static_cast<std::uint32_t>(random()));
    run(target, input, shared);
  }
  std::_Exit(0);
}

int fuzz(const Target& target, double seconds, std::uint32_t seed,
         const std::vector<fs::path>& folders) {
  std::vector<std::string> corpus;
  for (const fs::path& folder : folders) {
    fs::create_directories(folder);
    for (const auto& entry : fs::directory_iterator(folder)) {
      std::ifstream in(entry.path(), std::ios::binary);
      corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
  }
  if (corpus.empty()) corpus.emplace_back("x");
  auto* shared = static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (shared == MAP_FAILED) return 1;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  std::size_t findings = 0;
  for (bool replay = true; replay || (Clock::now() < end && findings < 20); replay = false) {
    const pid_t child = ::fork();
    if (child < 0) return 1;
    if (child == 0) work(target, corpus, replay, seed++, end, *shared);
    seed++;
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    const std::string input(shared->input, shared->size);
    const fs::path path = folders.back() / (std::string(target.name) + "-" +
                                            std::to_string(std::hash<std::string>()(input)));
    std::ofstream(path, std::ios::binary)
        .write(input.data(), static_cast<std::streamsize>(input.size()));
    ++findings;
    std::printf("%s: %s %d: %s\n", target.name, WIFSIGNALED(status) ? "signal" : "exit code",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), path.c_str());
  }
  std::printf("%s: %zu executions, %zu findings\n", target.name, shared->runs, findings);
  return findings == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 5) {
    for (const Target& target : targets()) {
      if (std::string_view(argv[1]) != target.name) continue;
      return fuzz(target, std::atof(argv[2]), static_cast<std::uint32_t>(std::atoi(argv[3])),
                  {argv + 4, argv + argc});
    }
  }
  std::fprintf(stderr, "usage: fuzz_driver TARGET SECONDS SEED FOLDER...\ntargets:\n");
  for (const Target& target : targets()) std::fprintf(stderr, "  %s\n", target.name);
  return 2;
}
