// Where two job files differ, key by key. Pure.
#pragma once

#include <string>
#include <vector>

#include "hearth/v1/job.pb.h"
#include "nlohmann/json_fwd.hpp"

namespace hearth::jobctl {

struct KeyDifference {
  std::string path;  // of a field that is no section
  std::string a;     // as the job file writes it; "unset" = not given
  std::string b;
};

// The fields in which `a` and `b` differ, in the order of the job file. Lists and maps are compared
// as a whole.
std::vector<KeyDifference> SpecDifferences(const v1::JobSpec& a, const v1::JobSpec& b);

// The same as a list of objects: {"key": path, `a`: its value, `b`: the other}. `a` and `b` are the
// names of the two.
nlohmann::ordered_json DifferencesJson(const std::string& a,
                                       const std::string& b,
                                       const std::vector<KeyDifference>& differences);

// A table of them, with the names of the two. If it is wider than `columns` (0 = any width), each
// value stands on lines of its own instead, after "-" or "+" as in a diff: values are never cut.
std::string RenderDifferences(const std::string& a,
                              const std::string& b,
                              const std::vector<KeyDifference>& differences,
                              int columns);

}  // namespace hearth::jobctl
