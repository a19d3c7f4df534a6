// Documents that were read each alone, and stand one behind the other.
#include <gmock/gmock.h>

#include <memory>
#include <numeric>

#include "attention/rotary.h"
#include "ballast/error.h"
#include "ballast/joined.h"
#include "ballast/random.h"
#include "ballast/scoring.h"
#include "ballast/threads.h"
#include "cache/cache_parts.h"
#include "cache/streams.h"

namespace ballast::test {
namespace {

using testing::HasSubstr;

constexpr std::size_t kHeads = 2, kGroup = 2, kKey = 16, kValue = 24;

/// Rows of heads as they are after rotation from position `first` on.
Matrix turned(const CacheShape& shape, const Matrix& rows, std::size_t first) {
  Matrix out(rows.rows(), rows.cols());
  std::vector<float> table(2 * shape.rotary.frequencies.size());
  for (std::size_t t = 0; t < rows.rows(); ++t) {
    std::ranges::copy(rows[t], out[t].begin());
    rotation_at(shape.rotary, static_cast<double>(first + t), table);
    rotate(shape.rotary, table, kKey, out[t]);
  }
  return out;
}

Matrix rows_of(const Matrix& all, std::size_t first, std::size_t count) {
  Matrix out(count, all.cols());
  for (std::size_t t = 0; t < count; ++t) std::ranges::copy(all[first + t], out[t].begin());
  return out;
}

/// A text of three documents and a question.
struct Texts {
  static constexpr std::size_t kTokens = 170;
  struct Part {
    std::size_t first, count;  ///< tokens of the whole text
    std::size_t before;        ///< tokens that are read before them and left out
  };
  const std::vector<Part> parts = {{0, 60, 0}, {60, 50, 4}, {110, 40, 7}};
  static constexpr std::size_t kDocuments = 150;

  Stream text = make_stream(kTokens, 11);
  Stream other = make_stream(16, 77);  ///< what stands before the later documents

  Texts() {
    text.shape.rotary.frequencies = {1.0f, 0.31f, 0.1f, 0.02f};
    text.shape.rotary.magnitude = 1.1f;
  }

  void read(Cache& cache, const Stream& from, std::size_t first, std::size_t count,
            std::size_t position, MutableMatrix out) const {
    for (std::size_t l = 0; l < 2; ++l) {
      const Matrix keys = turned(text.shape, rows_of(from.keys[l], first, count), position);
      const Matrix queries = turned(text.shape, rows_of(from.queries[l], first, count), position);
      const Matrix values = rows_of(from.values[l], first, count);
      cache.forward(l, keys.view(), values.view(), queries.view(), out);
      if (!scoring_of(cache).takes_scores()) continue;
      Matrix scores(count, kHeads);
      for (std::size_t t = 0; t < count; ++t) {
        for (std::size_t h = 0; h < kHeads; ++h) {
          scores[t][h] = static_cast<float>(random_unit(
              {3, static_cast<std::uint32_t>(l), static_cast<std::uint32_t>(h)}, first + t));
        }
      }
      scoring_of(cache).note_scores(l, scores.view());
    }
  }
  std::vector<JoinedDocument> documents(const CacheOptions& options) const {
    std::vector<JoinedDocument> out;
    for (const Part& part : parts) {
      Cache cache(text.shape, options);
      Matrix unused(64, kHeads * kGroup * kValue);
      if (part.before > 0) {
        read(cache, other, 0, part.before, 0, unused.view().slice(0, part.before));
      }
      read(cache, text, part.first, part.count, part.before, unused.view().slice(0, part.count));
      cache.finish_prompt();
      out.push_back({std::make_shared<const Cache>(std::move(cache)), part.before});
    }
    return out;
  }
  /// The answers to the question, `piece` tokens at a time.
  Matrix ask(Cache& cache, std::size_t piece = 20) const {
    Matrix out(kTokens - kDocuments, kHeads * kGroup * kValue);
    for (std::size_t t = cache.tokens(); t < kTokens;) {
      const std::size_t n = std::min(piece, kTokens - t);
      read(cache, text, t, n, t, out.view().slice(t - kDocuments, n));
      t += n;
    }
    return out;
  }
};

void expect_near(const Matrix& a, const Matrix& b, float most) {
  for (std::size_t r = 0; r < a.rows(); ++r) {
    for (std::size_t c = 0; c < a.cols(); ++c) ASSERT_NEAR(a[r][c], b[r][c], most) << r << ' ' << c;
  }
}

TEST(Joined, ExactDocumentsAnswerLikeOneText) {
  for (const int kind : {0, 1, 2, 3}) {
    Texts texts;
    if (kind == 1) texts.text.shape.alibi_slopes = {0.5f, 0.25f, 0.1f, 0.05f};
    if (kind == 2) texts.text.shape.sliding_windows = {70, 0};
    if (kind == 3) texts.text.shape.sink_logits = {3, 2, 1, 0, 4, 3, 2, 1};
    const CacheOptions exact = options_of("exact", Protocol::prefill);
    Cache whole(texts.text.shape, exact);
    Matrix unused(Texts::kDocuments, kHeads * kGroup * kValue);
    texts.read(whole, texts.text, 0, Texts::kDocuments, 0, unused.view());
    Cache joined = join_documents(texts.documents(exact));
    EXPECT_EQ(joined.tokens(), Texts::kDocuments);
    EXPECT_EQ(joined_tokens(joined), Texts::kDocuments);
    expect_near(texts.ask(joined), texts.ask(whole), 2e-5f);
    EXPECT_EQ(joined.tokens(), Texts::kTokens);
  }
}

/// In double, over the entries that the documents hold, at their positions among all.
Matrix reference(const Texts& texts, const std::vector<JoinedDocument>& documents) {
  const CacheShape& shape = texts.text.shape;
  Matrix out(Texts::kTokens - Texts::kDocuments, kHeads * kGroup * kValue);
  for (std::size_t h = 0; h < kHeads; ++h) {
    struct Entry {
      std::vector<double> key, value;
      double at;
    };
    std::vector<Entry> entries;
    const auto add = [&](std::span<const float> key, std::span<const float> value, double shift,
                         double at) {
      // Turned by where its document stands.
      Entry e{{key.begin(), key.end()}, {value.begin(), value.end()}, at};
      const std::size_t half = shape.rotary.frequencies.size();
      for (std::size_t i = 0; i < half; ++i) {
        const double angle = shift * double{shape.rotary.frequencies[i]};
        const double x = e.key[i], y = e.key[half + i];
        e.key[i] = x * std::cos(angle) - y * std::sin(angle);
        e.key[half + i] = x * std::sin(angle) + y * std::cos(angle);
      }
      entries.push_back(std::move(e));
    };
    double end = 0;
    for (const JoinedDocument& d : documents) {
      const double shift = end - static_cast<double>(d.left_out);
      std::vector<float> key(kKey), value(kValue);
      for (const Segment& segment : d.cache->segments(1, h)) {
        for (std::size_t i = 0; i < segment.keys.rows; ++i) {
          const Position at = segment.first_position >= 0
                                  ? segment.first_position + static_cast<Position>(i)
                                  : segment.keys.position(i);
          if (at < static_cast<Position>(d.left_out)) continue;
          segment.keys.decode(i, key);
          segment.values.decode(i, value);
          add(key, value, shift, shift + double{static_cast<float>(at)});
        }
      }
      end += static_cast<double>(d.cache->tokens() - d.left_out);
    }
    const std::size_t asked = Texts::kTokens - Texts::kDocuments;
    const Matrix keys =
        turned(shape, rows_of(texts.text.keys[1], Texts::kDocuments, asked), Texts::kDocuments);
    const Matrix queries =
        turned(shape, rows_of(texts.text.queries[1], Texts::kDocuments, asked), Texts::kDocuments);
    for (std::size_t t = 0; t < asked; ++t) {
      add(keys[t].subspan(h * kKey, kKey),
          texts.text.values[1][Texts::kDocuments + t].subspan(h * kValue, kValue), 0,
          static_cast<double>(Texts::kDocuments + t));
    }
    for (std::size_t t = 0; t < asked; ++t) {
      for (std::size_t g = 0; g < kGroup; ++g) {
        const auto query = queries[t].subspan((h * kGroup + g) * kKey, kKey);
        double sum = 0;
        std::vector<double> mean(kValue);
        for (const Entry& e : entries) {
          if (e.at > static_cast<double>(Texts::kDocuments + t)) continue;
          double logit = 0;
          for (std::size_t i = 0; i < kKey; ++i) logit += e.key[i] * double{query[i]};
          const double weight = std::exp(logit * double{shape.logits.scale});
          sum += weight;
          for (std::size_t i = 0; i < kValue; ++i) mean[i] += weight * e.value[i];
        }
        for (std::size_t i = 0; i < kValue; ++i) {
          out[t][(h * kGroup + g) * kValue + i] = static_cast<float>(mean[i] / sum);
        }
      }
    }
  }
  return out;
}

TEST(Joined, CompressedDocumentsAnswerByTheirRows) {
  const Texts texts;
  for (const char* method :
       {"calibrated:bytes=1/4,chunk=16,sink=1,window=2",
        "calibrated:bytes=40%,chunk=16,sink=10,window=2", "h2o:rate=0.5", "exact"}) {
    CacheOptions options = options_of(method, Protocol::prefill);
    if (options.policy.info().name == "exact")
      options.key_type = options.value_type = StorageType::q4;
    const auto documents = texts.documents(options);
    const std::vector<std::byte> before = documents[1].cache->to_bytes();
    Cache joined = join_documents(documents);
    expect_near(texts.ask(joined), reference(texts, documents), 2e-2f);  // low bits round queries
    EXPECT_EQ(documents[1].cache->to_bytes(), before) << method;
  }
}

/// Tokens of the documents are read again as those of `changed`, some at a time.
Matrix read_again(const Texts& texts, Cache& joined, std::span<const Position> places,
                  const Stream& changed, std::size_t layer, std::size_t piece = 7) {
  Matrix out(places.size(), kHeads * kGroup * kValue);
  const auto rows = [&](const Matrix& all, std::size_t first, std::size_t count, bool turns) {
    Matrix some(count, all.cols());
    for (std::size_t t = 0; t < count; ++t) {
      const auto place = static_cast<std::size_t>(places[first + t]);
      Matrix row = rows_of(all, place, 1);
      if (turns) row = turned(texts.text.shape, row, place);
      std::ranges::copy(row[0], some[t].begin());
    }
    return some;
  };
  for (std::size_t first = 0; first < places.size(); first += piece) {
    const std::size_t count = std::min(piece, places.size() - first);
    documents_of(joined).read_again(
        layer, places.subspan(first, count), rows(changed.keys[layer], first, count, true).view(),
        rows(changed.values[layer], first, count, false).view(),
        rows(changed.queries[layer], first, count, true).view(), out.view().slice(first, count));
  }
  return out;
}

TEST(Joined, TokensReadAgainReplaceTheirRows) {
  for (const int kind : {0, 1, 2, 3}) {
    Texts texts;
    if (kind == 1) texts.text.shape.alibi_slopes = {0.5f, 0.25f, 0.1f, 0.05f};
    if (kind == 2) texts.text.shape.sliding_windows = {70, 0};
    if (kind == 3) texts.text.shape.sink_logits = {3, 2, 1, 0, 4, 3, 2, 1};
    const std::vector<Position> places = {61, 62, 70, 99, 109, 110, 111, 120, 121, 149};
    const Stream other = make_stream(Texts::kTokens, 5);
    // What it must be: a text of which these tokens are others.
    Texts changed;
    changed.text.shape = texts.text.shape;
    for (std::size_t l = 0; l < 2; ++l) {
      for (const Position place : places) {
        const auto t = static_cast<std::size_t>(place);
        std::ranges::copy(other.keys[l][t], changed.text.keys[l][t].begin());
        std::ranges::copy(other.values[l][t], changed.text.values[l][t].begin());
        std::ranges::copy(other.queries[l][t], changed.text.queries[l][t].begin());
      }
    }
    const CacheOptions exact = options_of("exact", Protocol::prefill);
    Cache whole(texts.text.shape, exact);
    Matrix answers(Texts::kDocuments, kHeads * kGroup * kValue);  // of the second layer
    changed.read(whole, changed.text, 0, Texts::kDocuments, 0, answers.view());
    Cache joined = join_documents(texts.documents(exact));
    const std::size_t bytes = joined.bytes().total(), entries = joined.entries();
    documents_of(joined).hide(places);
    read_again(texts, joined, places, other, 0);
    const Matrix again = read_again(texts, joined, places, other, 1);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const auto t = static_cast<std::size_t>(places[i]);
      for (std::size_t c = 0; c < again.cols(); ++c) {
        ASSERT_NEAR(again[i][c], answers[t][c], 2e-5f) << kind << ' ' << t;
      }
    }
    EXPECT_EQ(joined.entries(), entries);
    EXPECT_GT(joined.bytes().total(), bytes);
    EXPECT_EQ(joined.kept(1, 0).size(), Texts::kDocuments);
    expect_near(texts.ask(joined), changed.ask(whole), 2e-5f);
  }
}

TEST(Joined, TokensOfCompressedDocumentsAreReadAgain) {
  const Texts texts;
  for (const char* method : {"calibrated:bytes=1/4,chunk=16,sink=1,window=2", "h2o:rate=0.5"}) {
    const auto documents = texts.documents(options_of(method, Protocol::prefill));
    // All of the later two: as if they had been read behind the first one.
    std::vector<Position> places(Texts::kDocuments - 60);
    std::iota(places.begin(), places.end(), 60);
    Cache joined = join_documents(documents);
    documents_of(joined).hide(places);
    for (const std::size_t layer : {0u, 1u}) {
      read_again(texts, joined, places, texts.text, layer, 90);
    }
    EXPECT_EQ(joined.kept(0, 1).size(), documents[0].cache->kept(0, 1).size() + places.size());
    Cache behind = join_documents({documents[0]});
    Matrix unused(places.size(), kHeads * kGroup * kValue);
    texts.read(behind, texts.text, 60, places.size(), 60, unused.view());
    expect_near(texts.ask(joined), texts.ask(behind), 2e-5f);
  }
}

TEST(Joined, DoesNotDependOnThreadsOrCalls) {
  const Texts texts;
  Matrix expected;
  for (const std::size_t piece : {1u, 3u, 20u}) {
    CacheOptions options = options_of("calibrated:bytes=1/4,chunk=16", Protocol::prefill);
    options.pool = std::make_shared<ThreadPool>(piece == 3 ? 3 : 1);
    Cache joined = join_documents(texts.documents(options));
    Cache copy = joined.clone();
    Matrix out = texts.ask(joined, piece);
    const bool first = expected.rows() == 0;
    if (first) expected = std::move(out);
    EXPECT_TRUE(first || same_bits(out, expected)) << piece;
    EXPECT_TRUE(same_bits(texts.ask(copy), expected)) << "a copy";
    joined.truncate(Texts::kDocuments + 3);
    texts.ask(joined, piece);
    EXPECT_EQ(joined.tokens(), Texts::kTokens);
  }
}

TEST(Joined, SaysWhatItHolds) {
  const Texts texts;
  const auto documents =
      texts.documents(options_of("calibrated:bytes=1/4,chunk=16", Protocol::prefill));
  Cache joined = join_documents(documents);
  std::size_t entries = 0, bytes = 0;
  for (const JoinedDocument& d : documents) {
    bytes += d.cache->bytes().total();
    for (const KeptEntry& entry : d.cache->kept(1, 0)) {
      entries += entry.position >= static_cast<Position>(d.left_out) ? 1 : 0;
    }
  }
  EXPECT_EQ(joined.bytes().total(), bytes);
  const std::vector<KeptEntry> kept = joined.kept(1, 0);
  EXPECT_EQ(kept.size(), entries);
  for (std::size_t i = 1; i < kept.size(); ++i) {
    EXPECT_LT(kept[i - 1].position, kept[i].position);
  }
  EXPECT_LT(kept.back().position, static_cast<Position>(Texts::kDocuments));
}

TEST(Joined, RefusesWhatCannotBe) {
  const Texts texts;
  const CacheOptions exact = options_of("exact", Protocol::prefill);
  const auto error_of = [](const auto& act) -> std::string {
    try {
      act();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  auto documents = texts.documents(exact);
  Cache joined = join_documents(documents);
  EXPECT_THAT(error_of([&] { joined.to_bytes(); }), HasSubstr("a joined cache is not saved"));
  EXPECT_THAT(error_of([&] { joined.truncate(100); }), HasSubstr("cannot be truncated to 100"));
  EXPECT_THAT(error_of([&] { join_documents({}); }), HasSubstr("no documents"));
  documents.push_back({std::make_shared<const Cache>(std::move(joined)), 0});
  EXPECT_THAT(error_of([&] { join_documents(documents); }), HasSubstr("each is one text"));
  documents.back() = {std::make_shared<const Cache>(make_stream(1, 5).shape, exact), 0};
  EXPECT_THAT(error_of([&] { join_documents(documents); }), HasSubstr("several models"));
  documents.back() = {documents[0].cache, documents[0].cache->tokens()};
  EXPECT_THAT(error_of([&] { join_documents(documents); }), HasSubstr("60 are left out"));
}

}  // namespace
}  // namespace ballast::test
