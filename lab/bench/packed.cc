// What packing costs: bytes, and how far a model's words are from those that the exact cache gives.
//
//   bench_packed MODEL BASIS OUT --joined DOCUMENTS.jsonl [--documents 8] [--questions 5]
//   bench_packed MODEL BASIS OUT --texts FILE...
//   bench_packed MODEL BASIS OUT --alone DOCUMENTS.jsonl
//   bench_packed MODEL BASIS OUT --samples SAMPLES.jsonl     of ballast eval ruler --make
//
// --joined reads documents in one text and asks the first questions of each; KL to the exact cache
// is taken along its greedy answers of 24 tokens. --alone reads each document alone. --texts packs
// the first part of each text and takes KL over what follows, 300 tokens at most. --steps a,b,…:
// for a number like 16 the preset 1/16 of the basis, for =16 the step with which this text takes
// 1/16, for +0.1 that step, for kvtc16 KVTC's scheme with 1/16 of the bits before DEFLATE, which is
// calibrated on the texts of packing and kept in BASIS.kvtc, for eighth an eighth of the text by
// calibrated scores, for 16-eighth that of the text packed to 1/16, for a method string with keys
// that method. A line of JSON is added to OUT
// for each question or text and step; what OUT has is not done again.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "attention/rotary.h"
#include "ballast/engine/calibration.h"
#include "ballast/engine/sampler.h"
#include "ballast/engine/session.h"
#include "ballast/pack.h"
#include "base/fail.h"
#include "base/read_file.h"
#include "base/thread_pool.h"
#include "kvtc.h"
#include "model/calibration_data.h"
#include "model/covariance.h"

namespace {

using namespace ballast;
using Json = nlohmann::json;
using Logits = std::vector<std::vector<float>>;

constexpr std::size_t kAnswer = 24, kFollowing = 300;

/// The rows of an exact cache as packing has them: a matrix of all tokens for each group.
std::vector<Matrix> rows_of(const Cache& cache, const PackBasis& basis) {
  const CacheShape& shape = cache.shape();
  const std::size_t tokens = cache.tokens();
  std::vector<Matrix> out;
  for (const PackGroup& group : basis.groups) {
    Matrix& rows = out.emplace_back(tokens, group.width());
    for (std::size_t i = 0; i < group.layers.size(); ++i) {
      Rotary back = shape.rotary_of(group.layers[i]);
      back.magnitude = 1 / back.magnitude;
      for (std::size_t h = 0; h < shape.kv_heads; ++h) {
        const std::size_t key = i * basis.layer_width() + h * shape.key_dim,
                          value = i * basis.layer_width() + shape.kv_heads * shape.key_dim +
                                  h * shape.value_dim;
        std::size_t at = 0;
        for (const Segment& segment : cache.segments(group.layers[i], h)) {
          parallel_for(segment.keys.rows, [&](std::size_t t) {
            const std::span<float> row = rows[at + t];
            segment.keys.decode(t, row.subspan(key, shape.key_dim));
            segment.values.decode(t, row.subspan(value, shape.value_dim));
            if (back.frequencies.empty()) return;
            std::vector<float> table(2 * back.frequencies.size());
            rotation_at(back, -static_cast<double>(at + t), table);
            rotate(back, table, shape.key_dim, row.subspan(key, shape.key_dim));
          });
          at += segment.keys.rows;
        }
        require(at == tokens, "layer {} has {} entries of {} tokens", group.layers[i], at, tokens);
      }
    }
  }
  return out;
}

/// An exact cache of such rows.
Cache cache_of(const std::vector<Matrix>& groups, const PackBasis& basis, const Cache& like) {
  const CacheShape& shape = like.shape();
  Cache out(shape, like.options());
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto& layers = basis.groups[g].layers;
      const auto found = std::ranges::find(layers, layer);
      if (found == layers.end()) continue;
      const std::size_t at = std::size_t(found - layers.begin()) * basis.layer_width(),
                        width = shape.kv_heads * shape.key_dim;
      Matrix keys(groups[g].rows(), width),
          values(groups[g].rows(), shape.kv_heads * shape.value_dim);
      const Rotary& rotary = shape.rotary_of(layer);
      parallel_for(keys.rows(), [&](std::size_t t) {
        std::ranges::copy(groups[g][t].subspan(at, width), keys[t].begin());
        std::ranges::copy(groups[g][t].subspan(at + width, values.cols()), values[t].begin());
        if (rotary.frequencies.empty()) return;
        std::vector<float> table(2 * rotary.frequencies.size());
        rotation_at(rotary, double(t), table);
        rotate(rotary, table, shape.key_dim, keys[t]);
      });
      const std::size_t heads = shape.kv_heads * shape.queries_per_kv_head;
      out.forward(layer, keys.view(), values.view(), ConstMatrix{nullptr, 0, heads * shape.key_dim},
                  MutableMatrix{nullptr, 0, heads * shape.value_dim});
    }
  }
  out.finish_prompt();
  return out;
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

struct Difference {
  double kl = 0, more_loss = 0, loss = 0;
  bool same = true;
};

/// Sums over places; `next`: the token behind each, as long as there is one.
Difference compare(const Logits& exact, const Logits& other, std::span<const Token> next) {
  Difference out;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double a = log_sum_exp(exact[i]), b = log_sum_exp(other[i]);
    for (std::size_t k = 0; k < exact[i].size(); ++k) {
      const double p = exact[i][k] - a;
      if (p > -40) out.kl += std::exp(p) * (p - (other[i][k] - b));
    }
    out.same &= std::ranges::max_element(exact[i]) - exact[i].begin() ==
                std::ranges::max_element(other[i]) - other[i].begin();
    if (i < next.size()) {
      const auto token = static_cast<std::size_t>(next[i]);
      out.loss += a - exact[i][token];
      out.more_loss += (b - other[i][token]) - (a - exact[i][token]);
    }
  }
  return out;
}

/// Columns of x that are keys, or values.
std::vector<std::size_t> columns_of(const PackBasis& basis, const PackGroup& group, bool keys) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < group.width(); ++i) {
    if ((i % basis.layer_width() < basis.kv_heads * basis.key_dim) == keys) out.push_back(i);
  }
  return out;
}

Matrix columns(const Matrix& rows, const std::vector<std::size_t>& which) {
  Matrix out(rows.rows(), which.size());
  for (std::size_t t = 0; t < rows.rows(); ++t) {
    for (std::size_t i = 0; i < which.size(); ++i) out[t][i] = rows[t][which[i]];
  }
  return out;
}

struct Settings {
  std::shared_ptr<const TextModel> model;
  std::shared_ptr<const PackBasis> basis;
  std::vector<std::string> steps;
  std::string out, basis_file;
  bool raw = false;
  std::set<std::string> done;

  void add(Json line) {
    std::ofstream(out, std::ios::app) << line.dump() << '\n';
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
  }
};

struct Packed {
  std::string step;
  double divisor = 0, seconds = 0;
  float value = 0;
  Session session;
};

Session empty(const Settings& s, std::size_t tokens) {
  CacheOptions options;
  options.policy = Policy::parse("exact");
  options.key_type = options.value_type = StorageType::bf16;
  options.expected_tokens = tokens;
  return Session(s.model, options);
}

/// KVTC's components of keys and of values.
std::vector<bench::Kvtc> kvtc_of(const Settings& s) {
  const PackGroup& group = s.basis->groups.front();
  require(s.basis->groups.size() == 1, "KVTC is compared with where one group has all layers");
  std::vector<bench::Kvtc> out;
  const auto file = [&](bool keys) { return s.basis_file + (keys ? ".kvtc-k" : ".kvtc-v"); };
  if (std::filesystem::exists(file(false))) {
    for (const bool keys : {true, false}) out.emplace_back(file(keys));
    return out;
  }
  constexpr std::size_t kFirst = PackedRows::kExactFirst, kEvery = 48;
  const std::size_t n = group.width() / 2;
  Covariance sums[2] = {Covariance(n), Covariance(n)};
  std::vector<float> samples[2];
  std::vector<std::string_view> texts;
  for (const BuiltInFile& f : calibration_texts()) texts.push_back(f.text());
  for (const BuiltInFile& f : packing_texts()) texts.push_back(f.text());
  for (std::string_view text : texts) {
    std::vector<Token> tokens = s.model->tokenizer.encode(text);
    tokens.resize(std::min<std::size_t>(tokens.size(), 2048));
    Session session = empty(s, 4096);
    session.read(as_chat(s.model->tokenizer, tokens));
    const Matrix rows = std::move(rows_of(session.cache(), *s.basis).front());
    for (const bool keys : {true, false}) {
      const Matrix part = columns(rows, columns_of(*s.basis, group, keys));
      for (std::size_t t = kFirst; t < part.rows(); t += 256) {
        sums[keys].add(part.view().slice(t, std::min<std::size_t>(256, part.rows() - t)));
      }
      for (std::size_t t = kFirst; t < part.rows(); t += kEvery) {
        samples[keys].insert(samples[keys].end(), part[t].begin(), part[t].end());
      }
    }
  }
  for (const bool keys : {true, false}) {
    Matrix sample(samples[keys].size() / n, n);
    std::ranges::copy(samples[keys], sample.data());
    const Matrix covariance = sums[keys].covariance(0, n, n);
    out.emplace_back(sums[keys].mean(), covariance.view(), sample);
    out.back().save(file(keys));
  }
  return out;
}

/// The rows as KVTC leaves them, with the same exact tokens at the ends; bytes.
std::size_t through_kvtc(const Settings& s, std::size_t divisor, Matrix& rows) {
  const std::size_t first = PackedRows::kExactFirst, last = PackedRows::kExactLast;
  const std::size_t count = rows.rows() - first - last, n = rows.cols() / 2;
  std::size_t bytes = 2 * (first + last) * rows.cols();
  const std::vector<bench::Kvtc> both = kvtc_of(s);
  for (const bool keys : {true, false}) {
    const auto which = columns_of(*s.basis, s.basis->groups.front(), keys);
    const Matrix part = columns(rows, which);
    const auto coded = both[keys ? 0 : 1].code(part.view().slice(first, count), 16 * n / divisor);
    bytes += coded.bytes;
    for (std::size_t t = 0; t < count; ++t) {
      for (std::size_t i = 0; i < n; ++i) rows[first + t][which[i]] = coded.rows[t][i];
    }
  }
  return bytes;
}

/// An eighth of the text: as it is read, or, of a preset, of the packed text; or a method string.
Session eighth(const Settings& s, const Session& exact, const PackCodec& codec,
               const std::string& name) {
  CacheOptions options = exact.cache().options();
  const bool method = name.find(':') != std::string::npos;
  options.policy = Policy::parse(method ? name : "calibrated:bytes=1/8");
  if (method || name == "eighth") {
    Session out(s.model, options);
    out.set_form(exact.form());
    out.read(exact.text());
    out.finish_prompt();
    return out;
  }
  const auto preset =
      std::ranges::find(s.basis->presets, std::uint32_t(std::stoul(name)), &PackPreset::divisor);
  require(preset != s.basis->presets.end(), "the basis has no preset of 1/{}", name);
  const auto file = ballast::pack(exact.cache(), codec, *preset);
  Session out(s.model, unpack(file, name, codec, &options));
  out.set_form(exact.form());
  return out;
}

/// The text as each step leaves it.
std::vector<Packed> pack(const Settings& s, const Session& exact,
                         const std::vector<std::string>& steps) {
  const std::vector<Matrix> rows = rows_of(exact.cache(), *s.basis);
  const PackCodec codec(s.basis);
  const auto read = [&](std::size_t g, std::size_t first, MutableMatrix out) {
    for (std::size_t t = 0; t < out.rows; ++t) std::ranges::copy(rows[g][first + t], out.row(t));
  };
  double all = 0;
  for (const Matrix& m : rows) all += 2.0 * double(m.rows() * m.cols());
  std::vector<Packed> out;
  for (const std::string& name : steps) {
    float step = 0;
    if (name.ends_with("eighth") || name.find(':') != std::string::npos) {
      Session small = eighth(s, exact, codec, name);
      const double divisor = all / double(small.cache().bytes().used());
      out.push_back({name, divisor, 0, 0, std::move(small)});
      continue;
    }
    if (name.starts_with("kvtc")) {
      std::vector<Matrix> back;
      back.emplace_back(rows[0].rows(), rows[0].cols());
      std::copy_n(rows[0].data(), rows[0].rows() * rows[0].cols(), back[0].data());
      const std::size_t bytes = through_kvtc(s, std::stoul(name.substr(4)), back[0]);
      Session session(s.model, cache_of(back, *s.basis, exact.cache()));
      session.set_form(exact.form());
      out.push_back({name, all / double(bytes), 0, 0, std::move(session)});
      continue;
    }
    if (name[0] == '=') {
      step = codec.step_for(rows[0].rows(), read, std::stod(name.substr(1)));
    } else if (name[0] == '+') {
      step = std::stof(name.substr(1));
    } else {
      for (const PackPreset& preset : s.basis->presets) {
        if (std::to_string(preset.divisor) == name) step = preset.step;
      }
      require(step > 0, "the basis has no preset of 1/{}", name);
    }
    const PackedRows packed = codec.encode(rows[0].rows(), read, step);
    std::vector<Matrix> back;
    for (std::size_t g = 0; g < rows.size(); ++g) {
      back.emplace_back(rows[g].rows(), rows[g].cols());
      codec.decode(packed, g, 0, back.back().view());
    }
    Session session(s.model, cache_of(back, *s.basis, exact.cache()));
    session.set_form(exact.form());
    out.push_back({name, all / double(packed.bytes()), 0, step, std::move(session)});
  }
  return out;
}

bool is_right(std::string answer, const Json& question) {
  std::ranges::transform(answer, answer.begin(), [](char c) { return char(std::tolower(c)); });
  std::erase(answer, ',');
  return std::ranges::any_of(question["accept"], [&](const Json& accept) {
    std::string wanted = accept;
    std::ranges::transform(wanted, wanted.begin(), [](char c) { return char(std::tolower(c)); });
    std::erase(wanted, ',');
    return answer.find(wanted) != std::string::npos;
  });
}

void ask(Settings& s, const std::string& part, const std::string& set, const std::string& text,
         const std::vector<Json>& questions) {
  const auto key = [&](const std::string& step, const Json& q) {
    return fmt::format("{}|{}|{}", set, step, q["q"].get<std::string>());
  };
  std::vector<std::string> steps;
  for (const std::string& step : s.steps) {
    if (std::ranges::any_of(questions,
                            [&](const Json& q) { return !s.done.contains(key(step, q)); })) {
      steps.push_back(step);
    }
  }
  if (steps.empty()) return;
  Session exact = empty(s, 16384);
  exact.read_context(text);
  fmt::print("{}: {} tokens read\n", set, exact.tokens());
  const std::vector<Packed> packed = pack(s, exact, steps);
  for (const Packed& p : packed) {
    fmt::print("{}: {}: step {:.4g}, 1/{:.2f}\n", set, p.step, p.value, p.divisor);
  }
  std::fflush(stdout);
  GenerateOptions greedy;
  greedy.max_tokens = kAnswer;
  greedy.sampling.temperature = 0;
  for (const Json& q : questions) {
    if (std::ranges::all_of(packed,
                            [&](const Packed& p) { return s.done.contains(key(p.step, q)); })) {
      continue;
    }
    const std::string question = q["q"];
    const Generated answer = exact.ask(question, greedy);
    std::vector<Token> tokens = exact.form().question(s.model->tokenizer, question), said;
    for (const GeneratedToken& t : answer.tokens) said.push_back(t.chosen.token);
    tokens.insert(tokens.end(), said.begin(), said.end());
    if (said.empty()) continue;
    tokens.pop_back();
    const Logits wanted = read_behind(exact, tokens, said.size());
    const bool exact_right = is_right(answer.text, q);
    for (const Packed& p : packed) {
      if (s.done.contains(key(p.step, q))) continue;
      const Difference d = compare(wanted, read_behind(p.session, tokens, said.size()), said);
      bool right = exact_right;
      if (!d.same) right = is_right(p.session.ask(question, greedy).text, q);
      s.add({{"key", key(p.step, q)},
             {"part", part},
             {"set", set},
             {"step", p.step},
             {"value", p.value},
             {"divisor", p.divisor},
             {"kl", d.kl},
             {"tokens", said.size()},
             {"same", d.same},
             {"right", right},
             {"exact_right", exact_right}});
    }
  }
}

void follow(Settings& s, const std::string& path) {
  const std::string name = std::filesystem::path(path).stem();
  std::vector<std::string> steps;
  for (const std::string& step : s.steps) {
    if (!s.done.contains(name + "|" + step)) steps.push_back(step);
  }
  if (steps.empty()) return;
  Session exact = empty(s, 4096);
  const Tokenizer& tokenizer = s.model->tokenizer;
  const std::string text = read_file(path);
  exact.set_form(tokenizer.vocabulary().chat_template.empty() || s.raw
                     ? QuestionForm::raw(text)
                     : QuestionForm::from_template(tokenizer, "", text));
  std::vector<Token> tokens = exact.form().begin(tokenizer);
  const std::size_t following = std::min(kFollowing, tokens.size() / 3);
  const std::vector<Token> rest(tokens.end() - std::ptrdiff_t(following), tokens.end());
  tokens.resize(tokens.size() - following);
  exact.read(tokens);
  exact.finish_prompt();
  const Logits wanted = read_behind(exact, rest, rest.size());
  for (const std::string& step : steps) {
    const Packed p = std::move(pack(s, exact, {step}).front());
    const Difference d =
        compare(wanted, read_behind(p.session, rest, rest.size()), std::span(rest).subspan(1));
    const double n = double(rest.size());
    s.add({{"key", name + "|" + step},
           {"text", name},
           {"step", step},
           {"value", p.value},
           {"divisor", p.divisor},
           {"kl", d.kl / n},
           {"loss", d.loss / n},
           {"more_loss", d.more_loss / n},
           {"context", tokens.size()},
           {"tokens", rest.size()}});
  }
}

std::vector<Json> lines_of(const std::string& path) {
  std::vector<Json> out;
  std::ifstream in(path);
  require(in.good(), "{}: cannot be read", path);
  for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
  return out;
}

int run(int argc, char** argv) {
  require(argc > 4, "usage: bench_packed MODEL BASIS OUT --joined|--alone|--samples|--texts ...");
  Settings s;
  s.model = std::make_shared<const TextModel>(argv[1]);
  if (!std::filesystem::exists(argv[2])) {  // as ballast calibrate --packing makes it
    CalibrateOptions options;
    options.scores = false;
    calibrate(s.model->model, s.model->tokenizer, options).packing->save(argv[2]);
  }
  s.basis = std::make_shared<const PackBasis>(PackBasis::load(argv[2]));
  require(s.basis->model == calibration_key(s.model->model), "{}: of another model", argv[2]);
  s.basis_file = argv[2];
  s.out = argv[3];
  s.steps = {"16", "32", "64"};
  if (std::filesystem::exists(s.out)) {
    for (const Json& line : lines_of(s.out)) s.done.insert(line["key"].get<std::string>());
  }
  std::string joined, alone, samples;
  std::vector<std::string> texts;
  std::size_t documents = 8, questions = 5;
  for (int i = 4; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--texts") {
      while (i + 1 < argc && argv[i + 1][0] != '-') texts.push_back(argv[++i]);
      continue;
    }
    if (option == "--raw") {
      s.raw = true;
      continue;
    }
    require(i + 1 < argc, "{} wants a value", option);
    const std::string value = argv[++i];
    if (option == "--joined") joined = value;
    if (option == "--alone") alone = value;
    if (option == "--samples") samples = value;
    if (option == "--documents") documents = std::stoul(value);
    if (option == "--questions") questions = std::stoul(value);
    if (option == "--steps") {
      s.steps.clear();
      for (std::size_t at = 0; at <= value.size();) {
        const std::size_t comma = std::min(value.find(',', at), value.size());
        const std::string step = value.substr(at, comma - at);
        const bool key = step.find('=') != std::string::npos && step.find(':') == std::string::npos;
        if (key && step.front() != '=') {  // of the method before
          s.steps.back() += "," + step;
        } else {
          s.steps.push_back(step);
        }
        at = comma + 1;
      }
    }
  }
  for (const std::string& path : texts) follow(s, path);
  if (!joined.empty()) {
    std::string text;
    std::vector<Json> asked;
    std::size_t count = 0;
    for (const Json& document : lines_of(joined)) {
      if (count++ == documents) break;
      if (!text.empty()) text += "\n\n----\n\n";
      text += document["text"].get<std::string>();
      std::string name = document["name"];
      std::ranges::replace(name, '_', ' ');
      for (std::size_t q = 0; q < std::min(questions, document["questions"].size()); ++q) {
        Json question = document["questions"][q];
        question["q"] = fmt::format("(About the {}) {}", name, question["q"].get<std::string>());
        asked.push_back(question);
      }
    }
    ask(s, "joined", "joined", text, asked);
  }
  if (!alone.empty()) {
    for (const Json& document : lines_of(alone)) {
      const auto& all = document["questions"];
      ask(s, "alone", document["name"], document["text"], {all.begin(), all.end()});
    }
  }
  if (!samples.empty()) {
    std::map<std::string, std::vector<Json>> texts;  // and their questions
    for (const Json& sample : lines_of(samples)) {
      const std::string input = sample["input"];
      const std::size_t at = input.rfind("\n\n");
      texts[input.substr(0, at)].push_back(
          {{"q", input.substr(at + 2)}, {"accept", sample["outputs"]}});
    }
    for (const auto& [text, questions] : texts) {
      ask(s, "code", fmt::format("sample {:016x}", std::hash<std::string>()(text)), text,
          questions);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_packed: {}\n", error.what());
    return 1;
  }
}
