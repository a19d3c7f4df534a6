// What a server's codec costs: how far a model's words are from those that the exact cache gives.
//
//   bench_codec MODEL DOCUMENTS.jsonl OUT --presets fast-4,pack-16 [--basis FILE] [--chunk 256]
//       [--documents 8] [--questions 5]
//   bench_codec MODEL DOCUMENTS.jsonl --rows FILE
//   bench_codec MODEL DOCUMENTS.jsonl OUT --presets fp8=FILE
//   bench_codec --speed [TARGETS]
//
// Reads documents in one text, encodes and decodes its cache in chunks, of 256 tokens as LMCache
// has them, and asks the first questions of each document; KL to the exact cache is taken along its
// greedy answers of 24 tokens. --rows writes the exact cache to FILE, bfloat16 of (2, layers,
// tokens, heads · dim); a preset with a FILE takes such rows as another codec left them. A line of
// JSON is added to OUT for each question and preset; what OUT has is not done again. --speed: GB/s
// of bf16 rows on one thread, in CPU time, with Highway's TARGETS alone (0x200: AVX2).
#include <fmt/format.h>

#include <hwy/targets.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>

#include "ballast/codec.h"
#include "ballast/engine/sampler.h"
#include "ballast/engine/session.h"
#include "ballast/pack.h"
#include "ballast/threads.h"
#include "base/fail.h"
#include "storage/round.h"

namespace {

using namespace ballast;
using Json = nlohmann::json;
using Logits = std::vector<std::vector<float>>;

constexpr std::size_t kAnswer = 24, kChunk = 256;

/// bfloat16 rows of a cache: (2, layers, tokens, heads · dim).
struct Rows16 {
  CacheShape shape;
  std::size_t tokens = 0;
  std::vector<std::uint16_t> words;

  std::size_t width() const { return shape.kv_heads * shape.key_dim; }
  std::uint16_t* row(std::size_t side, std::size_t layer, std::size_t token) {
    return words.data() + ((side * shape.layers + layer) * tokens + token) * width();
  }
  std::vector<MutableHeadsView> views(std::size_t side, std::size_t first, std::size_t count) {
    std::vector<MutableHeadsView> out;
    for (std::size_t l = 0; l < shape.layers; ++l) {
      out.push_back(MutableHeadsView::token_major(row(side, l, first), ElementType::bf16, count,
                                                  shape.kv_heads, shape.key_dim));
    }
    return out;
  }
};

Rows16 rows_of(const Cache& cache) {
  Rows16 out{cache.shape(), cache.tokens(), {}};
  require(out.shape.key_dim == out.shape.value_dim, "keys and values of different dimensions");
  out.words.resize(2 * out.shape.layers * out.tokens * out.width());
  std::vector<float> row(out.shape.key_dim);
  for (std::size_t l = 0; l < out.shape.layers; ++l) {
    for (std::size_t h = 0; h < out.shape.kv_heads; ++h) {
      std::size_t t = 0;
      for (const Segment& segment : cache.segments(l, h)) {
        for (std::size_t i = 0; i < segment.keys.rows; ++i, ++t) {
          for (std::size_t side : {0, 1}) {
            (side == 0 ? segment.keys : segment.values).decode(i, row);
            std::ranges::transform(row, out.row(side, l, t) + h * row.size(),
                                   [](float x) { return kernels::bf16_encode(x); });
          }
        }
      }
      require(t == out.tokens, "layer {} has {} entries of {} tokens", l, t, out.tokens);
    }
  }
  return out;
}

Cache cache_of(Rows16 rows, const Cache& like) {
  Cache out(like.shape(), like.options());
  for (std::size_t l = 0; l < rows.shape.layers; ++l) {
    out.forward(l, rows.views(0, 0, rows.tokens)[l], rows.views(1, 0, rows.tokens)[l], HeadsView{},
                MutableHeadsView{});
  }
  out.finish_prompt();
  return out;
}

/// How chunks are made.
struct Chunks {
  std::size_t tokens = kChunk;
  std::shared_ptr<const PackBasis> basis;
};

/// Encodes and decodes the rows in place; returns the bytes of the chunks.
std::size_t through(Rows16& rows, const std::string& preset, const Chunks& chunks) {
  const Codec codec(rows.shape, preset, "bench", chunks.basis);
  std::size_t bytes = 0;
  std::vector<std::byte> chunk(codec.bound(chunks.tokens));
  for (std::size_t first = 0; first < rows.tokens; first += chunks.tokens) {
    const std::size_t count = std::min(chunks.tokens, rows.tokens - first);
    const auto keys = rows.views(0, first, count), values = rows.views(1, first, count);
    const std::vector<HeadsView> k(keys.begin(), keys.end()), v(values.begin(), values.end());
    const std::size_t size = codec.encode(k, v, chunk, static_cast<std::int64_t>(first));
    codec.decode(std::span(chunk).first(size), keys, values);
    bytes += size;
  }
  return bytes;
}

struct Coded {
  std::string name;
  double divisor = 0;
  Session session;
};

/// The text as a preset leaves it; "name=FILE": as FILE has it.
Coded code(const Session& exact, std::shared_ptr<const TextModel> model, const std::string& name,
           const Chunks& chunks) {
  Rows16 rows = rows_of(exact.cache());
  const std::size_t all = rows.words.size() * sizeof(rows.words[0]), at = name.find('=');
  double divisor = 0;
  if (at == std::string::npos) {
    divisor = static_cast<double>(all) / static_cast<double>(through(rows, name, chunks));
  } else {
    std::ifstream in(name.substr(at + 1), std::ios::binary);
    in.read(reinterpret_cast<char*>(rows.words.data()), static_cast<std::streamsize>(all));
    require(in.good(), "{}: cannot be read, or too short", name.substr(at + 1));
  }
  Session session(std::move(model), cache_of(std::move(rows), exact.cache()));
  session.set_form(exact.form());
  return {name.substr(0, at), divisor, std::move(session)};
}

/// The logits of the last tokens of `tokens`, read behind a text.
Logits read_behind(const Session& text, const std::vector<Token>& tokens, std::size_t last) {
  Logits out;
  Session copy = text.clone();
  PrefillOptions options;
  options.all_logits = [&](std::size_t first, ConstMatrix logits) {
    for (std::size_t i = 0; i < logits.rows; ++i) {
      if (first + i + last >= tokens.size()) out.emplace_back(logits[i].begin(), logits[i].end());
    }
  };
  copy.read(tokens, std::move(options));
  return out;
}

double kl_of(const Logits& exact, const Logits& other) {
  double kl = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double a = log_sum_exp(exact[i]), b = log_sum_exp(other[i]);
    for (std::size_t k = 0; k < exact[i].size(); ++k) {
      const double p = exact[i][k] - a;
      if (p > -40) kl += std::exp(p) * (p - (other[i][k] - b));
    }
  }
  return kl;
}

bool is_right(std::string answer, const Json& question) {
  const auto plain = [](std::string text) {
    std::ranges::transform(text, text.begin(), [](char c) { return char(std::tolower(c)); });
    std::erase(text, ',');
    return text;
  };
  answer = plain(answer);
  return std::ranges::any_of(question["accept"], [&](const Json& accept) {
    return answer.find(plain(accept)) != std::string::npos;
  });
}

struct Text {
  std::string text;
  std::vector<Json> questions;
};

std::vector<Json> lines_of(const std::string& path) {
  std::vector<Json> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
  return out;
}

Text join(const std::string& path, std::size_t documents, std::size_t questions) {
  Text out;
  for (const Json& document : lines_of(path)) {
    if (documents-- == 0) break;
    if (!out.text.empty()) out.text += "\n\n----\n\n";
    out.text += document["text"].get<std::string>();
    std::string name = document["name"];
    std::ranges::replace(name, '_', ' ');
    for (std::size_t q = 0; q < std::min(questions, document["questions"].size()); ++q) {
      Json question = document["questions"][q];
      question["q"] = fmt::format("(About the {}) {}", name, question["q"].get<std::string>());
      out.questions.push_back(question);
    }
  }
  return out;
}

void ask(const Session& exact, const std::vector<Coded>& coded, const Tokenizer& tokenizer,
         const Json& question, std::set<std::string>& done, const std::string& path) {
  GenerateOptions greedy;
  greedy.max_tokens = kAnswer;
  greedy.sampling.temperature = 0;
  const std::string text = question["q"];
  const auto key = [&](const Coded& c) { return c.name + "|" + text; };
  if (std::ranges::all_of(coded, [&](const Coded& c) { return done.contains(key(c)); })) return;
  const Generated answer = exact.ask(text, greedy);
  std::vector<Token> tokens = exact.form().question(tokenizer, text), said;
  for (const GeneratedToken& t : answer.tokens) said.push_back(t.chosen.token);
  if (said.empty()) return;
  tokens.insert(tokens.end(), said.begin(), said.end() - 1);
  const Logits wanted = read_behind(exact, tokens, said.size());
  for (const Coded& c : coded) {
    if (done.contains(key(c))) continue;
    const Generated other = c.session.ask(text, greedy);
    const Json line = {{"key", key(c)},
                       {"preset", c.name},
                       {"divisor", c.divisor},
                       {"kl", kl_of(wanted, read_behind(c.session, tokens, said.size()))},
                       {"tokens", said.size()},
                       {"same", other.text == answer.text},
                       {"right", is_right(other.text, question)},
                       {"exact_right", is_right(answer.text, question)}};
    std::ofstream(path, std::ios::app) << line.dump() << '\n';
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
  }
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The best of twelve runs over random rows of 24 layers.
void speed(const std::string& preset, std::size_t dim) {
  CacheShape shape;
  shape.layers = 24;
  shape.kv_heads = 256 / dim;
  shape.key_dim = shape.value_dim = dim;
  for (std::size_t f = 0; f < dim / 2; ++f) {
    shape.rotary.frequencies.push_back(std::pow(1e-6f, 2.0f * float(f) / float(dim)));
  }
  Rows16 rows{shape, kChunk, {}};
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  rows.words.resize(2 * shape.layers * kChunk * rows.width());
  for (std::uint16_t& word : rows.words) word = kernels::bf16_encode(normal(random));
  const auto keys = rows.views(0, 0, kChunk), values = rows.views(1, 0, kChunk);
  const std::vector<HeadsView> k(keys.begin(), keys.end()), v(values.begin(), values.end());
  const Codec codec(shape, preset, "bench");
  std::vector<std::byte> chunk(codec.bound(kChunk));
  const auto bytes = static_cast<double>(rows.words.size() * sizeof(rows.words[0]));
  double encode = 1e9, decode = 1e9;
  std::size_t size = 0;
  for (int i = 0; i < 12; ++i) {
    const double begin = cpu_seconds();
    for (int j = 0; j < 4; ++j) size = codec.encode(k, v, chunk);
    const double middle = cpu_seconds();
    for (int j = 0; j < 4; ++j) codec.decode(std::span(chunk).first(size), keys, values);
    encode = std::min(encode, (middle - begin) / 4);
    decode = std::min(decode, (cpu_seconds() - middle) / 4);
  }
  fmt::print("{} dim {}: 1/{:.2f}, encode {:.2f} GB/s, decode {:.2f} GB/s\n", preset, dim,
             bytes / double(size), bytes / encode / 1e9, bytes / decode / 1e9);
}

int run(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--speed") {
    set_threads(1);
    if (argc > 2) hwy::SetSupportedTargetsForTest(std::strtoll(argv[2], nullptr, 0) | HWY_EMU128);
    for (std::size_t dim : {64, 128}) {
      for (const char* preset : {"fast-4", "fast-3", "fast-2"}) speed(preset, dim);
    }
    return 0;
  }
  require(argc > 4, "usage: bench_codec MODEL DOCUMENTS.jsonl OUT --presets a,b,…");
  std::string out = argv[3], presets, rows_file;
  std::size_t documents = 8, questions = 5;
  Chunks chunks;
  for (int i = 3; i + 1 < argc; ++i) {
    const std::string option = argv[i], value = argv[i + 1];
    if (option == "--presets") presets = value;
    if (option == "--rows") rows_file = value;
    if (option == "--chunk") chunks.tokens = std::stoul(value);
    if (option == "--basis") {
      chunks.basis = std::make_shared<const PackBasis>(PackBasis::load(value));
    }
    if (option == "--documents") documents = std::stoul(value);
    if (option == "--questions") questions = std::stoul(value);
  }
  const auto model = std::make_shared<const TextModel>(argv[1]);
  CacheOptions options;
  options.policy = Policy::parse("exact");
  options.key_type = options.value_type = StorageType::bf16;
  options.expected_tokens = 16384;
  Session exact(model, options);
  const Text text = join(argv[2], documents, questions);
  exact.read_context(text.text);
  fmt::print("{} tokens read\n", exact.tokens());
  if (!rows_file.empty()) {
    const Rows16 rows = rows_of(exact.cache());
    std::ofstream(rows_file, std::ios::binary)
        .write(reinterpret_cast<const char*>(rows.words.data()),
               static_cast<std::streamsize>(rows.words.size() * sizeof(rows.words[0])));
    fmt::print("(2, {}, {}, {})\n", rows.shape.layers, rows.tokens, rows.width());
    return 0;
  }
  std::vector<Coded> coded;
  for (std::size_t at = 0; at <= presets.size();) {
    const std::size_t comma = std::min(presets.find(',', at), presets.size());
    coded.push_back(code(exact, model, presets.substr(at, comma - at), chunks));
    fmt::print("{}: 1/{:.2f}\n", coded.back().name, coded.back().divisor);
    std::fflush(stdout);
    at = comma + 1;
  }
  std::set<std::string> done;
  for (const Json& line : lines_of(out)) done.insert(line["key"].get<std::string>());
  for (const Json& q : text.questions) ask(exact, coded, model->tokenizer, q, done, out);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_codec: {}\n", error.what());
    return 1;
  }
}
