// The tables of data.packing and data.attention: how documents become samples.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

enum class Packing : uint8_t {
  kConcat,   // end to end, cut where a sample ends
  kBestFit,  // whole where they fit into a sample; the room that is left is padding
};

struct PackingRow {
  Packing packing;
  std::string_view name;
  // A sample may hold any part of a document, so none of its tokens may count by a loss mask.
  bool cuts_anywhere;
};

absl::Span<const PackingRow> Packings();
const PackingRow* FindPacking(std::string_view name);
// That of data.packing; kConcat if the spec names no row.
Packing PackingOf(const v1::DataSpec& data);

// The row of data.attention in which tokens see only their own document.
inline constexpr std::string_view kDocumentAttention = "document";

struct AttentionRow {
  std::string_view name;
  bool own_document;  // a token sees only its own document, and positions begin at 0 in each
};

absl::Span<const AttentionRow> Attentions();
// Whether tokens see only their own document; false if the spec names no row.
bool SeesOwnDocument(const v1::DataSpec& data);

// A step report has separate losses for the first sources of data.train, at most this many.
inline constexpr int kReportedSourcesMax = 16;
// How many sources have separate losses; 0 for a job with one source, whose loss is the step's.
int ReportedSources(const v1::DataSpec& data);

}  // namespace hearth::spec
