#include "serve/pace.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

namespace ballast::test {
namespace {

using serve::ChunkPace;
using serve::kPatience;
using serve::TurnPace;

/// Turns that so many pieces of so many seconds are divided into, and the longest of these.
std::pair<int, double> turns(int pieces, double seconds) {
  double now = 100;
  TurnPace pace([&] { return now; });
  int count = 1;
  double began = now, longest = 0;
  for (int i = 0; i < pieces; ++i) {
    now += seconds;
    longest = std::max(longest, now - began);
    if (!pace.over()) continue;
    now += 7;  // others work
    pace.begin();
    began = now;
    ++count;
  }
  return {count, longest};
}

TEST(TurnPace, ATurnIsAsManyPiecesAsTheTimeHolds) {
  EXPECT_EQ(turns(1000, 0.001).first, 6);  // of 200, but for rounding
  EXPECT_EQ(turns(30, 0.09).first, 16);    // two each
  EXPECT_EQ(turns(30, 0.11).first, 31);    // one each
  EXPECT_EQ(turns(30, 5).first, 31);
  for (double piece : {0.0001, 0.001, 0.03, 0.09, 0.11, 0.19}) {
    EXPECT_LE(turns(1000, piece).second, kPatience + 1e-9) << piece;
  }
}

TEST(ChunkPace, AChunkTakesAsLongAsOthersMayWait) {
  ChunkPace pace;
  EXPECT_EQ(pace.next(false), ChunkPace::kMost);
  EXPECT_EQ(pace.next(true), ChunkPace::kLeast);  // nothing is known
  pace.took(256, 2.56);
  EXPECT_EQ(pace.next(true), 20u);
  EXPECT_EQ(pace.next(false), ChunkPace::kMost);
  pace.took(1, 100);
  EXPECT_EQ(pace.next(true), 20u);
  pace.took(4, 8);
  EXPECT_EQ(pace.next(true), ChunkPace::kLeast);
  pace.took(256, 0);
  EXPECT_EQ(pace.next(true), ChunkPace::kMost);
}

}  // namespace
}  // namespace ballast::test
