// Runs of a comparison that differ only in their seeds, as one row: means and how sure they are.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "worker/trainer/cli/compare/compare.h"

namespace hearth::trainer {

struct MeanOfSeeds {
  int seeds = 0;
  double mean = 0;
  double error = 0;  // standard error of the mean; 0 with one seed, which says nothing about it

  // The mean differs from 0, with a probability of error of 5 % (Student's t, two-sided). Never
  // with one seed.
  bool significant() const;
};
// `values` that are not finite are left out. nullopt: none is left.
std::optional<MeanOfSeeds> MeanOf(absl::Span<const double> values);

struct CompareRow {
  std::string name;          // of its runs
  std::vector<size_t> runs;  // indices into Comparison::runs, in their order
  int ok = 0;                // of them
  std::optional<MeanOfSeeds> training_loss, held_out_loss;
  // To the references of the same seeds, percent.
  std::optional<MeanOfSeeds> training_gap, held_out_gap;

  // Held out where there is one.
  const std::optional<MeanOfSeeds>& gap() const {
    return held_out_gap.has_value() ? held_out_gap : training_gap;
  }
};

// In the order of their first runs. Relate() comes before.
std::vector<CompareRow> RowsOf(const Comparison& comparison);

// What is not significant: gaps that may be 0, and neighbours in the order of gaps that may be
// alike, compared seed by seed. A sentence a line, each with a newline; empty: everything can.
std::string NotSignificant(const Comparison& comparison, const std::vector<CompareRow>& rows);

// Which means are over fewer seeds than the row has runs, as a line; empty: none is.
std::string FewerSeeds(const std::vector<CompareRow>& rows);

// "+0.20 ± 0.04 %", with one seed "+0.20 %". `digits`: after the point.
std::string GapText(const MeanOfSeeds& gap, int digits);
// Digits for a column of gaps: 2, or 3 where the standard error of one would print as 0.00.
using GapOfRow = std::function<const std::optional<MeanOfSeeds>&(const CompareRow&)>;
int GapDigits(const std::vector<CompareRow>& rows, const GapOfRow& of);

// "a; b; c", cut after some with "and N more".
std::string Listed(std::vector<std::string> names);

}  // namespace hearth::trainer
