// Times llama.cpp's vision tower (libmtmd) on one tile: the peer of `ballast run --image`.
//
//   g++ -std=c++17 -O2 lab/bench/peers/mtmd.cc -o mtmd -I$LLAMA/include -I$LLAMA/ggml/include \
//       -I$LLAMA/tools/mtmd -L$LLAMA/build/bin -Wl,-rpath,$LLAMA/build/bin -lmtmd -lllama -lggml
//   ./mtmd MODEL.gguf MMPROJ.gguf [THREADS [TIMES]]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llama.h"
#include "mtmd.h"

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "mtmd MODEL.gguf MMPROJ.gguf [THREADS [TIMES]]\n"), 2;
  const auto quiet = [](ggml_log_level, const char*, void*) {};
  llama_log_set(quiet, nullptr);
  mtmd_log_set(quiet, nullptr);
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  mtmd_context_params params = mtmd_context_params_default();
  params.use_gpu = false;
  params.n_threads = argc > 3 ? std::atoi(argv[3]) : 2;
  params.warmup = true;
  mtmd_context* context = model ? mtmd_init_from_file(argv[2], model, params) : nullptr;
  if (context == nullptr) return std::fprintf(stderr, "the model cannot be loaded\n"), 1;

  constexpr std::uint32_t side = 448;
  std::vector<unsigned char> pixels(3 * side * side);
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<unsigned char>(i * i / 97);
  mtmd_bitmap* bitmap = mtmd_bitmap_init(side, side, pixels.data());
  mtmd_input_chunks* chunks = mtmd_input_chunks_init();
  const char* marker = mtmd_default_marker();
  const mtmd_input_text text = {marker, std::char_traits<char>::length(marker), false, true};
  const mtmd_bitmap* all[] = {bitmap};
  if (mtmd_tokenize(context, chunks, &text, all, 1) != 0) return 1;
  for (int time = 0; time < (argc > 4 ? std::atoi(argv[4]) : 3); ++time) {
    for (std::size_t i = 0; i < mtmd_input_chunks_size(chunks); ++i) {
      const mtmd_input_chunk* chunk = mtmd_input_chunks_get(chunks, i);
      if (mtmd_input_chunk_get_type(chunk) != MTMD_INPUT_CHUNK_TYPE_IMAGE) continue;
      const auto begin = std::chrono::steady_clock::now();
      if (mtmd_encode_chunk(context, chunk) != 0) return 1;
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      std::printf("%zu tokens in %.2f s; the first number %g\n",
                  mtmd_input_chunk_get_n_tokens(chunk), took.count(),
                  mtmd_get_output_embd(context)[0]);
    }
  }
}
