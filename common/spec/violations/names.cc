#include "common/spec/violations/names.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {

int EditDistance(std::string_view a, std::string_view b) {
  // Rows of the optimal string alignment table: two back, one back, present.
  std::vector<int> before(b.size() + 1);
  std::vector<int> last(b.size() + 1);
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    last[j] = static_cast<int>(j);
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string_view NearestName(std::string_view given,
                             const std::vector<std::string_view>& candidates) {
  // A longer text cannot be a slip of any name of ours; the bound keeps hostile input cheap.
  if (given.empty() || given.size() > 128) {
    return {};
  }
  const std::string name = absl::AsciiStrToLower(absl::string_view(given.data(), given.size()));
  std::string_view best;
  int best_distance = 0;
  for (std::string_view candidate : candidates) {
    int distance = EditDistance(name, candidate);
    const std::string_view whole = name;
    const std::string_view shorter = whole.size() < candidate.size() ? whole : candidate;
    const std::string_view longer = whole.size() < candidate.size() ? candidate : whole;
    if (shorter.size() >= 2 && longer.substr(0, shorter.size()) == shorter) {
      distance = std::min(distance, 1);
    }
    if (best.empty() || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  const int limit = std::max<int>(1, static_cast<int>(std::max(name.size(), best.size())) / 3);
  return best_distance <= limit ? best : std::string_view();
}

std::string UnknownNameText(std::string_view value,
                            std::string_view what,
                            const std::vector<std::string_view>& candidates,
                            std::string_view meant) {
  const bool vowel = !what.empty() && std::string_view("aeiou").find(what[0]) != std::string::npos;
  std::string text = Text('"', value, vowel ? "\" is not an " : "\" is not a ", what);
  const std::string_view nearest = meant.empty() ? NearestName(value, candidates) : meant;
  if (!nearest.empty()) {
    text += Text("; did you mean ", nearest, "?");
  }
  text += " (one of ";
  for (size_t i = 0; i < candidates.size(); ++i) {
    text += Text(i == 0 ? "" : ", ", candidates[i]);
  }
  text += ')';
  return text;
}

std::string NamesText(const std::vector<std::string_view>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    const char* const before = i == 0 ? "" : (i + 1 == names.size() ? " and " : ", ");
    text += Text(before, names[i]);
  }
  return text;
}

}  // namespace hearth::spec
