#include "serve/texts/prefixes.h"

#include <gtest/gtest.h>

#include "serve/texts/prefix_files.h"
#include "support.h"

namespace ballast::test {
namespace {

serve::Prefix read(const std::vector<Token>& tokens) {
  CacheShape shape;
  shape.kv_heads = shape.queries_per_kv_head = 1;
  shape.key_dim = shape.value_dim = 64;
  shape.logits.scale = 1.0f;
  Cache cache(shape, {});
  const Matrix rows = random_matrix(tokens.size(), 64, 1), none(0, 64);
  Matrix out(0, 64);
  cache.forward(0, rows.view(), rows.view(), none.view(), out.view());
  return {"exact", tokens, 0, false, {}, std::move(cache), serve::Lease(), ""};
}

// Questions that branch off one conversation fill the memory; the latest make room for the next.
TEST(Prefixes, AreFoundWhereMemoryIsFull) {
  std::vector<Token> begun(500);
  for (std::size_t i = 0; i < begun.size(); ++i) begun[i] = static_cast<Token>(i);
  serve::Metrics metrics;
  serve::Memory memory(read(begun).bytes() * 5 / 2);
  serve::Prefixes prefixes(memory, metrics, nullptr);
  prefixes.keep(read(begun));
  for (Token branch = 1000; branch < 1006; ++branch) {
    std::vector<Token> asked = begun;
    asked.insert(asked.end(), {branch, 7, 8});
    {
      const auto found = prefixes.find("exact", asked, 0);
      ASSERT_TRUE(found.has_value()) << branch;
      EXPECT_EQ(found->tokens, begun.size());
    }
    prefixes.keep(read(asked));
  }
}

// A fork is removed, and memory for what stays of it is taken from the conversation behind it.
TEST(Prefixes, AreCutWhereMemoryIsFull) {
  std::vector<Token> fork(500), other(500, 7);
  for (std::size_t i = 0; i < fork.size(); ++i) fork[i] = static_cast<Token>(i);
  serve::Metrics metrics;
  serve::Memory memory(2 * read(fork).bytes());
  serve::Prefixes prefixes(memory, metrics, nullptr);
  prefixes.keep(read(other));
  prefixes.keep(read(fork));
  ASSERT_EQ(metrics.prefixes, 2u);
  prefixes.remove("exact", fork, "", [](const serve::Prefix&) {
    return serve::Prefixes::Needed{300, ""};
  });
  EXPECT_EQ(prefixes.held("exact", fork).tokens, 300u);
  EXPECT_EQ(metrics.prefixes, 1u);
}

}  // namespace
}  // namespace ballast::test
