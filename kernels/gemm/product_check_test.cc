#include "kernels/gemm/product_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/core/block_quant.h"
#include "kernels/core/cpu_workspace.h"
#include "kernels/core/rng.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kN = 48;
constexpr int64_t kK = 64;

// Operands of a product in blocks whose a is zero, as gradients may be before the first step.
class ProductCheckTest : public testing::Test {
 protected:
  explicit ProductCheckTest(int64_t rows = 300) : rows_(rows) {
    a_.resize(static_cast<size_t>(DTypeBytes(DType::kE4M3, rows_ * kK)));
    b_.resize(static_cast<size_t>(DTypeBytes(DType::kE4M3, kN * kK)));
    a_scales_.resize(static_cast<size_t>(BlockScaleBytes(BlockLayout::kMxfp8, rows_, kK)));
    b_scales_.resize(static_cast<size_t>(BlockScaleBytes(BlockLayout::kMxfp8, kN, kK)), 127);
    c_.resize(static_cast<size_t>(rows_ * kN));
    for (size_t i = 0; i < b_.size(); ++i) {
      b_[i] = EncodeE4m3(static_cast<float>(RngNormal({3, RngPurpose::kTest, 0, 0, 0}, i)));
    }
    FillNormal({4, RngPurpose::kTest, 0, 0, 0}, 0, 0.0, 1.0, c_.data(), rows_ * kN);
    args_.a = TensorView(a_.data(), DType::kE4M3, {rows_, kK});
    args_.b = TensorView(b_.data(), DType::kE4M3, {kN, kK});
    args_.c = TensorView(c_.data(), DType::kF32, {rows_, kN});
    args_.transpose_b = true;
    args_.block_layout_a = args_.block_layout_b = BlockLayout::kMxfp8;
    args_.block_scales_a = a_scales_.data();
    args_.block_scales_b = b_scales_.data();
  }

  absl::Status Run(const GemmArgs& args) {
    const CpuWorkspace scratch(GemmWorkspaceBytes(Exec(), args));
    return check_.Run(
        scratch.With(), args,
        [this](const Exec& exec, const GemmArgs& product) {
          ++natives_;
          const absl::Status done = Gemm(exec, product);
          if (wrong_row_ >= 0) {
            std::fill_n(product.c.as<float>() + wrong_row_ * kN, kN / 4, 0.0F);
          }
          native_c_ = c_;
          return done;
        },
        [this](const Exec& exec, const GemmArgs& product) {
          ++references_;
          return Gemm(exec, product);
        });
  }

  int64_t rows_;
  std::vector<uint8_t> a_, b_, a_scales_, b_scales_;
  std::vector<float> c_;
  std::vector<float> native_c_;  // as `native` left it
  GemmArgs args_;
  ProductCheck check_;
  int64_t wrong_row_ = -1;
  int natives_ = 0;
  int references_ = 0;
};

TEST_F(ProductCheckTest, RightProduct_IsComparedOnceInItsFirstAndLastRows) {
  ASSERT_TRUE(Run(args_).ok());
  EXPECT_EQ(natives_, 1);
  EXPECT_EQ(references_, 2);
  EXPECT_EQ(c_, native_c_) << "c is what the product made of it";
  EXPECT_NE(c_[0], 0.0F);
  EXPECT_NE(c_[static_cast<size_t>(299 * kN)], 0.0F);
  EXPECT_EQ(c_[static_cast<size_t>(200 * kN)], 0.0F)
      << "the operand of the rows between is as it was";
  EXPECT_LT(check_.largest(), 1e-5);
  ASSERT_TRUE(Run(args_).ok());
  EXPECT_EQ(natives_, 2);
  EXPECT_EQ(references_, 2);
  EXPECT_EQ(check_.met(), 1);
  EXPECT_EQ(check_.compared(), 1);
}

TEST_F(ProductCheckTest, AddedToWhatIsThere_IsAKindOfItsOwn) {
  ASSERT_TRUE(Run(args_).ok());
  args_.beta = 1.0;
  ASSERT_TRUE(Run(args_).ok());
  EXPECT_EQ(check_.compared(), 2);
  EXPECT_EQ(c_, native_c_);
}

TEST_F(ProductCheckTest, WrongRows_AreFoundWithTheProductsName) {
  for (const int64_t row : {5, 299}) {
    check_ = ProductCheck();
    wrong_row_ = row;
    const absl::Status status = Run(args_);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_NE(status.message().find("the product [300, 64] x [64, 48] of e4m3 and e4m3"),
              absl::string_view::npos)
        << status.message();
    EXPECT_EQ(check_.compared(), 0);
  }
}

TEST_F(ProductCheckTest, ReferenceOfZeros_CountsAsNotCompared) {
  std::fill(b_.begin(), b_.end(), uint8_t{0});
  ASSERT_TRUE(Run(args_).ok());
  EXPECT_EQ(check_.met(), 1);
  EXPECT_EQ(check_.compared(), 0);
}

class FewRows : public ProductCheckTest {
 protected:
  FewRows() : ProductCheckTest(16) {}
};

TEST_F(FewRows, AreComparedAtOnce) {
  ASSERT_TRUE(Run(args_).ok());
  EXPECT_EQ(references_, 1);
  EXPECT_EQ(check_.compared(), 1);
}

}  // namespace
}  // namespace hearth::kernels
