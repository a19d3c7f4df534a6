#include "base/own_pages.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "ballast/matrix.h"

namespace ballast::test {
namespace {

TEST(OwnPages, AreAlignedAndBigEnough) {
  for (std::size_t bytes : {1, 100, 32'767, 32'768, 32'769, 1'000'000}) {
    auto* memory = static_cast<std::uint8_t*>(allocate_own_pages(bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % kAlignment, 0u);
    for (std::size_t i = 0; i < bytes; ++i) memory[i] = static_cast<std::uint8_t>(i);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(memory[i], static_cast<std::uint8_t>(i));
    free_own_pages(memory, bytes);
  }
}

TEST(OwnPages, HoldAVector) {
  VectorInOwnPages<float> all;
  for (int i = 0; i < 100'000; ++i) all.push_back(static_cast<float>(i));
  const VectorInOwnPages<float> copy = all;
  all.clear();
  all.shrink_to_fit();
  for (int i = 0; i < 100'000; ++i) ASSERT_EQ(copy[i], static_cast<float>(i));
}

}  // namespace
}  // namespace ballast::test
