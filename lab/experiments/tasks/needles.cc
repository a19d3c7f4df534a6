#include "experiments/tasks/needles.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "ballast/engine/question_form.h"
#include "base/fail.h"
#include "experiments/tasks/draws.h"
#include "experiments/tasks/sample_run.h"
#include "formats/utf8_text.h"
#include "report/units.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kNoise = {"The grass is green.", "The sky is blue.",
                                                    "The sun is yellow.", "Here we go.",
                                                    "There and back again."};

Json place(std::size_t tokens, double depth) { return {{"length", tokens}, {"depth", depth}}; }

}  // namespace

Haystack::Haystack(const Tokenizer& tokenizer) : tokenizer_(&tokenizer), repeats_whole_(true) {
  for (std::string_view sentence : kNoise) add(sentence);
  check();
}

Haystack::Haystack(const Tokenizer& tokenizer, const fs::path& path) : tokenizer_(&tokenizer) {
  std::vector<fs::path> files;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    for (const auto& entry : fs::directory_iterator(path)) {
      if (entry.is_regular_file() && entry.path().extension() == ".txt") {
        files.push_back(entry.path());
      }
    }
    std::ranges::sort(files);
    require(!files.empty(), "{}: a folder without .txt files; the haystack is made of those",
            path.string());
  } else {
    files.push_back(path);
  }
  for (const fs::path& file : files) {
    const std::string text = read_utf8(file);
    // A sentence ends with its mark before a blank, or with a line.
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t end = begin;
      while (end < text.size() && text[end] != '\n' &&
             !(std::strchr(".!?", text[end]) != nullptr && end + 1 < text.size() &&
               (text[end + 1] == ' ' || text[end + 1] == '\n'))) {
        ++end;
      }
      if (end < text.size() && text[end] != '\n') ++end;
      add(std::string_view(text).substr(begin, end - begin));
      begin = end + (end < text.size() && (text[end] == ' ' || text[end] == '\n'));
    }
  }
  require(found_text_, "{}: no text in it", path.string());
  check();
}

void Haystack::check() const {
  require(!sentences_.empty(), ErrorCode::bad_file,
          "{}: the tokenizer makes no tokens of the haystack's sentences",
          tokenizer_->vocabulary().source);
}

void Haystack::add(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return;
  found_text_ = true;
  text = text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
  Sentence sentence{std::string(text), 0};
  sentence.tokens =
      tokenizer_->encode(" " + sentence.text, {.add_special = false, .parse_special = false})
          .size();
  if (sentence.tokens == 0) return;  // no number of them fills a text
  sentences_.push_back(std::move(sentence));
}

std::string Haystack::hide(std::size_t tokens, const std::vector<std::string>& hidden,
                           const std::vector<double>& depths, std::uint64_t seed) const {
  std::size_t used = 0;
  for (const std::string& text : hidden) {
    used += tokenizer_->encode(" " + text, {.add_special = false, .parse_special = false}).size();
  }
  if (used > tokens) {
    throw TooShort(
        fmt::format("{} tokens are too few for the {} tokens hidden in them", tokens, used), used);
  }
  std::size_t at = repeats_whole_ ? 0 : Draws("haystack", seed).below(sentences_.size());
  std::vector<const Sentence*> hay;
  while (true) {
    const Sentence& next = sentences_[at++ % sentences_.size()];
    if (used + next.tokens > tokens) break;
    used += next.tokens;
    hay.push_back(&next);
  }
  std::vector<std::size_t> order(hidden.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return depths[i]; });
  std::string out;
  std::size_t next = 0;
  for (std::size_t i = 0; i <= hay.size(); ++i) {
    while (next < order.size() &&
           (i == hay.size() ||
            static_cast<double>(i) >= depths[order[next]] * static_cast<double>(hay.size()))) {
      out += (out.empty() ? "" : " ") + hidden[order[next++]];
    }
    if (i < hay.size()) out += (out.empty() ? "" : " ") + hay[i]->text;
  }
  return out;
}

std::vector<std::string> Haystack::words() const {
  std::set<std::string> found;
  const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  for (const Sentence& sentence : sentences_) {
    const std::string& text = sentence.text;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = static_cast<std::size_t>(
          std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end(), letter) -
          text.begin());
      std::string word = text.substr(begin, end - begin);
      std::ranges::transform(word, word.begin(), [](char c) { return std::tolower(c); });
      if (word.size() >= 4 && word.size() <= 12) found.insert(std::move(word));
      begin = end + 1;
    }
  }
  return {found.begin(), found.end()};
}

namespace {

/// Haystack::hide() in what `tokens` leave beside the rest of the prompt.
std::string hide_beside(const Haystack& haystack, const std::string& rest, std::size_t tokens,
                        const std::vector<std::string>& hidden, const std::vector<double>& depths,
                        std::uint64_t seed) {
  const std::size_t taken = haystack.tokenizer().encode(rest, {.parse_special = false}).size() + 1;
  try {
    return haystack.hide(tokens - std::min(tokens, taken), hidden, depths, seed);
  } catch (const TooShort& error) {
    throw TooShort(fmt::format("{} tokens are too few for a question of {} and {} hidden ones",
                               tokens, taken, error.least()),
                   taken + error.least());
  }
}

}  // namespace

Sample needle_sample(const Haystack& haystack, std::size_t tokens, double depth,
                     std::size_t needles, std::uint64_t seed) {
  require(needles > 0, "--needles must be at least 1");
  Draws draws("needle", seed);
  std::vector<std::string> keys, texts;
  std::vector<double> depths = {depth};
  std::string value;
  while (keys.size() < needles) {
    const std::string key = draws.key(" ");
    if (std::ranges::find(keys, key) != keys.end()) continue;
    const std::string number = draws.digits(7);
    if (keys.empty()) value = number;
    keys.push_back(key);
    texts.push_back("One of the special magic numbers for " + key + " is: " + number + ".");
    if (keys.size() > 1) depths.push_back(draws.unit());
  }
  Sample sample;
  sample.id = fmt::format("needle/{}/{:g}/{}/{}", tokens, depth, needles, seed);
  sample.group = place(tokens, depth);
  const std::string head =
      "A special magic number is hidden within the following text. Make sure to memorize it. I "
      "will quiz you about the number afterwards.\n";
  sample.question = "\nWhat is the special magic number for " + keys[0] +
                    " mentioned in the provided text? The special magic number for " + keys[0] +
                    " mentioned in the provided text is";
  sample.context =
      head + hide_beside(haystack, head + sample.question, tokens, texts, depths, seed);
  sample.expected = {value};
  sample.max_tokens = 48;
  sample.stop = {"\n"};
  return sample;
}

Sample passkey_sample(const Haystack& haystack, std::size_t tokens, double depth,
                      std::uint64_t seed) {
  Draws draws("passkey", seed);
  const std::string key = draws.digits(5);
  Sample sample;
  sample.id = fmt::format("passkey/{}/{:g}/{}", tokens, depth, seed);
  sample.group = place(tokens, depth);
  const std::string head =
      "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. "
      "I will quiz you about the important information there. ";
  sample.question = "\nWhat is the pass key? The pass key is";
  const std::string hidden =
      "The pass key is " + key + ". Remember it. " + key + " is the pass key.";
  sample.context =
      head + hide_beside(haystack, head + sample.question, tokens, {hidden}, {depth}, seed);
  sample.expected = {key};
  sample.max_tokens = 32;
  sample.stop = {"\n"};
  return sample;
}

std::vector<Sample> lines_samples(std::size_t lines, std::size_t questions, std::uint64_t seed) {
  constexpr std::size_t most = 100000;
  require(lines >= 1 && lines <= most, "{} lines; expected 1 to {}", lines, most);
  require(questions <= lines, "{} questions about {} lines; at most one a line", questions, lines);
  Draws draws("lines", seed);
  Sample sample;
  sample.group = {{"lines", lines}};
  sample.context =
      "Below is a record of lines I want you to remember. Each line begins with 'line <line "
      "index>' and contains a '<REGISTER_CONTENT>' at the end of the line as a numerical value. "
      "For each line index, memorize its corresponding <REGISTER_CONTENT>. At the end of the "
      "record, I will ask you to retrieve the corresponding <REGISTER_CONTENT> of a certain line "
      "index. Now the record start:\n\n";
  std::set<std::string> seen;
  std::vector<std::pair<std::string, std::size_t>> record;
  while (record.size() < lines) {
    const std::string key = draws.rare_key();
    if (!seen.insert(key).second) continue;
    record.emplace_back(key, 1 + draws.below(50000));
    sample.context += fmt::format("line {}: REGISTER_CONTENT is <{}>\n", key, record.back().second);
  }
  sample.context += "\nNow the record is over.";
  sample.max_tokens = 32;
  sample.stop = {"\n"};
  std::vector<Sample> out;
  std::set<std::size_t> asked;
  while (out.size() < questions) {
    const std::size_t line = draws.below(lines);
    if (!asked.insert(line).second) continue;
    const auto& [key, value] = record[line];
    sample.id = fmt::format("lines/{}/{}", lines, seed);
    if (!out.empty()) sample.id += fmt::format("/{}", out.size() + 1);
    sample.question =
        " Tell me what is the <REGISTER_CONTENT> in line " + key + "? I need the number. ";
    sample.expected = value;
    out.push_back(sample);
  }
  return out;
}

Sample lines_sample(std::size_t lines, std::uint64_t seed) {
  return std::move(lines_samples(lines, 1, seed)[0]);
}

namespace {

struct Needle : SampleParameters {
  std::vector<std::size_t> lengths;
  std::vector<double> depths;
  std::size_t depth_count = 5;
  std::size_t needles = 1;
  std::size_t repeat = 2;
  bool passkey = false;
  std::string haystack;

  void describe(Parameters& p) {
    SampleParameters::describe(
        p,
        with_storage_only(
            "replay;balancekv;balancekv:outliers=yes;snapkv;pyramidkv;streaming-llm;uniform"),
        {.caches = {"1/4"}});
    p.add("--lengths", lengths,
          "Tokens of the prompts; powers of two up to the model's positions if not given");
    p.add("--depths", depths, "Where the needle is, 0 to 1; if not given, evenly");
    p.add("--depth-count", depth_count, "So many depths", {.least = 1, .most = 1000});
    p.add("--needles", needles, "Needles hidden, one of which is asked for",
          {.least = 1, .most = 1000});
    p.add("--repeat", repeat, "Questions for each length and depth");
    p.add("--passkey", passkey, "Hide a passkey instead");
    p.add("--haystack", haystack,
          "A folder of .txt files, or a file; five sentences over and over if not given",
          {.type = "PATH"});
  }
};

std::vector<double> depths_of(const Needle& o) {
  if (!o.depths.empty()) {
    for (double depth : o.depths) {
      require(depth >= 0 && depth <= 1, "--depths {}: a depth must be between 0 and 1", depth);
    }
    return o.depths;
  }
  std::vector<double> out;
  for (std::size_t i = 0; i < o.depth_count; ++i) {
    out.push_back(
        o.depth_count == 1 ? 0.5 : static_cast<double>(i) / static_cast<double>(o.depth_count - 1));
  }
  return out;
}

/// At most four powers of two, up to the model's positions.
std::vector<std::size_t> standard_lengths(std::size_t positions) {
  std::vector<std::size_t> out;
  for (std::size_t n = 512; n <= positions && n <= 131072; n *= 2) out.push_back(n);
  require(!out.empty(), "the model has {} positions; give --lengths", positions);
  if (out.size() > 4) out.erase(out.begin(), out.end() - 4);
  return out;
}

/// The fraction of the expected strings in the answer, as in RULER.
double found(const Sample& sample, const Answered& answer) {
  double hits = 0;
  for (const Json& text : sample.expected) {
    hits += answer.text.find(text.get<std::string>()) != std::string::npos;
  }
  return hits / static_cast<double>(sample.expected.size());
}

/// A plot a method. `rows`: by length and depth.
std::vector<Plot> make_maps(const std::string& title, const std::vector<Json>& rows,
                            const std::vector<std::size_t>& lengths,
                            const std::vector<double>& depths,
                            const std::vector<Variant>& variants) {
  Plot empty;
  empty.kind = Plot::Kind::heat;
  empty.x_title = "tokens";
  empty.y_title = "depth";
  for (std::size_t length : lengths) empty.x_labels.push_back(format_count(length));
  for (double depth : depths) empty.y_labels.push_back(fmt::format("{:.0f}%", 100 * depth));
  std::vector<Plot> plots;
  for (const Variant& variant : variants) {
    if (variant.seed != variants[0].seed) continue;
    Plot& plot = plots.emplace_back(empty);
    plot.title = title + ": " + variant.name();
    Plot::Map map{"", {}};
    map.cells.assign(depths.size(), std::vector<double>(lengths.size(), std::nan("")));
    for (const Json& row : rows) {
      if (!variant.is_of_row(row) || row["score"].is_null()) continue;
      const auto x = std::ranges::find(lengths, row["length"].get<std::size_t>());
      const auto y = std::ranges::find(depths, row["depth"].get<double>());
      map.cells[static_cast<std::size_t>(y - depths.begin())]
               [static_cast<std::size_t>(x - lengths.begin())] = row["score"];
    }
    plot.maps.push_back(std::move(map));
  }
  return plots;
}

Result measure(Needle o, Work& work) {
  require(o.limit == 0, "--limit: use --repeat, the questions for each length and depth");
  require(o.repeat > 0, "--repeat must be at least 1");
  require(o.variants.types.size() < 2, "eval needle: one --cache-type at a time");
  // Prompts must not lose their middles, because the map shows their lengths.
  o.ask.refuse_long = o.ask.longest == 0;
  SampleRun asked(o, work);
  const Tokenizer& tokenizer = asked.model().tokenizer;
  std::vector<std::size_t> lengths = o.lengths;
  if (lengths.empty()) lengths = standard_lengths(asked.model().model.config().max_positions);
  asked.check_lengths(lengths);
  const std::vector<double> depths = depths_of(o);
  const Haystack haystack =
      o.haystack.empty() ? Haystack(tokenizer) : Haystack(tokenizer, o.haystack);
  std::vector<Sample> samples;
  std::vector<Json> places;
  // Lengths include the answer and the chat template.
  const std::size_t beside = 16 + (o.ask.raw ? 0 : template_tokens(tokenizer));
  for (std::size_t length : lengths) {
    std::size_t least = 0;  // of all questions, which differ in a few tokens
    for (double depth : depths) {
      for (std::size_t i = 0; i < o.repeat; ++i) {
        // Each question hides its own needle.
        const std::uint64_t seed = o.variants.seed * 1000003 + samples.size();
        const std::size_t room = length - std::min(length, beside);
        try {
          samples.push_back(o.passkey ? passkey_sample(haystack, room, depth, seed)
                                      : needle_sample(haystack, room, depth, o.needles, seed));
        } catch (const TooShort& error) {
          least = std::max(least, error.least() + beside);
          samples.emplace_back();  // for the seed of the next one
        }
        samples.back().group = {{"length", length}};
        places.push_back({{"length", length}, {"depth", depth}});
      }
    }
    require(least == 0, "--lengths {}: the question and what is hidden need at least {} tokens",
            length, least);
  }
  Result result = asked.run(
      {.name = "needle",
       .title = o.passkey ? "Passkeys in a haystack" : "Needles in a haystack",
       .group = {{"length", "tokens", Unit::count, ""}},
       .score_title = "found",
       .overall = true,
       .join = false,
       .settings = {{"depths", depths},
                    {"task", o.passkey ? "passkey" : "needle"},
                    {"needles", o.needles},
                    {"repeat", o.repeat},
                    {"haystack", o.haystack.empty() ? "noise" : o.haystack}},
       .shown = depths.size() / 2 * o.repeat,  // in the middle of the shortest text
       .score_note = "answers that hold the number asked for; lengths include the chat template, "
                     "the question and its answer"},
      std::move(samples), found);
  std::vector<Sample> placed = asked.samples();
  for (std::size_t i = 0; i < placed.size(); ++i) placed[i].group = places[i];
  result.plots =
      make_maps(result.title, score_rows(placed, asked.variants(), asked.answers(), found), lengths,
                depths, asked.variants());
  return result;
}

}  // namespace

Experiment needle_experiment() {
  return experiment(
      "needle", "Find a sentence in a long text: depth against length", "BalanceKV, Figure 4",
      "  ballast eval needle -m model.gguf --lengths 4096,16384,65536 --haystack essays/ "
      "--methods 'exact;balancekv;streaming-llm' --cache 1/4 --plot needle.svg --json=needle.json",
      &measure);
}

}  // namespace ballast
