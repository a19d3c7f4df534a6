// Which addresses are prefetched: the prefetches themselves cannot be observed.
#include "attention/kernels/prefetch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ballast {
namespace {

using kernels::CacheLevel;
using kernels::kEntryBlock;
using kernels::kLine;
using kernels::Prefetcher;
using kernels::PrefetchRange;

std::size_t size_of(const RowsView& rows) { return rows.rows * rows.stride; }

// Marks the lines that a kernel with `work` lines of present rows prefetches, `together` at a time.
void mark(std::vector<int>& fetched, const std::byte* base, const RowsView& present,
          const RowsView& next, std::size_t work, std::size_t together) {
  const PrefetchRange range{next, next};
  Prefetcher prefetcher(present, &range, work);
  for (std::size_t i = 0; i < work; i += together) {
    const std::uintptr_t at = prefetcher.lines(together) - reinterpret_cast<std::uintptr_t>(base);
    for (std::size_t j = 0; j < together; ++j) {
      // Behind the last line of a block is nothing of this one.
      if (at / kLine + j < fetched.size()) ++fetched[at / kLine + j];
    }
  }
}

// Each line of a block is prefetched before the block begins; f32 lines past the lead, during it.
TEST(Prefetcher, EveryLineIsPrefetchedInTime) {
  for (StorageType type : {StorageType::f32, StorageType::bf16, StorageType::f16, StorageType::int8,
                           StorageType::int4}) {
    for (std::size_t dim : {64, 128, 256}) {
      for (std::size_t together : {1, 2, 4}) {
        const Rows rows(type, dim, 5 * kEntryBlock);
        const std::byte* base = rows.view(0, 1).data;
        std::vector<int> fetched(size_of(rows.view(0, rows.capacity())) / kLine);
        for (std::size_t b = 0; b + 1 < 5; ++b) {
          const RowsView present = rows.view(b * kEntryBlock, kEntryBlock);
          const RowsView next = rows.view((b + 1) * kEntryBlock, kEntryBlock);
          const std::size_t lines = size_of(present) / kLine;
          mark(fetched, base, present, next, lines, together);
          const auto missing = [&](std::size_t from, std::size_t count) {
            return std::count(fetched.begin() + static_cast<std::ptrdiff_t>(from),
                              fetched.begin() + static_cast<std::ptrdiff_t>(from + count), 0);
          };
          const bool has_lead = type == StorageType::f32;
          const std::size_t lead = has_lead ? std::min(lines, kernels::kLead / kLine) : lines;
          EXPECT_EQ(missing((b + 1) * lines, lead), 0) << int(type) << " " << dim << " " << b;
          // Nothing prefetches the first lead.
          EXPECT_EQ(missing(b * lines + lead, lines - lead), 0) << int(type) << " " << dim;
          if (has_lead && lead < lines) {
            EXPECT_EQ(missing((b + 1) * lines + lead, lines - lead),
                      static_cast<std::ptrdiff_t>(lines - lead));
          }
        }
        EXPECT_EQ(*std::max_element(fetched.begin(), fetched.end()), 1) << "prefetched twice";
      }
    }
  }
}

// Lines of the present block past its first kSoon bytes, then the first lines of what is read next.
TEST(Prefetcher, LinesNeededSoonAreFetchedIntoL1) {
  for (StorageType type : {StorageType::bf16, StorageType::int8, StorageType::int4}) {
    for (std::size_t dim : {32, 64, 128}) {
      const Rows keys(type, dim, 2 * kEntryBlock), values(type, dim, kEntryBlock);
      const RowsView present = keys.view(0, kEntryBlock),
                     following = keys.view(kEntryBlock, kEntryBlock),
                     between = values.view(0, kEntryBlock);
      const std::size_t lines = size_of(present) / kLine, soon = Prefetcher::kSoon / kLine;
      for (const PrefetchRange& range :
           {PrefetchRange{following, between}, PrefetchRange{between, between}}) {
        Prefetcher prefetcher(present, &range, lines);
        for (std::size_t i = 0; i < lines; ++i) {
          const std::uintptr_t at = prefetcher.soon(prefetcher.lines<CacheLevel::l2>(1));
          const std::size_t later = i + soon;
          const std::byte* expected =
              later < lines ? present.data + later * kLine : between.data + (later - lines) * kLine;
          EXPECT_EQ(at, reinterpret_cast<std::uintptr_t>(expected)) << int(type) << " " << dim;
        }
      }
    }
  }
}

TEST(Prefetcher, WithoutRowsToComeNothingIsPrefetched) {
  const Rows rows(StorageType::bf16, 64, kEntryBlock);
  const RowsView present = rows.view(0, kEntryBlock), none = rows.view(kEntryBlock, 0);
  const auto begin = reinterpret_cast<std::uintptr_t>(present.data);
  const PrefetchRange nothing{none, none};
  for (const PrefetchRange* range : {static_cast<const PrefetchRange*>(nullptr), &nothing}) {
    Prefetcher prefetcher(present, range, 256);
    for (int i = 0; i < 300; ++i) {
      const std::uintptr_t at = prefetcher.lines(1);
      EXPECT_TRUE(at < begin || at >= begin + size_of(present));
    }
  }
}

TEST(Prefetcher, RowsOfAPartFitIntoHalfOfTheLead) {
  for (std::size_t dim : {1, 64, 100, 256}) {
    const Rows rows(StorageType::f32, dim, kEntryBlock);
    const RowsView view = rows.view(0, kEntryBlock);
    const std::size_t together = kernels::rows_together(view);
    EXPECT_GE(together, 1u);
    EXPECT_LE(together * view.stride, kernels::kLead / 2);
  }
  const Rows rows(StorageType::f16, 256, kEntryBlock);
  EXPECT_EQ(kernels::rows_together(rows.view(0, kEntryBlock)), kEntryBlock);
}

}  // namespace
}  // namespace ballast
