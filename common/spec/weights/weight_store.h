// The table of weights.store: formats in which weights are kept while they are trained.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "common/formats/weight_codecs.h"
#include "common/spec/model/parameter.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

struct WeightStoreRow {
  std::string_view name;  // in the job file
  std::string_view comment;
  // kNone: weights are in the recipe's format.
  formats::WeightCodec codec = formats::WeightCodec::kNone;
  // Why no job can train in it, and what to do instead; empty: one can.
  std::string_view refusal = {};

  bool in_blocks() const { return codec != formats::WeightCodec::kNone; }
  // Whether the parameter is kept in its blocks: a matrix of the layers whose rows are whole
  // blocks, as GGUF wants them.
  bool Takes(const Parameter& parameter) const;
};

// In the order of the help text, the default first. Rows live for ever.
absl::Span<const WeightStoreRow> WeightStoreRows();
const WeightStoreRow* FindWeightStore(std::string_view name);
std::vector<std::string_view> WeightStoreNames();

// The job's row; the first for a name that is in no row, which the rules refuse.
const WeightStoreRow& WeightStoreOf(const v1::JobSpec& job);

// Sets Parameter::store of what the row takes.
void SetWeightStore(const WeightStoreRow& row, std::vector<Parameter>& table);

}  // namespace hearth::spec
