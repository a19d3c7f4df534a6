// Charts as SVG elements of an HTML page, which sets the colours --s0 to --s7 and the text's.
#pragma once

#include <string>
#include <string_view>

#include "pages/plot.h"

namespace ballast {

/// & < > " ' as entities; bytes that are no UTF-8 are replaced, control characters left out.
std::string escape_html(std::string_view text);

/// The plot as an <svg> element without its title. Lines are labelled where they end; one named
/// "exact" of one height is a rule across. Of more than eight others, the best (the lowest where y
/// is an error or a loss) have labels and colours, the rest are thin and grey, with their names as
/// tooltips. Heat maps are small, for several side by side. `narrow`: lines and bars for a phone's
/// width. Throws Error when there is nothing to draw, or over 100,000 points, bars or cells.
std::string chart_svg(const Plot& plot, bool narrow = false);

/// The same as a file of its own, with its title and colours.
std::string chart_file(const Plot& plot);

/// The colours of heat maps from `low` to `high`, as one <svg> element.
std::string heat_scale_svg(double low, double high);

}  // namespace ballast
