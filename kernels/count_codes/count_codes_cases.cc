#include "kernels/count_codes/count_codes.h"
#include "kernels/harness/cases.h"

namespace hearth::kernels::harness {
namespace {

struct Row : MatrixShape {
  DType dtype;
};

constexpr Row kRows[] = {{{"e4m3_1x1", 1, 1}, DType::kE4M3},
                         {{"e4m3_37x113", 37, 113}, DType::kE4M3},
                         {{"e5m2_64x1040", 64, 1040}, DType::kE5M2},
                         {{"perf_16m", 4096, 4096}, DType::kE4M3}};

OpCase MakeCase(const Row& row) {
  OpCase c = NewExactCase("count_codes", row.name);
  c.buffers = {{"x", {row.rows, row.cols}, Role::kInput, {Fill::kNormal, 0, 300}, row.dtype},
               {"counts", {2}, Role::kOutput, {}, DType::kI64}};
  c.forward = [](const Exec& exec, const Buffers& b) {
    return CountCodes(exec, {b["x"], reinterpret_cast<uint64_t*>(b["counts"].as<int64_t>())});
  };
  return c;
}

}  // namespace

std::vector<OpCase> CountCodesCases() {
  return CasesOf(kRows, MakeCase);
}

}  // namespace hearth::kernels::harness
