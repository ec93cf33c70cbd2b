#include "common/dataset/report/mix_report.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/dataset/dataset.h"
#include "common/dataset/mixture.h"
#include "nlohmann/json.hpp"

namespace hearth::dataset {

absl::StatusOr<MixReport> MakeMixReport(const std::vector<MixSource>& sources,
                                        int64_t sequence_length,
                                        int64_t tokens,
                                        Env& env) {
  if (sources.empty() || static_cast<int64_t>(sources.size()) > Mixture::kPeriod / 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(sources.size(), " datasets; a mixture has 1 to ", Mixture::kPeriod / 2));
  }
  MixReport report;
  report.sequence_length = sequence_length;
  std::vector<double> weights;
  int64_t all = 0;
  for (const MixSource& source : sources) {
    HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> data, Dataset::Open(source.path, env));
    if (data->tokens() <= sequence_length) {
      return absl::InvalidArgumentError(
          absl::StrCat(source.path, ": ", data->tokens(), " tokens are fewer than one sample of ",
                       sequence_length + 1, " (data.sequence_length + 1)"));
    }
    report.rows.push_back({source, data->tokens(), 0, 0, 0});
    weights.push_back(source.weight);
    all += data->tokens();
  }
  report.samples = (tokens > 0 ? tokens : all) / sequence_length;
  const Mixture mixture(weights);
  for (size_t i = 0; i < report.rows.size(); ++i) {
    MixReport::Row& row = report.rows[i];
    const int64_t samples = mixture.SamplesOf(static_cast<int>(i), report.samples);
    row.share = mixture.Share(static_cast<int>(i));
    row.drawn = samples * sequence_length;
    const int64_t windows = (row.tokens - 1) / sequence_length;
    row.epochs = static_cast<double>(samples) / static_cast<double>(windows);
    if (row.epochs > kMaxEpochs) {
      report.warnings.push_back(
          absl::StrFormat("%s is passed over %.1f times; beyond %.0f passes repeated tokens add "
                          "little: use a smaller weight, fewer steps or more data",
                          row.source.path, row.epochs, kMaxEpochs));
    }
  }
  return report;
}

std::string ToJson(const MixReport& report) {
  nlohmann::ordered_json json;
  json["sequence_length"] = report.sequence_length;
  json["samples"] = report.samples;
  json["sources"] = nlohmann::ordered_json::array();
  for (const MixReport::Row& row : report.rows) {
    json["sources"].push_back({{"path", row.source.path},
                               {"weight", row.source.weight},
                               {"tokens", row.tokens},
                               {"share", row.share},
                               {"drawn_tokens", row.drawn},
                               {"epochs", row.epochs}});
  }
  json["warnings"] = report.warnings;
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace hearth::dataset
