// ballast tokenize: text to token ids and back.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "base/fail.h"
#include "cli/command.h"
#include "cli/model_options.h"

namespace ballast::cli {
namespace {

struct Options {
  std::string model;
  bool ids = false;
  bool text = false;
  bool special = false;
  std::string separator;
  JsonOption json;
};

/// Replaces the escapes \n, \t and \\.
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    const std::size_t which =
        next == '\0' ? std::string_view::npos : std::string_view("nt\\").find(next);
    out += which == std::string_view::npos ? text[i] : "\n\t\\"[which];
    if (which != std::string_view::npos) ++i;
  }
  return out;
}

/// The parts between separators; the whole when there is no separator.
std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> out;
  std::size_t begin = 0;
  for (std::size_t at;
       !separator.empty() && (at = text.find(separator, begin)) != std::string_view::npos;
       begin = at + separator.size()) {
    out.push_back(text.substr(begin, at - begin));
  }
  out.push_back(text.substr(begin));
  return out;
}

std::vector<Token> parse_ids(std::string_view line) {
  constexpr std::string_view kBetween = " \t\r\n,[]";
  std::vector<Token> ids;
  for (std::size_t at = line.find_first_not_of(kBetween); at != std::string_view::npos;
       at = line.find_first_not_of(kBetween, at)) {
    const std::size_t end = std::min(line.find_first_of(kBetween, at), line.size());
    const std::string_view word = line.substr(at, end - at);
    Token id = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    require(error == std::errc() && stop == word.data() + word.size(),
            "standard input: '{}' is not a token id", word.substr(0, 40));
    ids.push_back(id);
    at = end;
  }
  return ids;
}

Json to_json(const Tokenizer& tokenizer, const std::vector<Token>& ids, std::string_view text) {
  Json pieces = Json::array();
  for (Token id : ids) {
    pieces.push_back(tokenizer.vocabulary().pieces.at(static_cast<std::size_t>(id)));
  }
  return {{"text", text}, {"ids", ids}, {"pieces", std::move(pieces)}};
}

void to_ids(const Options& o, const Tokenizer& tokenizer, std::string_view input, Json& all) {
  const std::string separator = unescape(o.separator);
  // A separator at the end begins no further text.
  if (!separator.empty() && input.ends_with(separator)) input.remove_suffix(separator.size());
  for (std::string_view text : split(input, separator)) {
    const std::vector<Token> ids =
        tokenizer.encode(text, {.add_special = o.special, .parse_special = o.special});
    if (o.json.text()) print(fmt::format("{}\n", fmt::join(ids, " ")));
    if (o.json.wanted()) all.push_back(to_json(tokenizer, ids, text));
  }
}

void to_text(const Options& o, const Tokenizer& tokenizer, std::string_view input, Json& all) {
  const std::string separator = unescape(o.separator);
  if (input.ends_with('\n')) input.remove_suffix(1);
  for (std::string_view line : split(input, separator.empty() ? "" : "\n")) {
    const std::vector<Token> ids = parse_ids(line);
    const std::string text = tokenizer.decode(ids, {.special = o.special});
    if (o.json.text()) print(text + separator);
    if (o.json.wanted()) all.push_back(to_json(tokenizer, ids, text));
  }
}

void run(Options& o) {
  const Tokenizer tokenizer(read_vocabulary(o.model));
  o.json.open();
  const std::string input = read_text("-");
  Json all = Json::array();
  (o.text ? to_text : to_ids)(o, tokenizer, input, all);
  o.json.write({{"model", o.model}, {"texts", std::move(all)}});
}

}  // namespace

void add_tokenize(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app =
      parent.add_subcommand("tokenize", "Turn standard input into token ids, or ids into text");
  add_model_option(*app, o.model);
  CLI::Option* ids = app->add_flag("--ids", o.ids, "Text to ids (what happens without any flag)");
  app->add_flag("--text", o.text, "Ids to text")->excludes(ids);
  app->add_flag("--special", o.special,
                "Put the model's begin and end tokens around a text, and take marks such as "
                "<|im_end|> in it for the tokens; with --text, write such tokens too");
  app->add_option("--separator", o.separator,
                  "The input is several texts, each ended by this, such as '\\n'; the ids of each "
                  "are a line")
      ->type_name("TEXT");
  o.json.add_to(*app);
  app->footer("Example:\n  ballast tokenize -m model.gguf < text.txt");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
