#include "common/spec/gpus/gpus.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "common/formats/gpu_units.h"
#include "common/spec/gpus/fact_reader.h"
#include "common/spec/violations/names.h"
#include "common/spec/violations/text.h"

namespace hearth {
// NOLINTBEGIN(readability-identifier-naming): the build makes them of configs/gpus.yaml
extern const unsigned char gpus_yaml[];
extern const std::size_t gpus_yaml_size;
// NOLINTEND(readability-identifier-naming)
}  // namespace hearth

namespace hearth::spec {
namespace {

constexpr std::string_view kFormatNames[kMatrixFormatCount] = {"bf16", "fp8", "fp8_block", "fp4"};
constexpr size_t kNamesShown = 3;     // of the GPUs nearest to a name that is unknown
constexpr size_t kShortestEnd = 3;    // of a name that stands for it, letters and digits
constexpr size_t kLongestName = 128;  // that is compared with those of the GPUs, bytes
constexpr int kOldest = 80;           // compute capability of the oldest GPU that Hearth runs on

GpuRow ReadRow(const std::string& name, const YAML::Node& node, std::vector<std::string>& errors) {
  FactReader facts(node, "gpus.yaml: " + name, errors);
  GpuRow row;
  row.name = name;
  row.words = facts.Texts("words");
  if (row.words.empty()) {
    row.words = {name};
  }
  row.compute = static_cast<int>(std::lround(facts.Number("compute") * 10));
  row.plan_only = facts.Text("plan_only");
  row.memory_gb = facts.Needed("memory_gb");
  row.memory_mib = facts.Number("memory_mib");
  row.bandwidth = facts.Number("bandwidth_gbs") * 1e9;
  for (int i = 0; i < kMatrixFormatCount; ++i) {
    row.flops[i] = facts.Number(kFormatNames[i].data()) * 1e12;
  }
  row.link = facts.Text("link");
  row.link_bytes = facts.Number("link_gbs") * 1e9;
  row.host_link_bytes = facts.Number("host_gbs") * 1e9;
  if (row.host_link_bytes == 0 && row.link.rfind("PCIe", 0) == 0) {
    row.host_link_bytes = row.link_bytes;
  }
  row.power_watts = facts.Number("power_w");
  row.price_usd = facts.Number("price_usd");
  facts.RefuseOthers();
  if ((row.compute == 0) == row.plan_only.empty()) {
    errors.push_back(Text("gpus.yaml: ", name, ": either compute or plan_only"));
  }
  return row;
}

struct GpuTable {
  std::vector<GpuRow> rows;
  std::vector<std::string> other_cards;  // words that make a name that of another card
};

GpuTable ReadTable() {
  std::vector<std::string> errors;
  GpuTable table;
  const std::string_view text(reinterpret_cast<const char*>(gpus_yaml), gpus_yaml_size);
  FactReader file(LoadFacts(text, "gpus.yaml", errors), "gpus.yaml", errors);
  for (const auto& entry : file.Node("gpus")) {
    table.rows.push_back(ReadRow(entry.first.Scalar(), entry.second, errors));
  }
  table.other_cards = file.Texts("other_cards");
  file.RefuseOthers();
  // The table is part of the program, and a test reads it: a fault in it is ours.
  for (const std::string& error : errors) {
    std::fprintf(stderr, "%s\n", error.c_str());
  }
  if (!errors.empty() || table.rows.empty()) {
    std::abort();
  }
  return table;
}

const GpuTable& Table() {
  static const auto& table = *new GpuTable(ReadTable());
  return table;
}

bool InsideWord(std::string_view text, size_t at) {
  return at < text.size() && absl::ascii_isalnum(static_cast<unsigned char>(text[at]));
}

// A GH200 is no H200.
bool HasWord(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    if ((at == 0 || !InsideWord(text, at - 1)) && !InsideWord(text, at + word.size())) {
      return true;
    }
  }
  return false;
}

// Lower case, letters and digits alone.
std::string Folded(std::string_view text) {
  std::string folded;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      folded += absl::ascii_tolower(static_cast<unsigned char>(c));
    }
  }
  return folded;
}

// People leave the beginning out: "5090" for "RTX 5090". `end`: folded.
bool IsEndOf(std::string_view name, std::string_view end) {
  const std::string whole = Folded(name);
  return end.size() >= kShortestEnd && whole.size() > end.size() && whole.ends_with(end);
}

// The only row that fits; nullptr when none or several do.
template <typename Fits>
const GpuRow* OnlyGpu(Fits fits) {
  const GpuRow* found = nullptr;
  for (const GpuRow& row : Gpus()) {
    if (fits(row)) {
      if (found != nullptr) {
        return nullptr;
      }
      found = &row;
    }
  }
  return found;
}

// How far `wanted`, which is folded, is from a row's name or the nearest part of it: people leave
// out the first words ("5091") and the last ones ("H100").
int Distance(const std::string& wanted, const std::string& name) {
  const std::vector<std::string> words = absl::StrSplit(name, ' ');
  int nearest = EditDistance(wanted, Folded(name));
  for (size_t first = 0; first < words.size(); ++first) {
    std::string part;
    for (size_t last = first; last < words.size(); ++last) {
      part += Folded(words[last]);
      nearest = std::min(nearest, EditDistance(wanted, part));
    }
  }
  return nearest;
}

// `wanted` is folded. The nearest first, equally near ones in the order of the file.
std::vector<std::string_view> NearestGpus(const std::string& wanted) {
  // A longer text cannot be a slip of a name; the bound keeps hostile input cheap.
  if (wanted.empty() || wanted.size() > kLongestName) {
    return {};
  }
  std::vector<std::pair<int, std::string_view>> rows;
  for (const GpuRow& row : Gpus()) {
    rows.emplace_back(Distance(wanted, row.name), row.name);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string_view> names;
  for (size_t i = 0; i < std::min(rows.size(), kNamesShown); ++i) {
    names.push_back(rows[i].second);
  }
  return names;
}

MatrixFormat FormatOf(const Recipe& recipe) {
  if (!recipe.quantised()) {
    return MatrixFormat::kBf16;
  }
  if (recipe.tensor_scaled()) {
    return MatrixFormat::kFp8;
  }
  return recipe.Any([](const Operand& o) { return DTypeBits(o.dtype) < 8; })
             ? MatrixFormat::kFp4Block
             : MatrixFormat::kFp8Block;
}

}  // namespace

std::string_view MatrixFormatName(MatrixFormat format) {
  return kFormatNames[static_cast<int>(format)];
}

std::vector<std::string_view> MatrixFormatNames() {
  return {std::begin(kFormatNames), std::end(kFormatNames)};
}

int64_t GpuRow::memory_bytes() const {
  return static_cast<int64_t>(memory_mib > 0 ? memory_mib * (1 << 20) : memory_gb * 1e9);
}

absl::Span<const GpuRow> Gpus() {
  return Table().rows;
}

const GpuRow* FindGpu(std::string_view name) {
  const GpuRow* found = nullptr;
  size_t most = 0;
  for (const GpuRow& row : Gpus()) {
    size_t letters = 0;
    for (const std::string& word : row.words) {
      letters += word.size();
    }
    // The most letters win: of two names that fit, one is part of the other.
    if (letters > most && std::all_of(row.words.begin(), row.words.end(),
                                      [&](const auto& word) { return HasWord(name, word); })) {
      found = &row;
      most = letters;
    }
  }
  // An RTX 5070 Ti is no RTX 5070.
  const auto other = [&](const std::string& word) {
    return HasWord(name, word) && !HasWord(found->name, word);
  };
  if (found != nullptr &&
      std::any_of(Table().other_cards.begin(), Table().other_cards.end(), other)) {
    return nullptr;
  }
  return found;
}

absl::StatusOr<const GpuRow*> GpuByName(std::string_view name) {
  const std::string wanted = Folded(name);
  if (!wanted.empty()) {
    const GpuRow* found = OnlyGpu([&](const GpuRow& row) { return Folded(row.name) == wanted; });
    if (found == nullptr) {
      found = OnlyGpu([&](const GpuRow& row) { return IsEndOf(row.name, wanted); });
    }
    found = found == nullptr ? FindGpu(name) : found;
    if (found != nullptr) {
      return found;
    }
  }
  const std::vector<std::string_view> nearest = NearestGpus(wanted);
  return absl::InvalidArgumentError(
      Text('"', name, "\" is not a known GPU",
           nearest.empty() ? "" : Text("; the nearest are ", NamesText(nearest)),
           "; configs/gpus.yaml has all"));
}

RecipeOnGpu RecipeOn(const GpuRow& gpu, const Recipe& recipe) {
  const MatrixFormat format = FormatOf(recipe);
  if (!gpu.plan_only.empty()) {
    return {Execution::kNone, format, gpu.plan_only};
  }
  const std::string capability = Text(gpu.compute / 10, '.', gpu.compute % 10);
  if (gpu.compute < kOldest) {
    return {Execution::kNone, format, Text("compute capability ", capability, " is below 8.0")};
  }
  const std::optional<MatrixFormat> units = UnitsFor(recipe, gpu.compute);
  if (units.has_value() && (!recipe.column_scales() || gpu.Flops(*units) > 0)) {
    return {Execution::kNative, *units, ""};
  }
  if (recipe.tensor_scaled()) {
    return {Execution::kNone, format, Text("compute capability ", capability, " has no FP8 units")};
  }
  return {
      Execution::kEmulated, MatrixFormat::kBf16,
      Text("compute capability ", capability, " has no units for it: its products run in BF16")};
}

std::optional<MatrixFormat> UnitsFor(const Recipe& recipe, int compute) {
  const MatrixFormat format = FormatOf(recipe);
  if (recipe.tensor_scaled()) {
    if (!formats::HasFp8Units(compute)) {
      return std::nullopt;
    }
    return formats::MultipliesFp8InBlockUnits(compute) ? MatrixFormat::kFp8Block : format;
  }
  const bool lacks = recipe.column_scales() && recipe.Any([compute](const Operand& o) {
    return !o.quantised() || !formats::HasBlockUnits(compute, formats::RowOf(o.layout));
  });
  return lacks ? std::nullopt : std::optional(format);
}

namespace {

// Before the libraries are loaded a context is smaller than all of the overhead by at least this.
constexpr int64_t kContextSpread = 150'000'000;
// Whatever is in use beyond the overhead and this belongs to others.
constexpr int64_t kOtherSpread = 50'000'000;

}  // namespace

int64_t PlannableBytes(std::string_view device, int64_t memory_bytes, int world_size) {
  return device == "cuda" ? memory_bytes - OverheadBytes(world_size) - kOverheadMarginBytes
                          : memory_bytes;
}

int64_t PlannableBytesNow(int64_t total, int64_t free, int world_size) {
  const int64_t in_use = total - free;
  // The process's own part: all of the overhead once the libraries and NCCL are loaded, else at
  // most the part without NCCL.
  const bool loaded = in_use >= OverheadBytes(world_size) - kContextSpread;
  const int64_t own = loaded ? OverheadBytes(world_size) : kProcessOverheadBytes;
  const int64_t to_come = OverheadBytes(world_size) - std::min(in_use, own);
  const bool shared = in_use > own + kOtherSpread;
  return std::min(PlannableBytes("cuda", total, world_size),
                  free - to_come - (shared ? kOverheadMarginBytes : 0));
}

}  // namespace hearth::spec
