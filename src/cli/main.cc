// The program `ballast`.
#include "cli/lab.h"
#include "cli/run_program.h"

int main(int argc, char** argv) {
  using namespace ballast::cli;
  const Program program = {
      "Small, accurate key-value caches for language models.",
      "Example:\n  ballast run -m smollm2-135m --cache 1/8 --context lease.txt --question \"When "
      "does it end?\"",
      commands(), hand_over_to_lab};
  return run_program(program, argc, argv);
}
