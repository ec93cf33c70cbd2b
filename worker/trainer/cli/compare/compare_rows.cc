#include "worker/trainer/cli/compare/compare_rows.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace hearth::trainer {
namespace {

// Student's t at 97.5 % for 1, 2, ... degrees of freedom. Beyond the last it is smaller, which
// makes the last one careful.
constexpr double kStudent[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447,
                               2.365,  2.306, 2.262, 2.228, 2.201, 2.179};

// A list names so many and counts the others.
constexpr size_t kNamed = 8;

const ComparedRun& RunOf(const Comparison& comparison, size_t run) {
  return comparison.runs[run];
}

// The same number of each of the row's runs.
std::optional<MeanOfSeeds> MeanOfRuns(const Comparison& comparison,
                                      const CompareRow& row,
                                      std::optional<double> ComparedRun::*number) {
  std::vector<double> values;
  for (const size_t i : row.runs) {
    const ComparedRun& run = RunOf(comparison, i);
    if (run.ok() && (run.*number).has_value()) {
      values.push_back(*(run.*number));
    }
  }
  return MeanOf(values);
}

// The gap that the row is judged by, of one run.
std::optional<double> GapOf(const CompareRow& row, const ComparedRun& run) {
  return row.held_out_gap.has_value() ? run.held_out_gap : run.training_gap;
}

int DigitsOf(const MeanOfSeeds& gap) {
  return gap.seeds > 1 && gap.error < 0.005 ? 3 : 2;
}

// Differences of the two rows' gaps, seed by seed.
std::optional<MeanOfSeeds> Difference(const Comparison& comparison,
                                      const CompareRow& a,
                                      const CompareRow& b) {
  std::vector<double> differences;
  for (const size_t i : a.runs) {
    for (const size_t j : b.runs) {
      const ComparedRun& one = RunOf(comparison, i);
      const ComparedRun& other = RunOf(comparison, j);
      const std::optional<double> x = GapOf(a, one);
      const std::optional<double> y = GapOf(b, other);
      if (one.seed == other.seed && x.has_value() && y.has_value()) {
        differences.push_back(*y - *x);
      }
    }
  }
  return MeanOf(differences);
}

}  // namespace

bool MeanOfSeeds::significant() const {
  if (seeds < 2) {
    return false;
  }
  const size_t freedom = std::min(static_cast<size_t>(seeds) - 1, std::size(kStudent));
  return std::abs(mean) > kStudent[freedom - 1] * error;
}

std::optional<MeanOfSeeds> MeanOf(absl::Span<const double> values) {
  MeanOfSeeds out;
  for (const double value : values) {
    if (std::isfinite(value)) {
      ++out.seeds;
      out.mean += value;
    }
  }
  if (out.seeds == 0) {
    return std::nullopt;
  }
  out.mean /= out.seeds;
  double squares = 0;
  for (const double value : values) {
    squares += std::isfinite(value) ? (value - out.mean) * (value - out.mean) : 0;
  }
  if (out.seeds > 1) {
    out.error = std::sqrt(squares / (out.seeds - 1) / out.seeds);
  }
  return out;
}

std::vector<CompareRow> RowsOf(const Comparison& comparison) {
  std::vector<CompareRow> rows;
  for (size_t i = 0; i < comparison.runs.size(); ++i) {
    const ComparedRun& run = comparison.runs[i];
    const std::string name = run.name();
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&](const CompareRow& other) { return other.name == name; });
    if (row == rows.end()) {
      row = rows.insert(rows.end(), CompareRow());
      row->name = name;
    }
    row->runs.push_back(i);
    row->ok += run.ok() ? 1 : 0;
  }
  for (CompareRow& row : rows) {
    row.training_loss = MeanOfRuns(comparison, row, &ComparedRun::training_loss);
    row.held_out_loss = MeanOfRuns(comparison, row, &ComparedRun::held_out_loss);
    row.training_gap = MeanOfRuns(comparison, row, &ComparedRun::training_gap);
    row.held_out_gap = MeanOfRuns(comparison, row, &ComparedRun::held_out_gap);
  }
  return rows;
}

// Why a difference from `what` is not called significant.
std::string Untold(const MeanOfSeeds& difference, const char* what) {
  return difference.seeds < 2 ? "one seed tells nothing about the error"
                              : absl::StrCat("not significantly different from ", what);
}

std::string NotSignificant(const Comparison& comparison, const std::vector<CompareRow>& rows) {
  std::vector<const CompareRow*> compared;
  for (const CompareRow& row : rows) {
    if (row.gap().has_value()) {
      compared.push_back(&row);
    }
  }
  const int digits = GapDigits(rows, &CompareRow::gap);
  std::string out;
  for (const CompareRow* row : compared) {
    if (!row->gap()->significant()) {
      absl::StrAppend(&out, row->name, ": ", GapText(*row->gap(), digits), ": ",
                      Untold(*row->gap(), "the reference"), "\n");
    }
  }
  std::stable_sort(compared.begin(), compared.end(), [](const CompareRow* a, const CompareRow* b) {
    return a->gap()->mean < b->gap()->mean;
  });
  for (size_t i = 1; i < compared.size(); ++i) {
    const CompareRow& below = *compared[i - 1];
    const CompareRow& above = *compared[i];
    const std::optional<MeanOfSeeds> difference = Difference(comparison, below, above);
    if (difference.has_value() && !difference->significant()) {
      absl::StrAppend(&out, below.name, " and ", above.name, ": ",
                      GapText(*difference, std::max(digits, DigitsOf(*difference))),
                      " apart: ", Untold(*difference, "each other"), "\n");
    }
  }
  return out;
}

std::string FewerSeeds(const std::vector<CompareRow>& rows) {
  std::vector<std::string> fewer;
  for (const CompareRow& row : rows) {
    const std::pair<const char*, const std::optional<MeanOfSeeds>*> means[] = {
        {"losses", &row.training_loss}, {"gaps", &row.gap()}};
    std::vector<std::string> of_row;
    for (const auto& [name, mean] : means) {
      if (mean->has_value() && static_cast<size_t>((*mean)->seeds) < row.runs.size()) {
        of_row.push_back(absl::StrCat(name, " ", (*mean)->seeds, " of ", row.runs.size()));
      }
    }
    if (!of_row.empty()) {
      fewer.push_back(absl::StrCat(row.name, " ", absl::StrJoin(of_row, ", ")));
    }
  }
  return fewer.empty() ? "" : absl::StrCat("means over fewer seeds: ", Listed(fewer), "\n");
}

std::string GapText(const MeanOfSeeds& gap, int digits) {
  return gap.seeds > 1 ? absl::StrFormat("%+.*f ± %.*f %%", digits, gap.mean, digits, gap.error)
                       : absl::StrFormat("%+.*f %%", digits, gap.mean);
}

int GapDigits(const std::vector<CompareRow>& rows, const GapOfRow& of) {
  int digits = 2;
  for (const CompareRow& row : rows) {
    const std::optional<MeanOfSeeds>& gap = of(row);
    digits = std::max(digits, gap.has_value() ? DigitsOf(*gap) : 0);
  }
  return digits;
}

std::string Listed(std::vector<std::string> names) {
  if (names.size() > kNamed) {
    const size_t more = names.size() - kNamed;
    names.resize(kNamed);
    names.push_back(absl::StrCat("and ", more, " more"));
  }
  return absl::StrJoin(names, "; ");
}

}  // namespace hearth::trainer
