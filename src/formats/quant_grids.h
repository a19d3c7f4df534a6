// Grids of GGUF's types of one to three bits.
#pragma once

#include <cstdint>

namespace ballast::quant {

extern const std::uint16_t kIq2XxsGrid[256], kIq2XsGrid[512], kIq2SGrid[1024], kIq3XxsGrid[256],
    kIq3SGrid[512], kIq1Grid[2048];

}  // namespace ballast::quant
