// Names of tests whose parameter is a fault point.
#pragma once

#include <string>

#include "gtest/gtest.h"

namespace hearth {

// "store.before_commit" as a test may be called: "store_before_commit".
inline std::string PointName(const testing::TestParamInfo<const char*>& point) {
  std::string name = point.param;
  name[name.find('.')] = '_';
  return name;
}

}  // namespace hearth
