// Memory that ends at any allocation: the call fails with std::bad_alloc or an Error, nothing
// leaks, a file keeps its old content, and the same call then works. operator new is replaced for
// this program; only the thread that runs a scenario is refused memory.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <new>
#include <random>
#include <set>

#include "ballast/cache.h"
#include "ballast/engine/chat.h"
#include "ballast/engine/model.h"
#include "ballast/error.h"
#include "base/output_file.h"
#include "experiments/data/random_model.h"
#include "formats/json_text.h"
#include "report/json.h"
#include "temp_dir.h"

namespace {

thread_local bool counts = false;
thread_local std::size_t allocations = 0;
thread_local std::size_t refused = 0;  ///< the allocation that fails; 0: none
thread_local std::ptrdiff_t blocks = 0;

void* take(std::size_t size, std::size_t alignment) {
  if (counts && ++allocations == refused) throw std::bad_alloc();
  const std::size_t whole =
      (std::max<std::size_t>(size, 1) + alignment - 1) / alignment * alignment;
  void* p = std::aligned_alloc(alignment, whole);
  if (p == nullptr) throw std::bad_alloc();
  if (counts) ++blocks;
  return p;
}

void give_back(void* p) noexcept {
  if (p != nullptr && counts) --blocks;
  std::free(p);
}

}  // namespace

void* operator new(std::size_t size) { return take(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* p) noexcept { give_back(p); }
void operator delete(void* p, std::size_t) noexcept { give_back(p); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return take(size, std::max(alignof(std::max_align_t), static_cast<std::size_t>(alignment)));
}
void operator delete(void* p, std::align_val_t) noexcept { give_back(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { give_back(p); }

namespace ballast {
namespace {

struct Outcome {
  bool failed = false;
  std::string error;
  std::size_t allocations = 0;
  std::ptrdiff_t leaked = 0;
};

/// Runs `scenario` with its n-th allocation refused; 0: none.
Outcome run(const std::function<void()>& scenario, std::size_t n) {
  Outcome out;
  allocations = 0, blocks = 0, refused = n, counts = true;
  try {
    scenario();
  } catch (const std::bad_alloc&) {
    out.failed = true;
  } catch (const Error& error) {
    out.failed = true;
    counts = false;
    out.error = error.what();
    counts = true;
  }
  counts = false;
  out.allocations = allocations, out.leaked = blocks;
  return out;
}

/// `scenario` keeps nothing. `check` runs after each failure.
void refuse_each(
    const std::function<void()>& scenario, const std::function<void()>& check = [] {}) {
  run(scenario, 0);  // what is made once and kept
  const Outcome whole = run(scenario, 0);
  ASSERT_FALSE(whole.failed) << whole.error;
  ASSERT_EQ(whole.leaked, 0);
  ASSERT_GT(whole.allocations, 0U);
  // Each of the first, and some of the others.
  std::set<std::size_t> numbers;
  std::mt19937 rng(1);
  for (std::size_t n = 1; n <= std::min<std::size_t>(whole.allocations, 150); ++n)
    numbers.insert(n);
  for (int i = 0; i < 150; ++i) numbers.insert(1 + rng() % whole.allocations);
  std::size_t failures = 0;
  for (std::size_t n : numbers) {
    const Outcome out = run(scenario, n);
    failures += out.failed;
    ASSERT_EQ(out.leaked, 0) << "allocation " << n << " of " << whole.allocations;
    check();
  }
  // Some are made for speed alone, and done without.
  EXPECT_GT(failures, numbers.size() / 2);
  const Outcome again = run(scenario, 0);
  EXPECT_FALSE(again.failed);
  EXPECT_EQ(again.leaked, 0);
}

Matrix numbers(std::size_t rows, std::size_t cols, unsigned seed) {
  Matrix m(rows, cols);
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < rows * cols; ++i) m.data()[i] = normal(rng);
  return m;
}

CacheShape shape() {
  CacheShape s;
  s.layers = 2, s.kv_heads = 2, s.queries_per_kv_head = 2, s.key_dim = 8, s.value_dim = 8;
  s.logits.scale = 0.3f;
  return s;
}

Cache fed(const CacheOptions& options, std::size_t tokens) {
  static const Matrix kv = numbers(64, 16, 1), queries = numbers(64, 32, 2);
  Cache cache(shape(), options);
  Matrix out(tokens, 32);
  for (std::size_t l = 0; l < 2; ++l) {
    cache.forward(l, kv.view().slice(0, tokens), kv.view().slice(0, tokens),
                  queries.view().slice(0, tokens), out.view());
  }
  if (options.protocol == Protocol::prefill) cache.finish_prompt();
  return cache;
}

class EveryMethod : public testing::TestWithParam<std::string> {};

TEST_P(EveryMethod, ACacheIsFedSummarisedSavedAndLoaded) {
  TempDir dir;
  const std::string method = GetParam();
  for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
    CacheOptions options;
    options.policy = Policy::parse(method);
    options.protocol = protocol;
    options.expected_tokens = 48;
    options.pool = std::make_shared<ThreadPool>(1);
    try {
      fed(options, 48);
    } catch (const Error&) {
      continue;  // the method has no such protocol
    }
    const std::filesystem::path path = dir / "cache";
    fed(options, 40).save(path);
    const std::string old = read_text(path);
    const auto scenario = [&] {
      fed(options, 48).save(path);
      Cache::load(path);
    };
    scenario();
    const std::string whole = read_text(path);
    refuse_each(scenario, [&] {
      const std::string now = read_text(path);
      ASSERT_TRUE(now == old || now == whole);
      ASSERT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EveryMethod,
    testing::Values("exact", "exact:type=q4", "streaming-llm:budget=20,sink=2,window=8",
                    "h2o:budget=20,sink=2,window=8", "snapkv:budget=20,sink=2,window=8",
                    "balancekv:budget=20,sink=2,window=8", "clustergen:budget=20,sink=2,window=8",
                    "keydiff:budget=20,sink=2,window=8",
                    "expected-attention:budget=20,sink=2,window=8"),
    [](const auto& info) {
      std::string name;
      for (char c : info.param.substr(0, info.param.find(','))) {
        if (std::isalnum(static_cast<unsigned char>(c))) name += c;
      }
      return name;
    });

void write_tiny_model(const std::filesystem::path& path) {
  RandomModel tiny;
  tiny.layers = 2, tiny.width = 32, tiny.heads = 2, tiny.kv = 1, tiny.head = 16, tiny.hidden = 32;
  tiny.vocabulary = 300, tiny.positions = 512;
  write_random_model(tiny, path);
}

TEST(Allocation, AModelIsReadRunAndReplayed) {
  TempDir dir;
  write_tiny_model(dir / "m.gguf");
  const auto pool = std::make_shared<ThreadPool>(1);
  refuse_each([&] {
    const Model model(dir / "m.gguf");
    Engine engine(model, pool);
    CacheOptions options;
    options.policy = Policy::parse("replay:bytes=1/2,sink=2,window=8");
    options.pool = pool;
    Sequence sequence(model, options);
    const std::vector<Token> prompt(60, Token{5});
    engine.prefill(sequence, prompt);
    std::vector<float> logits(engine.vocabulary());
    engine.decode(sequence, 7, logits);
  });
}

TEST(Allocation, ATokenizerAndATemplate) {
  TempDir dir;
  write_tiny_model(dir / "m.gguf");
  refuse_each([&] {
    const Tokenizer tokenizer(read_vocabulary(dir / "m.gguf"));
    const std::vector<Token> ids = tokenizer.encode("Some text, 12345.\n\n And more of it.");
    (void)tokenizer.decode(ids);
    const ChatTemplate form(
        "{% for m in messages %}{{ m.role|upper }}: {{ m['content'].split(' ')|join('-') }}{% "
        "endfor %}");
    const ChatMessage messages[] = {{"user", "one two"}, {"assistant", "three"}};
    (void)form.format(messages, {});
  });
}

constexpr const char* kNested =
    R"({"a": [1, [2.5, ["a text that is longer than a string holds in place", {}], []], {"b": [[]]}],
        "c": {"d": {"e": [true, null, {"f": "another text that needs room of its own"}]}}})";

template <typename Value>
void use_json() {
  const auto json = parse_json_text<Value>(kNested, "nested");
  Value copy = json;
  copy["a"].push_back(json["c"]);  // an array that grows moves and destroys what it has
  copy["c"] = {1, json, 2};
  (void)copy.dump();
#ifdef NDEBUG  // else the library asserts what an object that got no memory does not have
  Value made;
  made["x"]["y"] = json;
  made["z"].push_back(json);
#endif
}

TEST(Allocation, JsonIsReadChangedAndDestroyed) {
  refuse_each(use_json<SortedJson>);
  refuse_each(use_json<Json>);
}

TEST(Allocation, JsonThatIsDestroyedNeedsNoMemory) {
  std::string text = "0";
  for (int i = 0; i < 1000; ++i)
    text = (i % 2 == 0 ? "[[1]," : R"({"a":[[2]],"b":)") + text +
           (i % 2 == 0 ? ",[3,[4]]]" : R"(,"c":{"d":5}})");
  auto sorted = std::make_unique<SortedJson>(SortedJson::parse(text));
  auto ordered = std::make_unique<Json>(Json::parse(text));
  const auto destroy = [&] {
    sorted.reset();
    ordered.reset();
  };
  EXPECT_EQ(run(destroy, 1).allocations, 0U);
}

TEST(Allocation, ATokenizerJsonAndToolsForATemplate) {
  TempDir dir;
  write_text(dir / "tokenizer.json",
             R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3},
                           "merges": [["a", "b"]]},
                 "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                   {"type": "Split", "pattern": {"Regex": "[a-z]+"}, "behavior": "Isolated",
                    "invert": false},
                   {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
                 "added_tokens": [{"id": 4, "content": "<e>", "special": true}]})");
  refuse_each([&] {
    const Tokenizer tokenizer(read_vocabulary(dir / "tokenizer.json"));
    (void)tokenizer.encode("abab");
    const ChatTemplate form("{{ tools|tojson }}{{ messages[0].content }}");
    const ChatMessage messages[] = {{"user", "one two"}};
    ChatOptions options;
    options.tools = R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])";
    (void)form.format(messages, options);
  });
}

TEST(Allocation, AWrittenFile) {
  TempDir dir;
  write_text(dir / "a", "old");
  refuse_each([&] { write_file(dir / "a", "new content"); },
              [&] {
                const std::string now = read_text(dir / "a");
                ASSERT_TRUE(now == "old" || now == "new content") << now;
                ASSERT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
              });
}

}  // namespace
}  // namespace ballast
