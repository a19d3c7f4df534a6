// Filters of lists and dicts, as Jinja documents them.
#pragma once

#include "text/jinja/value.h"

namespace ballast::jinja {

/// The pairs of a dict; of undefined values none.
List pairs_of(const Value& value, Budget& budget);

/// select, reject, selectattr, rejectattr: (attribute,) test, arguments of the test.
Value choose(const Value& input, const Arguments& arguments, bool keep, bool by_attribute,
             Budget& budget);
Value map_items(const Value& input, const Arguments& arguments, Budget& budget);
Value join(const Value& input, const Arguments& arguments, Budget& budget);
Value sort_items(const Value& input, const Arguments& arguments, Budget& budget);
Value sort_dict(const Value& input, const Arguments& arguments, Budget& budget);
Value unique(const Value& input, const Arguments& arguments, Budget& budget);
Value greatest(const Value& input, const Arguments& arguments, Budget& budget);
Value least(const Value& input, const Arguments& arguments, Budget& budget);

}  // namespace ballast::jinja
