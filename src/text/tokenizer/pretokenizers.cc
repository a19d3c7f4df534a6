#include "text/tokenizer/pretokenizers.h"

#include <fmt/ranges.h>

#include <map>

#include "base/fail.h"

namespace ballast {
namespace {

// The expressions are those of each family's own tokenizer.json, in ICU's syntax. Where llama.cpp
// (src/llama-vocab.cpp) splits differently, they follow llama.cpp, the reference for GGUF files.

const std::string kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string kContractions = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))";
const std::string kSpaces = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// The letters that have case, as DeepSeek lists them.
const std::string kDeepseekLetters =
    R"(A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293)"
    R"(\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c)"
    R"(\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5)"
    R"(\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77)"
    R"(\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59)"
    R"(\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc)"
    R"(\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107)"
    R"(\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139)"
    R"(\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee)"
    R"(\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e)"
    R"(\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a)"
    R"(\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2)"
    R"(\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943)";
const std::string kDeepseekScripts = R"([\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+)";

// Words with one leading punctuation mark, numbers, punctuation with trailing line ends.
std::string words(const std::string& numbers) {
  return kContractions + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|)" + numbers +
         R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|)" + kSpaces;
}

// The same, but an upper-case letter after a lower-case one begins a new word.
std::string cased_words(const std::string& numbers, const std::string& ending) {
  const std::string mark = R"([^\r\n\p{L}\p{N}]?)";
  const std::string upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
  const std::string lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  return mark + upper + "*" + lower + "+" + ending + "|" + mark + upper + "+" + lower + "*" +
         ending + "|" + numbers + R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" + kSpaces;
}

PreTokenizer with_whole_words(const std::string& split) { return {{split}, true, true}; }

std::map<std::string, PreTokenizer, std::less<>> make_known() {
  const std::string number = R"(\p{N})";
  const std::string triple = R"(\p{N}{1,3})";
  const PreTokenizer gpt2{{kGpt2}};
  const PreTokenizer digits{{number, kGpt2}};
  const PreTokenizer llama3 = with_whole_words(words(triple));
  const PreTokenizer triples{{words(triple)}};
  const PreTokenizer qwen2{{words(number)}};
  // Marks belong to letters.
  const PreTokenizer qwen35{{kContractions + R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|)" + number +
                             R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" + kSpaces}};
  const PreTokenizer seed{{kContractions + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|)" + number +
                           R"(| ?[^\s\p{L}\p{N}]+|)" + kSpaces}};
  const PreTokenizer tekken = with_whole_words(cased_words(number, ""));
  const PreTokenizer o200k{{cased_words(triple, kContractions + "?")}};
  // The lookbehind does not change matches of \s+$, but avoids quadratic time on long runs of
  // spaces.
  const PreTokenizer deepseek_llm{
      {R"([\r\n])", R"(\s?[)" + kDeepseekLetters + "]+",
       R"(\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+)", R"((?<!\s)\s+$)",
       kDeepseekScripts, R"(\p{N}+)"}};
  const PreTokenizer deepseek_coder{
      {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekScripts, number}};
  const PreTokenizer deepseek_v3{
      {triple, R"([\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+)",
       R"([!"#$%\&'()*+,\-./:;<=>?@\[\\\]\^_`\{|\}~][A-Za-z]+)"
       R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)" +
           kSpaces}};
  const PreTokenizer fallback{{R"([\p{P}$+<=>\^~|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}};
  const PreTokenizer falcon{{R"([\p{P}$+<=>\^~|`]+)", kGpt2, "[0-9][0-9][0-9]"}};
  return {{"default", fallback},
          {"gpt-2", gpt2},
          {"phi-2", gpt2},
          {"mpt", gpt2},
          {"gpt-neox", gpt2},
          {"olmo", gpt2},
          {"starcoder", digits},
          {"refact", digits},
          {"command-r", digits},
          {"smollm", digits},
          {"codeshell", digits},
          {"exaone", digits},
          {"exaone4", gpt2},
          {"granite-docling", gpt2},
          {"hunyuan", qwen2},
          {"hunyuan-dense", deepseek_v3},
          {"seed-coder", seed},
          {"minerva-7b", digits},
          {"falcon", falcon},
          {"llama3", llama3},
          {"llama-v3", llama3},
          {"llama-bpe", llama3},
          {"falcon3", llama3},
          {"pixtral", llama3},
          {"lfm2", llama3},
          {"dbrx", triples},
          {"smaug-bpe", triples},
          {"chatglm-bpe", triples},
          {"glm4", triples},
          {"qwen2", qwen2},
          {"qwen35", qwen35},
          {"deepseek-r1-qwen", qwen2},
          {"stablelm2", qwen2},
          {"megrez", qwen2},
          {"deepseek-llm", deepseek_llm},
          {"deepseek-coder", deepseek_coder},
          {"deepseek-v3", deepseek_v3},
          {"tekken", tekken},
          {"gpt-4o", o200k},
          {"llama4", o200k}};
}

}  // namespace

const std::string& gpt2_split() { return kGpt2; }

PreTokenizer find_pre_tokenizer(std::string_view name, const std::string& source) {
  static const auto known = make_known();
  if (const auto found = known.find(name); found != known.end()) return found->second;
  std::vector<std::string_view> names;
  for (const auto& entry : known) names.push_back(entry.first);
  fail(ErrorCode::unsupported, "{}: unknown pre-tokeniser '{}'; known: {}", source, name,
       fmt::join(names, ", "));
}

}  // namespace ballast
