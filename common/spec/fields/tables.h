// The tables of names that a field's row may refer to (FieldRow.table).
#pragma once

#include <string_view>
#include <vector>

namespace hearth::spec {

// The names of the rows, in the order of the help text. `table` is one of those in tables.cc;
// another one is a mistake in a proto and ends the program.
std::vector<std::string_view> TableNames(std::string_view table);

}  // namespace hearth::spec
