#include "common/spec/feasibility/speed/calibration.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/spec/feasibility/speed/calibration_files.h"
#include "common/spec/gpus/fact_reader.h"
#include "common/spec/violations/names.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {
namespace {

// Measured products beyond this are as good as equal: squared distance in powers of two.
constexpr double kSameShape = 0.05;

void ReadShared(FactReader& facts, Calibration& c) {
  c.elementwise = facts.Needed("elementwise");
  c.optimizer = facts.Needed("optimizer");
  c.launch_seconds = facts.Needed("launch_us") * 1e-6;
  c.emulated = facts.Needed("emulated");
  for (const std::vector<double>& row : facts.Rows("coded_state", 2)) {
    c.coded.push_back({row[0], row[1] * 1e9});
  }
}

void ReadStretch(const YAML::Node& node,
                 const std::string& place,
                 std::vector<std::string>& errors,
                 Calibration& c) {
  FactReader stretch(node, place + ": stretch", errors);
  for (int f = 0; f < kMatrixFormatCount; ++f) {
    const std::string name(MatrixFormatName(static_cast<MatrixFormat>(f)));
    c.stretch[f] = stretch.Number(name.c_str(), 1);
  }
  c.stretch_other = stretch.Needed("other");
  stretch.RefuseOthers();
}

void ReadParallel(const YAML::Node& node,
                  const std::string& place,
                  std::vector<std::string>& errors,
                  Calibration& c) {
  FactReader parallel(node, place + ": parallel", errors);
  c.link = parallel.Needed("link");
  c.not_hidden = parallel.Needed("not_hidden");
  c.lockstep = parallel.Needed("lockstep");
  parallel.RefuseOthers();
}

void ReadRun(const YAML::Node& node,
             const std::string& place,
             std::vector<std::string>& errors,
             Calibration& c) {
  FactReader facts(node, place + ": runs", errors);
  const std::vector<std::string> job = facts.Texts("job");
  MeasuredRun run;
  run.tok_s = facts.Needed("tok_s");
  run.watts = facts.Number("watts");
  run.tuned = facts.Number("tuned") > 0;
  facts.RefuseOthers();
  if (job.size() != 7) {
    errors.push_back(Text(place, ": runs: job does not have seven parts"));
    return;
  }
  run.preset = job[0];
  run.recipe = job[1];
  run.lm_head = job[2];
  run.micro_batch = std::atoll(job[3].c_str());
  run.sequence_length = std::atoll(job[4].c_str());
  run.micro_batches = std::atoll(job[5].c_str());
  run.gpus = std::atoi(job[6].c_str());
  c.runs.push_back(std::move(run));
}

void ReadGemm(const YAML::Node& node,
              const std::string& place,
              std::vector<std::string>& errors,
              Calibration& c) {
  FactReader facts(node, place + ": gemm", errors);
  for (int f = 0; f < kMatrixFormatCount; ++f) {
    const std::string name(MatrixFormatName(static_cast<MatrixFormat>(f)));
    for (const std::vector<double>& row : facts.Rows(name.c_str(), 4)) {
      if (*std::min_element(row.begin(), row.end()) > 0) {
        c.gemm[f].push_back({row[0], row[1], row[2], row[3] * 1e12});
      } else {
        errors.push_back(Text(place, ": gemm: ", name, ": a size or a rate is 0"));
      }
    }
  }
  facts.RefuseOthers();
}

// How a file's `copy_gbs` may have been measured. "driver": its copy of at least 1 GiB on a stream,
// which it runs as a kernel.
const std::vector<std::string_view> kCopyWays = {kCopyByKernel, "driver"};

double ReadCopy(FactReader& facts, const std::string& file, std::vector<std::string>& errors) {
  const std::string by = facts.Text("copy_by");
  if (by.empty()) {
    errors.push_back(
        Text(file, ": copy_by: missing. `bench --calibrate` wrote no such line when it ",
             "timed the copies of a graph; kernels are faster than these, so the plans "
             "would be wrong: calibrate again"));
  } else if (std::find(kCopyWays.begin(), kCopyWays.end(), by) == kCopyWays.end()) {
    errors.push_back(Text(file, ": copy_by: ", UnknownNameText(by, "way to copy", kCopyWays)));
  }
  return facts.Needed("copy_gbs") * 1e9;
}

struct SheetShares {
  double products[kMatrixFormatCount] = {0, 0, 0, 0};
  double attention[2] = {0, 0};
  double copy = 0;
  double watts[4] = {0, 0, 0, 0};
};

template <size_t n>
void ReadShares(FactReader& facts, const char* key, double (&shares)[n]) {
  const YAML::Node list = facts.Node(key);
  for (size_t i = 0; i < n && list.IsDefined() && i < list.size(); ++i) {
    shares[i] = list[i].as<double>(0.0);
  }
}

// data-sheet.yaml.
struct DataSheet {
  std::map<int, SheetShares> generations;
  std::map<std::string, SheetShares> gpus;  // by their names in configs/gpus.yaml
  Calibration shared;
};

[[noreturn]] void AbortWith(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) {
    std::fprintf(stderr, "%s\n", error.c_str());
  }
  std::abort();  // the files are part of the program, and a test reads them
}

SheetShares ReadSheetShares(const YAML::Node& node,
                            const std::string& place,
                            std::vector<std::string>& errors) {
  FactReader row(node, place, errors);
  SheetShares shares;
  ReadShares(row, "products", shares.products);
  ReadShares(row, "attention", shares.attention);
  shares.copy = row.Needed("copy");
  ReadShares(row, "watts", shares.watts);
  row.RefuseOthers();
  return shares;
}

DataSheet ReadDataSheet(std::string_view text) {
  std::vector<std::string> errors;
  DataSheet sheet;
  const std::string place = "data-sheet.yaml";
  FactReader facts(LoadFacts(text, place, errors), place, errors);
  for (const auto& entry : facts.Node("defaults")) {
    sheet.generations[entry.first.as<int>()] =
        ReadSheetShares(entry.second, Text(place, ": ", entry.first.Scalar()), errors);
  }
  for (const auto& entry : facts.Node("gpus")) {
    const std::string name = entry.first.Scalar();
    const GpuRow* const gpu = FindGpu(name);
    if (gpu == nullptr || gpu->name != name) {
      errors.push_back(Text(place, ": gpus: \"", name, "\" is not in configs/gpus.yaml"));
    }
    sheet.gpus[name] = ReadSheetShares(entry.second, Text(place, ": ", name), errors);
  }
  ReadShared(facts, sheet.shared);
  ReadStretch(facts.Node("stretch"), place, errors, sheet.shared);
  ReadParallel(facts.Node("parallel"), place, errors, sheet.shared);
  facts.RefuseOthers();
  if (!errors.empty()) {
    AbortWith(errors);
  }
  return sheet;
}

Calibration FromDataSheet(const GpuRow& gpu, const DataSheet& sheet) {
  Calibration c = sheet.shared;
  c.source = "the data sheet, by the shares of configs/calibration/data-sheet.yaml";
  const auto own = sheet.gpus.find(gpu.name);
  // The major number of the compute capability.
  const auto it = sheet.generations.find(gpu.compute / 10);
  const SheetShares shares = own != sheet.gpus.end()         ? own->second
                             : it != sheet.generations.end() ? it->second
                                                             : SheetShares{};
  for (int f = 0; f < kMatrixFormatCount; ++f) {
    c.products[f] = gpu.flops[f] * shares.products[f];
  }
  c.attention = {
      {0, 0, gpu.bf16_flops() * shares.attention[0], gpu.bf16_flops() * shares.attention[1]}};
  c.copy = gpu.bandwidth * shares.copy;
  c.product_watts = gpu.power_watts * shares.watts[0];
  c.attention_watts = gpu.power_watts * shares.watts[1];
  c.memory_watts = gpu.power_watts * shares.watts[2];
  c.gap_watts = gpu.power_watts * shares.watts[3];
  return c;
}

std::map<std::string, Calibration> MakeAll() {
  std::map<std::string, Calibration> all;
  DataSheet sheet;
  for (const CalibrationFile& file : CalibrationFiles()) {
    if (file.name == "data-sheet.yaml") {
      sheet = ReadDataSheet(file.text);
      continue;
    }
    std::string gpu;
    absl::StatusOr<Calibration> read = ParseCalibration(file.text, std::string(file.name), gpu);
    if (!read.ok()) {
      AbortWith({std::string(read.status().message())});
    }
    all[gpu] = *std::move(read);
  }
  for (const GpuRow& gpu : Gpus()) {
    // Only where nothing was measured: what is there already stays.
    all.try_emplace(gpu.name, FromDataSheet(gpu, sheet));
  }
  return all;
}

}  // namespace

absl::StatusOr<Calibration> ParseCalibration(std::string_view text,
                                             const std::string& file,
                                             std::string& gpu) {
  std::vector<std::string> errors;
  Calibration c;
  c.measured = true;
  FactReader facts(LoadFacts(text, file, errors), file, errors);
  gpu = facts.Text("gpu");
  c.source = facts.Text("source");
  c.copy = ReadCopy(facts, file, errors);
  ReadShared(facts, c);
  ReadStretch(facts.Node("stretch"), file, errors, c);
  for (const std::vector<double>& row : facts.Rows("attention", 4)) {
    c.attention.push_back({row[0], row[1], row[2] * 1e12, row[3] * 1e12});
  }
  FactReader watts(facts.Node("watts"), file + ": watts", errors);
  c.product_watts = watts.Needed("products");
  c.attention_watts = watts.Needed("attention");
  c.memory_watts = watts.Needed("memory");
  c.gap_watts = watts.Needed("gaps");
  watts.RefuseOthers();
  ReadParallel(facts.Node("parallel"), file, errors, c);
  for (const auto& run : facts.Node("runs")) {
    ReadRun(run, file, errors, c);
  }
  ReadGemm(facts.Node("gemm"), file, errors, c);
  facts.RefuseOthers();
  if (FindGpu(gpu) == nullptr) {
    errors.push_back(Text(file, ": gpu: \"", gpu, "\" is not in configs/gpus.yaml"));
  } else {
    gpu = FindGpu(gpu)->name;
  }
  if (c.attention.empty() || !(c.copy > 0) || !(c.elementwise > 0) || !(c.optimizer > 0)) {
    errors.push_back(Text(file, ": needs rows of attention, copy_gbs, elementwise and optimizer"));
  }
  if (!errors.empty()) {
    return absl::InvalidArgumentError(absl::StrJoin(errors, "\n"));
  }
  return c;
}

const Calibration& CalibrationFor(const GpuRow& gpu) {
  static const auto& all = *new std::map<std::string, Calibration>(MakeAll());
  return all.at(gpu.name);
}

double ProductRate(const Calibration& c, MatrixFormat format, double m, double n, double k) {
  const std::vector<GemmPoint>& points = c.gemm[static_cast<int>(format)];
  if (points.empty()) {
    return c.products[static_cast<int>(format)];
  }
  double sum = 0;
  double weights = 0;
  for (const GemmPoint& point : points) {
    double distance = kSameShape;
    for (const double ratio : {m / point.m, n / point.n, k / point.k}) {
      distance += std::log2(ratio) * std::log2(ratio);
    }
    // Weights fall with the fourth power of the distance: the nearest measured shapes decide.
    const double weight = 1 / (distance * distance);
    sum += weight * point.flops;
    weights += weight;
  }
  return sum / weights;
}

const AttentionRate& AttentionRateOf(const Calibration& c,
                                     int64_t head_dim,
                                     int64_t sequence_length) {
  const auto away = [&](const AttentionRate& row) {
    // By the size of heads first. + 1, as the row of a data sheet has the length 0.
    return std::pair(
        std::abs(row.head_dim - static_cast<double>(head_dim)),
        std::abs(std::log((row.sequence + 1) / static_cast<double>(sequence_length + 1))));
  };
  return *std::min_element(
      c.attention.begin(), c.attention.end(),
      [&](const AttentionRate& a, const AttentionRate& b) { return away(a) < away(b); });
}

}  // namespace hearth::spec
