#include "worker/trainer/cli/machine/machine_probe.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/spec/recipe/recipe.h"
#include "gtest/gtest.h"
#include "kernels/gemm/probe_case.h"

namespace hearth::trainer {
namespace {

nlohmann::json Row(const std::string& name, bool ok, const std::string& status, double error) {
  return {{"name", name}, {"ok", ok}, {"status", status}, {"max_relative_error", error}};
}

// "result name: text" of the checks of these products and attention kernels.
std::vector<std::string> Results(const nlohmann::json& gemm, const nlohmann::json& attention) {
  const nlohmann::json probe = {{"gpu", {{"gemm", gemm}, {"attention_probe", attention}}},
                                {"nccl", "2.28"}};
  std::vector<std::string> out;
  for (const Check& check : Diagnose(probe)) {
    for (const nlohmann::json* rows : {&gemm, &attention}) {
      for (const nlohmann::json& row : *rows) {
        if (row["name"] == check.name) {
          out.push_back(std::string(CheckResult(check)) + " " + check.name + ": " + check.text);
          EXPECT_EQ(check.remedy.empty(), check.ok) << check.name;
        }
      }
    }
  }
  return out;
}

// A probe that asks for another product than jobs run may say of a GPU that FP8 jobs do not run
// there.
TEST(Probe, EachProductOfARecipeWithOneScaleATensorHasACase) {
  int products = 0;
  for (const spec::Recipe& recipe : spec::Recipes()) {
    if (!recipe.tensor_scaled()) {
      continue;
    }
    // The engine's dw = dyT x has dy first (kernels/gemm/gemm.h).
    const struct {
      const char* name;
      const spec::Gemm& gemm;
      const spec::Operand& a;
      const spec::Operand& b;
      kernels::DType c;
    } rows[] = {
        {"fprop", recipe.fprop, recipe.fprop.a, recipe.fprop.b, recipe.fprop.output},
        {"dgrad", recipe.dgrad, recipe.dgrad.a, recipe.dgrad.b, recipe.dgrad.output},
        {"wgrad", recipe.wgrad, recipe.wgrad.b, recipe.wgrad.a, recipe.parameters.gradient},
    };
    for (const auto& row : rows) {
      const auto cases = kernels::ProbeCases();
      const auto same = [&](const kernels::ProbeCase& which) {
        return which.fallback == kernels::ProbeFallback::kStop && which.blocks == nullptr &&
               which.a == row.a.dtype && which.b == row.b.dtype && which.c == row.c &&
               which.fast == row.gemm.fast_accumulation;
      };
      EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), same))
          << recipe.name << ": no case of kernels/gemm/probe_case.cc is its " << row.name;
      ++products;
    }
  }
  EXPECT_GE(products, 6);
}

// As cuBLASLt answers on a GPU without block-scaled units.
TEST(Diagnose, FormatsThatThisGpuLacks_AreNotesThatSayWhatHappensInstead) {
  const std::string refused = "cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED";
  EXPECT_EQ(
      Results({Row("bf16", true, "ok", 1e-3), Row("fp8 e4m3 x e4m3", false, refused, 0.0),
               Row("mxfp8", false, refused, 0.0), Row("nvfp4 gradient", false, refused, 0.0),
               Row("fp8 unit scales e5m2", false, refused, 0.0)},
              {Row("cudnn head 64", false, "no libcudnn.so.9", 0.0),
               Row("own head 64", true, "ok", 1e-3)}),
      (std::vector<std::string>{
          "ok bf16: ok",
          absl::StrCat("note fp8 e4m3 x e4m3: not on this GPU: the recipes fp8 and fp8_current "
                       "do not run (",
                       refused, ")"),
          "note mxfp8: not on this GPU: emulated (" + refused + ")",
          "note nvfp4 gradient: not on this GPU: emulated (" + refused + ")",
          "note fp8 unit scales e5m2: not on this GPU: plain FP8 instead (" + refused + ")",
          absl::StrCat("note cudnn head 64: not on this GPU: attention runs on our own kernel "
                       "(no libcudnn.so.9)"),
          "ok own head 64: ok"}));
}

TEST(Diagnose, WrongProducts_AreEmulatedWhereTheEngineTriesThemAndElseFaults) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(
      Results({Row("bf16", false, "wrong: 0.5", 0.5), Row("fp8 e5m2 x e4m3", false, "wrong", nan),
               Row("mxfp8 gradient", false, "wrong: 0.5", 0.5)},
              {Row("cudnn head 128", false, "off by 0.5", 0.5),
               Row("own head 128", false, "no memory", 0.0)}),
      (std::vector<std::string>{"FAIL bf16: wrong: 0.5", "FAIL fp8 e5m2 x e4m3: wrong",
                                "note mxfp8 gradient: not right on this GPU: emulated (wrong: 0.5)",
                                "FAIL cudnn head 128: off by 0.5",
                                "FAIL own head 128: no memory"}));
}

TEST(ProductsAreRight, ProductIsWrongAndNothingStandsForIt_IsFalse) {
  const auto right = [](const nlohmann::json& product, const nlohmann::json& attention) {
    const nlohmann::json gpu = {{"gemm", nlohmann::json::array({product})},
                                {"attention_probe", nlohmann::json::array({attention})}};
    return ProductsAreRight({{"gpu", gpu}});
  };
  const nlohmann::json good = Row("bf16", true, "ok", 1e-3);
  EXPECT_TRUE(ProductsAreRight({{"device", "cpu"}}));
  EXPECT_TRUE(right(good, good));
  EXPECT_TRUE(right(Row("nvfp4", false, "CUBLAS_STATUS_NOT_SUPPORTED", 0.0), good));
  EXPECT_FALSE(right(Row("bf16", false, "wrong: 0.5", 0.5), good));
  EXPECT_FALSE(right(good, Row("cudnn head 128", false, "off by 0.5", 0.5)));
}

}  // namespace
}  // namespace hearth::trainer
