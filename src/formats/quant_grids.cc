// Grids of GGUF's types of one to three bits: the points that groups of eight elements (four for
// IQ3) may take. Facts of the format, ascending; an element has two bits (four for IQ3), the first
// element the lowest.
#include "formats/quant_grids.h"

namespace ballast::quant {

#include "../../data/quant-grids.inc"

}  // namespace ballast::quant
