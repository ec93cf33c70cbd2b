#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/dataset/dataset.h"
#include "common/io/sha256.h"
#include "nlohmann/json.hpp"

namespace hearth::dataset {
namespace {

constexpr size_t kMaxProblems = 20;

void AddProblem(Summary& summary, std::string text) {
  if (summary.problems.size() < kMaxProblems) {
    summary.problems.push_back(std::move(text));
  }
}

void VerifyChecksums(Summary& summary, Env& env) {
  const auto verify = [&](const std::string& name, const std::string& recorded) {
    if (recorded.empty()) {
      return;
    }
    const std::string file = absl::StrCat(summary.path, "/", name);
    const absl::StatusOr<std::string> digest = Sha256HexOfFile(env, file);
    if (!digest.ok()) {
      AddProblem(summary, digest.status().ToString());
    } else if (*digest != recorded) {
      summary.checksums_ok = false;
      AddProblem(summary, absl::StrCat(file, ": SHA-256 is ", *digest, ", recorded ", recorded));
    }
  };
  for (const ShardInfo& shard : summary.info.shards) {
    verify(shard.file, shard.sha256);
    verify(shard.mask, shard.mask_sha256);
  }
}

// The mask has bits of format.h alone, and as many tokens count as dataset.json says.
void ScanMask(const Dataset& data, Summary& summary) {
  if (!data.has_mask()) {
    return;
  }
  int64_t counted = 0;
  int64_t documents = 0;
  int64_t unknown = 0;
  data.VisitMask(0, data.tokens(), [&](int64_t, uint8_t mask) {
    counted += mask & kMaskCounts;
    documents += (mask & kMaskEnds) != 0 ? 1 : 0;
    unknown += (mask & ~kMaskBits) != 0 ? 1 : 0;
  });
  const DatasetInfo& info = data.info();
  if (counted != info.loss_tokens || documents != info.documents || unknown > 0) {
    AddProblem(summary, absl::StrCat("the mask counts ", counted, " tokens in ", documents,
                                     " documents, recorded are ", info.loss_tokens, " in ",
                                     info.documents, "; ", unknown, " bytes have unknown bits"));
  }
}

void ScanTokens(const Dataset& data, Summary& summary) {
  std::vector<int32_t> buffer(size_t{1} << 16);
  for (int64_t at = 0; at < data.tokens();) {
    const int64_t n = std::min<int64_t>(data.tokens() - at, static_cast<int64_t>(buffer.size()));
    const absl::Span<int32_t> span(buffer.data(), static_cast<size_t>(n));
    const absl::Status status = data.Read(at, span, data.vocab());
    if (!status.ok()) {
      AddProblem(summary, std::string(status.message()));
    }
    summary.max_token = std::max(summary.max_token, *std::max_element(span.begin(), span.end()));
    at += n;
  }
}

}  // namespace

absl::StatusOr<Summary> Inspect(const std::string& path, bool scan, Env& env) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> data, Dataset::Open(path, env));
  Summary summary;
  summary.kind = data->kind();
  summary.path = path;
  summary.info = data->info();
  summary.bytes = data->tokens() * Bytes(data->info().width);
  if (scan) {
    ScanTokens(*data, summary);
    ScanMask(*data, summary);
    VerifyChecksums(summary, env);
  }
  return summary;
}

std::string ToText(const Summary& summary) {
  const DatasetInfo& info = summary.info;
  std::string text =
      absl::StrCat("path        ", summary.path, "\nkind        ",
                   std::string(KindName(summary.kind)), "\nname        ", info.name, "\n");
  if (!info.split.empty()) {
    absl::StrAppend(&text, "split       ", info.split, "\n");
  }
  absl::StrAppend(&text, "tokens      ", info.tokens, "\n");
  if (info.has_mask()) {
    absl::StrAppendFormat(
        &text, "loss mask   %d tokens count (%.1f %%)\n", info.loss_tokens,
        100.0 * static_cast<double>(info.loss_tokens) / static_cast<double>(info.tokens));
  }
  if (info.documents > 0) {
    absl::StrAppend(&text, "documents   ", info.documents, "\n");
  }
  absl::StrAppend(&text, "vocab       ", info.vocab > 0 ? absl::StrCat(info.vocab) : "not recorded",
                  "\n");
  if (info.eos >= 0) {
    absl::StrAppend(&text, "eos         ", info.eos, "\n");
  }
  absl::StrAppend(&text, "tokenizer   ", std::string(tokenizer::NameOf(info.tokenizer.kind)),
                  info.tokenizer.file.empty() ? "" : absl::StrCat(" (", info.tokenizer.file, ")"),
                  "\ndtype       ", info.width == TokenWidth::kUint16 ? "uint16" : "uint32",
                  "\nshards      ", info.shards.size(), " (", summary.bytes, " bytes)\n");
  if (summary.max_token >= 0) {
    absl::StrAppend(&text, "max token   ", static_cast<uint32_t>(summary.max_token), "\n");
  }
  for (const std::string& problem : summary.problems) {
    absl::StrAppend(&text, "problem     ", problem, "\n");
  }
  return text;
}

std::string ToJson(const Summary& summary) {
  nlohmann::ordered_json json;
  json["path"] = summary.path;
  json["kind"] = std::string(KindName(summary.kind));
  json["bytes"] = summary.bytes;
  if (summary.max_token >= 0) {
    json["max_token"] = summary.max_token;
  }
  json["problems"] = summary.problems;
  json["info"] = nlohmann::ordered_json::parse(ToJson(summary.info), nullptr, false);
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace hearth::dataset
