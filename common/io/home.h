// The folder where a user's Hearth keeps its files.
#pragma once

#include <string>

namespace hearth {

// $HEARTH_HOME, else ~/.hearth; "" when neither HEARTH_HOME nor HOME is set.
std::string HearthHome();

}  // namespace hearth
