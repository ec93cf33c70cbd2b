#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/core/cpu_workspace.h"
#include "kernels/core/rng.h"

namespace hearth::kernels {
namespace {

struct Problem {
  AttentionDims dims;
  std::vector<double> qkv;
  std::vector<int32_t> starts;
  int64_t documents = 0;
  std::vector<double> out;

  explicit Problem(const AttentionDims& d)
      : dims(d),
        qkv(static_cast<size_t>(d.batch * d.sequence * (d.heads + 2 * d.kv_heads) * d.head_dim)),
        out(static_cast<size_t>(d.batch * d.sequence * d.heads * d.head_dim)) {
    FillNormal({3, RngPurpose::kTest, 0, 0, 0}, 0, 0.0, 1.0, qkv.data(),
               static_cast<int64_t>(qkv.size()));
  }

  absl::Status Forward() {
    AttentionForwardArgs args;
    args.dims = dims;
    args.qkv = View(qkv.data(), {static_cast<int64_t>(qkv.size())});
    args.out = View(out.data(), {static_cast<int64_t>(out.size())});
    if (!starts.empty()) {
      args.starts = View(starts.data(), {static_cast<int64_t>(starts.size())});
    }
    args.documents = documents;
    const size_t bytes = cpu::AttentionForwardWorkspaceBytes(args, 1);
    const CpuWorkspace scratch(bytes);
    return AttentionForward(scratch.With(), args);
  }
};

// The definition, with the mask written as a condition on every pair.
std::vector<double> Reference(const Problem& run) {
  const AttentionDims& d = run.dims;
  const int64_t width = (d.heads + 2 * d.kv_heads) * d.head_dim;
  std::vector<double> out(run.out.size(), 0.0);
  const auto at = [&](int64_t b, int64_t t, int64_t column) {
    return run.qkv[static_cast<size_t>((b * d.sequence + t) * width + column)];
  };
  for (int64_t b = 0; b < d.batch; ++b) {
    for (int64_t h = 0; h < d.heads; ++h) {
      const int64_t key = (d.heads + h / (d.heads / d.kv_heads)) * d.head_dim;
      const int64_t value = key + d.kv_heads * d.head_dim;
      for (int64_t q = 0; q < d.sequence; ++q) {
        std::vector<double> p(static_cast<size_t>(d.sequence), 0.0);
        double total = 0.0;
        for (int64_t k = 0; k < d.sequence; ++k) {
          const size_t row = static_cast<size_t>(b * d.sequence);
          const bool seen =
              k <= q && (run.starts.empty() || run.starts[row + static_cast<size_t>(k)] ==
                                                   run.starts[row + static_cast<size_t>(q)]);
          double dot = 0.0;
          for (int64_t i = 0; i < d.head_dim; ++i) {
            dot += at(b, q, h * d.head_dim + i) * at(b, k, key + i);
          }
          p[static_cast<size_t>(k)] =
              seen ? std::exp(dot / std::sqrt(static_cast<double>(d.head_dim))) : 0.0;
          total += p[static_cast<size_t>(k)];
        }
        for (int64_t k = 0; k < d.sequence; ++k) {
          for (int64_t i = 0; i < d.head_dim; ++i) {
            out[static_cast<size_t>(((b * d.sequence + q) * d.heads + h) * d.head_dim + i)] +=
                p[static_cast<size_t>(k)] / total * at(b, k, value + i);
          }
        }
      }
    }
  }
  return out;
}

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-12) << i;
  }
}

// 100 positions of documents that begin at 0, 10 and 67.
Problem ThreeDocuments() {
  Problem run({1, 100, 2, 1, 4});
  run.starts.assign(100, 0);
  for (size_t i = 10; i < 100; ++i) {
    run.starts[i] = i < 67 ? 10 : 67;
  }
  return run;
}

TEST(AttentionForward, GroupedQueries_MatchDefinition) {
  Problem run({2, 70, 4, 2, 6});
  ASSERT_TRUE(run.Forward().ok());
  ExpectNear(run.out, Reference(run));
}

TEST(AttentionForward, Starts_DocumentsDoNotSeeEachOther) {
  Problem run = ThreeDocuments();
  ASSERT_TRUE(run.Forward().ok());
  ExpectNear(run.out, Reference(run));
}

// A change in one document leaves every bit of the others as it was, whatever blocks they share.
TEST(AttentionForward, Starts_OtherDocumentChanges_SameBits) {
  Problem run = ThreeDocuments();
  ASSERT_TRUE(run.Forward().ok());
  const std::vector<double> before = run.out;
  for (size_t i = size_t{10} * 16; i < size_t{67} * 16; ++i) {
    run.qkv[i] = -3.0 * run.qkv[i] + 1.0;
  }
  ASSERT_TRUE(run.Forward().ok());
  for (size_t i = 0; i < run.out.size(); ++i) {
    const size_t row = i / 8;
    EXPECT_EQ(run.out[i] == before[i], row < 10 || row >= 67) << i;
  }
}

TEST(AttentionForward, StartsOutOfRange_AreRefused) {
  for (const int32_t wrong : {-1, 3, 6, 100}) {
    Problem run({1, 8, 1, 1, 2});
    run.starts = {0, 0, 2, 2, 2, wrong, 2, 2};
    EXPECT_EQ(run.Forward().code(), absl::StatusCode::kOutOfRange) << wrong;
  }
}

TEST(AttentionForward, Documents_BoundWhatStartsName) {
  Problem run = ThreeDocuments();
  ASSERT_TRUE(run.Forward().ok());
  const std::vector<double> any = run.out;
  for (const int64_t enough : {3, 4, 100}) {
    run.documents = enough;
    ASSERT_TRUE(run.Forward().ok()) << enough;
    EXPECT_EQ(run.out, any) << enough;
  }
  run.documents = 2;
  EXPECT_EQ(run.Forward().code(), absl::StatusCode::kOutOfRange);
  run.documents = -1;
  EXPECT_EQ(run.Forward().code(), absl::StatusCode::kInvalidArgument);
  run.documents = 3;
  run.starts.clear();
  EXPECT_EQ(run.Forward().code(), absl::StatusCode::kInvalidArgument);
}

TEST(AttentionForward, HeadsNotAMultiple_IsRefused) {
  Problem run({1, 4, 3, 2, 2});
  EXPECT_EQ(run.Forward().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth::kernels
