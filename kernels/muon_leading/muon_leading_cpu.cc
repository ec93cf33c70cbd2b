#include <algorithm>
#include <cmath>

#include "common/base/status_macros.h"
#include "kernels/core/cpu.h"
#include "kernels/core/formats.h"
#include "kernels/core/rng.h"
#include "kernels/muon_leading/basis.h"
#include "kernels/muon_leading/muon_leading.h"

namespace hearth::kernels {
namespace {

constexpr int kRank = formats::kLeadingRank;
constexpr int kBlock = formats::kLeadingBlock;
constexpr int64_t kColumns = 64;  // of a piece of R

// y += a x.
template <typename T>
HEARTH_INLINE void AddScaledImpl(T a, const T* x, int64_t n, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    y[i] += a * x[i];
  }
}
HEARTH_SIMD void AddScaled(float a, const float* x, int64_t n, float* y) {
  AddScaledImpl(a, x, n, y);
}
HEARTH_SIMD void AddScaled(double a, const double* x, int64_t n, double* y) {
  AddScaledImpl(a, x, n, y);
}

template <typename T>
HEARTH_INLINE T DotImpl(const T* x, const T* y, int64_t n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    sum += x[i] * y[i];
  }
  return sum;
}
HEARTH_SIMD float Dot(const float* x, const float* y, int64_t n) {
  return DotImpl(x, y, n);
}
HEARTH_SIMD double Dot(const double* x, const double* y, int64_t n) {
  return DotImpl(x, y, n);
}

// One matrix and its scratch.
template <typename T>
class Matrix {
 public:
  Matrix(const Exec& exec, const MuonLeadingArgs& args, const MuonLeadingMatrix& matrix)
      : exec_(exec),
        rows_(matrix.grad.rows()),
        cols_(matrix.grad.cols()),
        mu_(static_cast<T>(args.mu)),
        grad_scale_(static_cast<T>(args.grad_scale == nullptr ? 1.0F : *args.grad_scale)),
        codes_(matrix.codes.as<uint8_t>()),
        scales_(matrix.scales.as<uint8_t>()),
        left_(matrix.left.as<uint16_t>()),
        right_(matrix.right.as<uint16_t>()),
        unit_(matrix.unit.as<float>()),
        grad_(matrix.grad.as<T>()),
        index_(matrix.index) {
    auto* const scratch = static_cast<uint8_t*>(exec.workspace.data);
    const MuonLeadingScratch at = ScratchOf(sizeof(T), rows_, cols_);
    momentum_ = reinterpret_cast<T*>(scratch + at.momentum);
    product_ = reinterpret_cast<T*>(scratch + at.product);
    largest_ = reinterpret_cast<T*>(scratch + at.largest);
    wide_right_ = reinterpret_cast<T*>(scratch + at.right);
  }

  void Step() {
    WidenRight();
    ForEachRow([this](int64_t row) { Advance(row); });
    const LeadingBasis basis = Basis();
    ForEachRow([&](int64_t row) { StoreLeft(basis, row); });
    ParallelFor(exec_, cols_, kColumns,
                [&](int64_t begin, int64_t end) { Project(basis, begin, end); });
    WidenRight();
    ForEachRow([this](int64_t row) { TakeLeading(row); });
    *unit_ = formats::LeadingUnit(Largest());
    ForEachRow([this](int64_t row) { Encode(row); });
  }

 private:
  template <typename Work>
  void ForEachRow(const Work& work) const {
    ParallelFor(exec_, rows_, RowGrain(cols_), [&work](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        work(row);
      }
    });
  }

  void WidenRight() const {
    for (int64_t col = 0; col < cols_; ++col) {
      for (int k = 0; k < kRank; ++k) {
        wide_right_[k * cols_ + col] = static_cast<T>(DecodeBf16(right_[col * kRank + k]));
      }
    }
  }
  T Left(int64_t row, int k) const { return static_cast<T>(DecodeBf16(left_[row * kRank + k])); }

  // The momentum, the look ahead and Y of a row.
  void Advance(int64_t row) const {
    T* const m = momentum_ + row * cols_;
    for (int64_t col = 0; col < cols_; col += kBlock) {
      const int64_t block = (row * cols_ + col) / kBlock;
      const float step = formats::LeadingStep(scales_[block], *unit_);
      for (int i = 0; i < kBlock; ++i) {
        const uint64_t byte = codes_[block * kBlock / 2 + i / 2];
        m[col + i] = static_cast<T>(formats::LeadingCode(byte, i % 2) * step);
      }
    }
    for (int k = 0; k < kRank; ++k) {
      AddScaled(Left(row, k), wide_right_ + k * cols_, cols_, m);
    }
    T* const grad = grad_ + row * cols_;
    for (int64_t col = 0; col < cols_; ++col) {
      const T g = grad[col] * grad_scale_;
      m[col] = mu_ * m[col] + g;
      grad[col] = g + mu_ * m[col];
    }
    for (int k = 0; k < kRank; ++k) {
      product_[row * kRank + k] = Dot(m, wide_right_ + k * cols_, cols_);
    }
  }

  LeadingBasis Basis() const {
    double gram[kRank][kRank] = {};
    for (int64_t row = 0; row < rows_; ++row) {
      const T* const y = product_ + row * kRank;
      for (int a = 0; a < kRank; ++a) {
        for (int b = 0; b < kRank; ++b) {
          gram[a][b] += static_cast<double>(y[a]) * static_cast<double>(y[b]);
        }
      }
    }
    LeadingBasis basis = {};
    FactorGram(gram, basis);
    return basis;
  }

  void StoreLeft(const LeadingBasis& basis, int64_t row) const {
    T y[kRank];
    float p[kRank];
    std::copy_n(product_ + row * kRank, kRank, y);
    RowOfBasis(basis, y, p);
    for (int k = 0; k < kRank; ++k) {
      left_[row * kRank + k] = EncodeBf16(p[k]);
    }
  }

  // R of the columns [begin, end).
  void Project(const LeadingBasis& basis, int64_t begin, int64_t end) const {
    T sums[kRank][kColumns] = {};
    for (int64_t row = 0; row < rows_; ++row) {
      for (int k = 0; k < kRank; ++k) {
        AddScaled(Left(row, k), momentum_ + row * cols_ + begin, end - begin, sums[k]);
      }
    }
    for (int64_t col = begin; col < end; ++col) {
      for (int k = 0; k < kRank; ++k) {
        const bool dropped = (basis.dropped >> k & 1U) != 0;
        right_[col * kRank + k] = dropped ? LeadingStart(index_, col, k)
                                          : EncodeBf16(static_cast<float>(sums[k][col - begin]));
      }
    }
  }

  // Leaves the rest of a row.
  void TakeLeading(int64_t row) const {
    T* const m = momentum_ + row * cols_;
    for (int k = 0; k < kRank; ++k) {
      AddScaled(-Left(row, k), wide_right_ + k * cols_, cols_, m);
    }
    T largest = 0;
    for (int64_t col = 0; col < cols_; ++col) {
      const T magnitude = std::abs(m[col]);
      largest = std::isnan(largest) || magnitude <= largest ? largest : magnitude;
    }
    largest_[row] = largest;
  }

  float Largest() const {
    T largest = 0;
    for (int64_t row = 0; row < rows_; ++row) {
      largest = std::isnan(largest) || largest_[row] <= largest ? largest : largest_[row];
    }
    return static_cast<float>(largest);
  }

  void Encode(int64_t row) const {
    for (int64_t col = 0; col < cols_; col += kBlock) {
      const int64_t at = row * cols_ + col;
      float x[kBlock];
      std::transform(momentum_ + at, momentum_ + at + kBlock, x,
                     [](T value) { return static_cast<float>(value); });
      const formats::LeadingBlock block = formats::EncodeLeadingBlock(x, *unit_);
      scales_[at / kBlock] = block.scale;
      for (int i = 0; i < kBlock / 2; ++i) {
        codes_[at / 2 + i] = static_cast<uint8_t>(block.codes >> (8 * i));
      }
    }
  }

  const Exec& exec_;
  const int64_t rows_;
  const int64_t cols_;
  const T mu_;
  const T grad_scale_;
  uint8_t* const codes_;
  uint8_t* const scales_;
  uint16_t* const left_;
  uint16_t* const right_;
  float* const unit_;
  T* const grad_;
  const uint32_t index_;
  T* momentum_ = nullptr;
  T* product_ = nullptr;
  T* largest_ = nullptr;
  T* wide_right_ = nullptr;
};

}  // namespace

namespace cpu {

absl::Status MuonLeading(const Exec& exec, const MuonLeadingArgs& args) {
  const bool skip = args.skip != nullptr && *args.skip != 0;
  for (size_t i = 0; !skip && i < args.matrices.size(); ++i) {
    const MuonLeadingMatrix& matrix = args.matrices[i];
    DispatchFloating(matrix.grad.dtype,
                     [&]<typename T>() { Matrix<T>(exec, args, matrix).Step(); });
  }
  return absl::OkStatus();
}

}  // namespace cpu

}  // namespace hearth::kernels
