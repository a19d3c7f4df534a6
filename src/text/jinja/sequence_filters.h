// Filters of lists and dicts, as Jinja documents them.
#pragma once

#include "text/jinja/value.h"

namespace ballast::jinja {

/// The pairs of a dict; of undefined values none.
List pairs_of(const Value& value);

/// select, reject, selectattr, rejectattr: (attribute,) test, arguments of the test.
Value choose(const Value& input, const Arguments& arguments, bool keep, bool by_attribute);
Value map_items(const Value& input, const Arguments& arguments);
Value join(const Value& input, const Arguments& arguments);
Value sort_items(const Value& input, const Arguments& arguments);
Value sort_dict(const Value& input, const Arguments& arguments);
Value unique(const Value& input, const Arguments& arguments);
Value greatest(const Value& input, const Arguments& arguments);
Value least(const Value& input, const Arguments& arguments);

}  // namespace ballast::jinja
