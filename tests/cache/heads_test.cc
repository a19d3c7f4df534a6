// Keys, values, queries and outputs in the caller's element types and layouts.
#include <array>
#include <cstring>

#include "ballast/threads.h"
#include "cache/streams.h"
#include "storage/round.h"

namespace ballast::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr ElementType kTypes[] = {ElementType::f32, ElementType::f16, ElementType::bf16};

float rounded(ElementType type, float x) {
  if (type == ElementType::f16) return kernels::f16_decode(kernels::f16_encode(x));
  if (type == ElementType::bf16) return kernels::bf16_decode(kernels::bf16_encode(x));
  return x;
}

Matrix rounded(ElementType type, const Matrix& m) {
  Matrix out(m.rows(), m.cols());
  for (std::size_t i = 0; i < m.rows() * m.cols(); ++i) out.data()[i] = rounded(type, m.data()[i]);
  return out;
}

enum class Layout { token_major, head_major, spread };

/// An array of heads as an engine might hold it.
struct Heads {
  Heads(ElementType type, Layout layout, std::size_t tokens, std::size_t heads, std::size_t dim) {
    if (layout == Layout::token_major) {
      view = MutableHeadsView::token_major(nullptr, type, tokens, heads, dim);
    } else if (layout == Layout::head_major) {
      view = MutableHeadsView::head_major(nullptr, type, tokens, heads, dim);
    } else {
      view = {nullptr, type, tokens, heads, dim, heads * (dim + 3) + 5, dim + 3};
    }
    const std::size_t size = tokens * view.token_stride + heads * view.head_stride + 64;
    data.assign(size * element_bytes(type), std::byte{0xff});  // NaN wherever nothing is written
    view.data = data.data();
  }
  Heads(ElementType type, Layout layout, const Matrix& rows, std::size_t heads)
      : Heads(type, layout, rows.rows(), heads, rows.cols() / heads) {
    for (std::size_t t = 0; t < rows.rows(); ++t) {
      for (std::size_t c = 0; c < rows.cols(); ++c) set(t, c, rows[t][c]);
    }
  }
  void* at(std::size_t t, std::size_t c) {
    auto* head = static_cast<std::byte*>(view.at(t, c / view.dim));
    return head + c % view.dim * element_bytes(view.type);
  }
  void set(std::size_t t, std::size_t c, float x) {
    if (view.type == ElementType::f32) {
      std::memcpy(at(t, c), &x, sizeof(x));
      return;
    }
    const std::uint16_t code =
        view.type == ElementType::f16 ? kernels::f16_encode(x) : kernels::bf16_encode(x);
    std::memcpy(at(t, c), &code, sizeof(code));
  }
  float get(std::size_t t, std::size_t c) {
    float x;
    std::uint16_t code;
    std::memcpy(&code, at(t, c), sizeof(code));
    if (view.type == ElementType::f16) return kernels::f16_decode(code);
    if (view.type == ElementType::bf16) return kernels::bf16_decode(code);
    std::memcpy(&x, at(t, c), sizeof(x));
    return x;
  }

  std::vector<std::byte> data;
  MutableHeadsView view;
};

struct Case {
  const char* method;
  Protocol protocol;
  Positions positions;
};

class HeadsInCache : public testing::TestWithParam<Case> {};

// More tokens than rows are packed at once; then tokens one by one.
TEST_P(HeadsInCache, EveryTypeAndLayoutGivesTheBitsOfFloat32) {
  constexpr std::size_t kTokens = 700, kPrompt = 690;
  Stream stream = make_stream(kTokens, 5);
  if (GetParam().positions == Positions::rolling) {
    stream.shape.rotary.frequencies = {1.0f, 0.3f, 0.1f, 0.01f};
  }
  CacheOptions options = options_of(GetParam().method, GetParam().protocol);
  options.positions = GetParam().positions;
  for (ElementType type : kTypes) {
    Stream same;
    same.shape = stream.shape;
    for (std::size_t l = 0; l < 2; ++l) {
      same.keys.push_back(rounded(type, stream.keys[l]));
      same.values.push_back(rounded(type, stream.values[l]));
      same.queries.push_back(rounded(type, stream.queries[l]));
    }
    Cache plain(stream.shape, options);
    Matrix expected = feed(plain, same, 0, kPrompt, kPrompt, kPrompt);
    Matrix after = feed(plain, same, kPrompt, kTokens, 1);
    for (Layout layout : {Layout::token_major, Layout::head_major, Layout::spread}) {
      Cache cache(stream.shape, options);
      Heads out(type, layout, kTokens, 4, 24);
      std::vector<Heads> keys, values, queries;
      for (std::size_t l = 0; l < 2; ++l) {
        keys.emplace_back(type, layout, stream.keys[l], 2);
        values.emplace_back(type, layout, stream.values[l], 2);
        queries.emplace_back(type, layout, stream.queries[l], 4);
      }
      for (auto [begin, count] : {std::pair<std::size_t, std::size_t>{0, kPrompt},
                                  {690, 1},
                                  {691, 1},
                                  {692, 3},
                                  {695, 5}}) {
        for (std::size_t l = 0; l < 2; ++l) {
          cache.forward(l, keys[l].view.slice(begin, count), values[l].view.slice(begin, count),
                        queries[l].view.slice(begin, count), out.view.slice(begin, count));
        }
        if (begin == 0) cache.finish_prompt();
      }
      for (std::size_t t = 0; t < kTokens; ++t) {
        for (std::size_t c = 0; c < 96; ++c) {
          const float want = t < kPrompt ? expected[t][c] : after[t - kPrompt][c];
          ASSERT_EQ(out.get(t, c), rounded(type, want))
              << "type " << int(type) << ", layout " << int(layout) << ", token " << t << ", " << c;
        }
      }
      EXPECT_EQ(cache.to_bytes(), plain.to_bytes());
      if (layout == Layout::spread && type == ElementType::f32) {  // between heads nothing changed
        EXPECT_TRUE(std::isnan(static_cast<float*>(out.view.data)[24]));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, HeadsInCache,
    testing::Values(Case{"exact", Protocol::prefill, Positions::absolute},
                    Case{"h2o:budget=96", Protocol::prefill, Positions::absolute},
                    Case{"snapkv:budget=96", Protocol::stream, Positions::absolute},
                    Case{"streaming-llm:budget=64", Protocol::stream, Positions::rolling}),
    [](const auto& info) {
      std::string name(info.param.method);
      return name.substr(0, name.find_first_of(":-")) + std::string(to_string(info.param.protocol));
    });

TEST(Heads, MisfitsAreNamed) {
  Stream s = make_stream(3, 3);
  Cache cache(s.shape, options_of("exact", Protocol::prefill));
  Heads keys(ElementType::f16, Layout::head_major, s.keys[0], 2);
  Heads values(ElementType::bf16, Layout::spread, s.values[0], 2);
  Heads queries(ElementType::f32, Layout::token_major, s.queries[0], 4);
  Heads out(ElementType::f32, Layout::token_major, 3, 4, 24);
  const auto error = [&] {
    return error_of([&] { cache.forward(0, keys.view, values.view, queries.view, out.view); });
  };
  keys.view.dim = 8;
  EXPECT_THAT(error(), AllOf(HasSubstr("keys are 3 tokens × 2 heads × 8"), HasSubstr("× 16")));
  keys.view.dim = 16;
  values.view.tokens = 2;
  EXPECT_THAT(error(), HasSubstr("values are 2 tokens"));
  values.view.tokens = 3;
  out.view.data = nullptr;
  EXPECT_THAT(error(), HasSubstr("without data"));
  out.view.data = out.data.data();
  values.set(2, 30, 1.0f);
  const std::uint16_t infinity = 0xff80, nan = 0x7c01;
  std::memcpy(values.at(2, 30), &infinity, sizeof(infinity));
  EXPECT_THAT(error(), HasSubstr("values: token 2, number 30 is -inf"));
  std::memcpy(keys.at(1, 17), &nan, sizeof(nan));
  EXPECT_THAT(error(), HasSubstr("keys: token 1, number 17 is nan"));
  EXPECT_EQ(cache.tokens(), 0u);
}

TEST(Heads, TheFiniteCheckCanBeTurnedOff) {
  Stream s = make_stream(4, 3);
  s.values[0][3][0] = std::numeric_limits<float>::infinity();
  CacheOptions options = options_of("exact", Protocol::prefill);
  Cache checks(s.shape, options);
  EXPECT_THAT(error_of([&] { feed(checks, s, 0, 4, 4); }), HasSubstr("values"));
  options.check_finite = false;
  Cache trusts(s.shape, options);
  const Matrix out = feed(trusts, s, 0, 4, 4);
  EXPECT_EQ(trusts.tokens(), 4u);
  EXPECT_TRUE(std::isfinite(out[3][0])) << "layer 1 has finite values";
}

TEST(Layers, OneThatIsAheadOrLagsIsAnError) {
  Stream s = make_stream(8, 3);
  Cache cache(s.shape, options_of("local:budget=4", Protocol::prefill));
  const auto forward = [&](std::size_t layer, std::size_t begin, std::size_t count) {
    Matrix out(count, 96);
    cache.forward(layer, s.keys[layer].view().slice(begin, count),
                  s.values[layer].view().slice(begin, count),
                  s.queries[layer].view().slice(begin, count), out.view());
  };
  forward(0, 0, 4);
  forward(1, 0, 2);
  EXPECT_THAT(error_of([&] { forward(1, 2, 4); }),
              AllOf(HasSubstr("layer 1 would have 6 tokens"), HasSubstr("layer 0 has 4")));
  EXPECT_EQ(cache.tokens(1), 2u);
  EXPECT_THAT(error_of([&] { cache.finish_prompt(); }),
              AllOf(HasSubstr("layer 1 has 2 tokens"), HasSubstr("layer 0 has 4")));
  cache.finish_prompt(0);
  EXPECT_THAT(error_of([&] { cache.finish_prompt(1); }),
              AllOf(HasSubstr("layer 1 has 2 tokens"), HasSubstr("layer 0 finished its prompt")));
  forward(0, 4, 1);
  forward(1, 2, 2);
  cache.finish_prompt(1);
  EXPECT_EQ(cache.entries(1), 4u);
}

TEST(ForwardBatch, GivesWhatACallEachGives) {
  const int before = threads();
  for (int workers : {1, 3}) {
    set_threads(workers);
    std::vector<Stream> streams;
    std::vector<Cache> together, alone;
    for (std::size_t i = 0; i < 5; ++i) {
      streams.push_back(make_stream(40 + i, 50 + i));
      const CacheOptions options =
          options_of(i % 2 == 0 ? "h2o:budget=24" : "exact", Protocol::stream);
      together.emplace_back(streams[i].shape, options);
      alone.emplace_back(streams[i].shape, options);
    }
    std::vector<Matrix> out;
    for (const Stream& s : streams) out.emplace_back(s.tokens(), 96);
    for (std::size_t l = 0; l < 2; ++l) {
      std::vector<BatchItem> items;
      for (std::size_t i = 0; i < 5; ++i) {
        items.push_back({&together[i], HeadsView::of(streams[i].keys[l].view(), 2),
                         HeadsView::of(streams[i].values[l].view(), 2),
                         HeadsView::of(streams[i].queries[l].view(), 4),
                         MutableHeadsView::of(out[i].view(), 4)});
      }
      forward_batch(l, items);
      const auto error = [&] { return error_of([&] { forward_batch(l, items); }); };
      items[3].cache = &together[1];
      EXPECT_THAT(error(), HasSubstr("sequences 1 and 3 of a batch have the same cache"));
      items[3].cache = nullptr;
      EXPECT_THAT(error(), HasSubstr("sequence 3 of a batch has no cache"));
    }
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_TRUE(same_bits(out[i], feed(alone[i], streams[i], 0, 40 + i, 40 + i))) << i;
      EXPECT_EQ(together[i].to_bytes(), alone[i].to_bytes()) << i;
    }
  }
  set_threads(before);
}

TEST(ForwardBatch, ABadSequenceLeavesAllAsTheyWere) {
  Stream good = make_stream(4, 1), bad = make_stream(4, 2);
  bad.keys[0][2][5] = std::numeric_limits<float>::quiet_NaN();
  Cache a(good.shape, options_of("exact", Protocol::prefill)), b = a.clone();
  Matrix out(4, 96);
  const auto item = [&](Cache& cache, const Stream& s) {
    return BatchItem{&cache, HeadsView::of(s.keys[0].view(), 2),
                     HeadsView::of(s.values[0].view(), 2), HeadsView::of(s.queries[0].view(), 4),
                     MutableHeadsView::of(out.view(), 4)};
  };
  const std::array items = {item(a, good), item(b, bad)};
  EXPECT_THAT(error_of([&] { forward_batch(0, items); }), HasSubstr("keys: token 2, number 5"));
  EXPECT_EQ(a.tokens() + b.tokens(), 0u);
}

}  // namespace
}  // namespace ballast::test
