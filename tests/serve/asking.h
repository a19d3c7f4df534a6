// Requests that the server's tests make, and the answers of `ballast run` to compare with.
#pragma once
#include "cli/program.h"
#include "serve/client.h"

namespace ballast::test {

inline const std::string kPrompt =
    "line one: The pass key is 48213. Remember it. line two: The sky is blue.\nThe pass key is";

inline Json completion(const std::string& prompt = kPrompt) {
  return {{"prompt", prompt}, {"temperature", 0}, {"max_tokens", 12}};
}
inline Json chat(const std::string& question = kPrompt) {
  return {{"messages", {{{"role", "user"}, {"content", question}}}},
          {"temperature", 0},
          {"max_tokens", 12}};
}
inline std::string text_of(const Reply& reply) {
  EXPECT_EQ(reply.status, 200) << reply.body;
  if (reply.status != 200) return "";
  const Json choice = reply.json()["choices"][0];
  return choice.contains("text") ? choice["text"] : choice["message"]["content"];
}
inline std::string run_text(std::vector<std::string> words) {
  words.insert(words.begin(), {"run", "-m", kMini, "-n", "12", "--json", "-q"});
  const ProgramResult result = run(words);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.json()["answers"][0]["text"];
}
/// A text whose words do not repeat.
inline std::string document(int lines) {
  std::string out;
  for (int i = 0; i < lines; ++i) {
    out +=
        fmt::format("line {}: the number of record {} is {}.\n", i, i * 7 % 101, i * 7919 % 9973);
  }
  return out;
}

}  // namespace ballast::test
