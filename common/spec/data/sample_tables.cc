#include "common/spec/data/sample_tables.h"

#include <algorithm>

#include "common/base/table_rows.h"

namespace hearth::spec {
namespace {

constexpr PackingRow kPackings[] = {
    {Packing::kConcat, "concat", true},
    {Packing::kBestFit, "best_fit", false},
};

constexpr AttentionRow kAttentions[] = {
    {"causal", false},
    {kDocumentAttention, true},
};

}  // namespace

absl::Span<const PackingRow> Packings() {
  return kPackings;
}

const PackingRow* FindPacking(std::string_view name) {
  return FindRow(kPackings, &PackingRow::name, name);
}

Packing PackingOf(const v1::DataSpec& data) {
  const PackingRow* const row = FindPacking(data.packing());
  return row == nullptr ? Packing::kConcat : row->packing;
}

absl::Span<const AttentionRow> Attentions() {
  return kAttentions;
}

bool SeesOwnDocument(const v1::DataSpec& data) {
  const AttentionRow* const row = FindRow(kAttentions, &AttentionRow::name, data.attention());
  return row != nullptr && row->own_document;
}

int ReportedSources(const v1::DataSpec& data) {
  return data.train_size() > 1 ? std::min(data.train_size(), kReportedSourcesMax) : 0;
}

}  // namespace hearth::spec
