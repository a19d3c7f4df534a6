// Charts as SVG elements of an HTML page, which sets the colours --s0 to --s7 and the text's.
#pragma once

#include <string>
#include <string_view>

#include "report/plot.h"

namespace ballast {

/// & < > " ' as entities; bytes that are no UTF-8 are replaced, control characters left out.
std::string escape_html(std::string_view text);

/// The plot as an <svg> element without its title. Lines are labelled where they end; one named
/// "exact" is a rule across. Heat maps are small, for several side by side. Throws Error when there
/// is nothing to draw.
std::string chart_svg(const Plot& plot);

/// The colours of heat maps from `low` to `high`, as one <svg> element.
std::string heat_scale_svg(double low, double high);

}  // namespace ballast
