// Real models against transformers with the same weights in float32: tests/real/reference.py writes
// what it computes to tests/real/NAME.json. Text, template, tokens and logits are compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "ballast/engine/chat.h"
#include "experiments/data/loaded_model.h"
#include "hub/choice.h"
#include "hub/pull.h"
#include "paths.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using json = nlohmann::ordered_json;  // templates print tools as they come

// Nats between transformers' two likeliest tokens up to which ours may be the second.
constexpr double kTie = 0.02;
// Nats a position, over the tokens that are written and all others as one: below the true one.
constexpr double kMostDivergence = 1e-3;

/// SmolLM2 is fetched where it is not here; other models are used where they are.
std::optional<std::filesystem::path> find_model(const std::string& name) {
  try {
    if (name != "smollm2-135m") return hub::resolve_model(name);
    return hub::pull(name, {.quiet = true}).path;
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// The prompt by our tokenizer and template.
std::vector<Token> tokens_of(const Tokenizer& tokenizer, const json& prompt) {
  if (prompt.contains("files")) {
    std::string text;
    for (const std::string file : prompt["files"]) {
      text += read_text(BALLAST_SOURCE_DIR "/data/calibration/" + file + ".txt");
    }
    std::vector<Token> tokens = tokenizer.encode(text, {.add_special = false});
    tokens.resize(std::min(tokens.size(), prompt["tokens"].get<std::size_t>()));
    return tokens;
  }
  std::vector<ChatMessage> messages;
  for (json message : prompt["messages"]) {
    ChatMessage& added = messages.emplace_back(message["role"], message["content"]);
    message.erase("role");
    message.erase("content");
    if (!message.empty()) added.more = message.dump();
  }
  return encode_chat(tokenizer, messages, true,
                     prompt["tools"].empty() ? "" : prompt["tools"].dump());
}

/// KL of our distribution from the one that is written.
double divergence(const json& top, std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float x : logits) sum += std::exp(double{x} - most);
  double out = 0, rest = 1, our_rest = 1;
  for (std::size_t i = 0; i < top["ids"].size(); ++i) {
    const double log_p = top["logs"][i], p = std::exp(log_p);
    const double log_q = logits[top["ids"][i].get<std::size_t>()] - most - std::log(sum);
    out += p * (log_p - log_q);
    rest -= p;
    our_rest -= std::exp(log_q);
  }
  // Less than the digits that are written leave nothing to compare.
  return rest > 1e-4 && our_rest > 0 ? out + rest * std::log(rest / our_rest) : out;
}

class RealModel : public testing::TestWithParam<std::string> {};

TEST_P(RealModel, GivesTheTokensAndLogitsOfTransformers) {
  const std::optional<std::filesystem::path> path = find_model(GetParam());
  if (!path) GTEST_SKIP() << GetParam() << " cannot be had here";
  LoadedModel m(*path);
  const json all = json::parse(read_text(BALLAST_SOURCE_DIR "/tests/real/" + GetParam() + ".json"));
  double sum = 0, largest = 0;
  std::size_t count = 0, ties = 0;
  for (const json& prompt : all["prompts"]) {
    SCOPED_TRACE(prompt["name"]);
    std::vector<Token> tokens = tokens_of(m.tokenizer, prompt);
    const auto expected = prompt["last_ids"].get<std::vector<Token>>();
    ASSERT_EQ(tokens.size(), prompt["tokens"]);
    ASSERT_EQ(std::vector<Token>(tokens.end() - std::ssize(expected), tokens.end()), expected);

    const std::size_t prompt_tokens = tokens.size();
    const auto greedy = prompt.value("greedy", std::vector<Token>());
    tokens.insert(tokens.end(), greedy.begin(), greedy.end());
    std::map<std::size_t, json> tops, near;
    for (const json& top : prompt["top"]) tops[top["position"]] = top;
    for (const json& tie : prompt.value("near_ties", json::array())) near[tie["at"]] = tie;

    Sequence sequence(m.model, CacheOptions{});  // exact, in f32
    const std::size_t skipped = tops.begin()->first;
    double prompt_sum = 0;
    PrefillOptions prefill;
    prefill.all_logits = [&](std::size_t first, ConstMatrix rows) {
      for (std::size_t i = 0; i < rows.rows; ++i) {
        const std::size_t position = skipped + first + i;
        if (const auto top = tops.find(position); top != tops.end()) {
          const double d = divergence(top->second, rows[i]);
          prompt_sum += d;
          largest = std::max(largest, d);
        }
        if (position + 1 < prompt_tokens || position + 1 >= tokens.size()) continue;
        const std::size_t at = position + 1 - prompt_tokens;
        const auto chosen =
            static_cast<Token>(std::max_element(rows[i].begin(), rows[i].end()) - rows[i].begin());
        if (chosen == greedy[at]) continue;
        const auto tie = near.find(at);
        ASSERT_NE(tie, near.end()) << "token " << at << " is " << chosen << ", not " << greedy[at];
        EXPECT_EQ(chosen, tie->second["other"]) << "token " << at;
        EXPECT_LE(tie->second["margin"].get<double>(), kTie) << "token " << at;
        ++ties;
      }
    };
    // Logits before the first that is written would take most of the time.
    if (skipped > 0) {
      (void)m.engine.prefill(sequence, std::span(tokens).first(skipped), {.finish_prompt = false});
    }
    (void)m.engine.prefill(sequence, std::span(tokens).subspan(skipped), prefill);
    std::printf("%s, %s: KL %.2e nats a position\n", GetParam().c_str(),
                prompt["name"].get<std::string>().c_str(), prompt_sum / tops.size());
    sum += prompt_sum;
    count += tops.size();
  }
  std::printf("%s: KL mean %.2e, largest %.2e of %zu positions; %zu near ties\n",
              GetParam().c_str(), sum / count, largest, count, ties);
  EXPECT_LT(sum / count, kMostDivergence);
}

INSTANTIATE_TEST_SUITE_P(All, RealModel,
                         testing::Values("smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b",
                                         "gemma3-270m"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = std::isalnum(c) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace ballast
