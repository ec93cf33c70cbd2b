// What a GPU does to make the orthogonal factor of matrices (kernels/newton_schulz, which are the
// source of these figures), for plans that no kernel can be asked for. A test of the trainer holds
// both together.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "common/spec/model/parameter.h"

namespace hearth::spec {

// Whether the parameter's update is an orthogonal matrix: it has a state of StateKind::kMomentum.
bool IsOrthogonalised(const Parameter& parameter);

// Kernels of a batch beside the products: norm, copies to and from the scratch, both ways to lie,
// and of the Gram form the diagonals.
int OrthogonalCopies(int64_t m, int64_t n);

// c [m, n] of BF16 matrices, contracted over k.
struct OrthogonalProduct {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool addend = false;  // it also reads a matrix of the shape of c
  int64_t calls = 0;    // for one matrix
};

// All that the iteration takes for a matrix of m x n, m <= n, with the coefficients tuned; standard
// does without the squares of the Gram matrix.
std::vector<OrthogonalProduct> OrthogonalProducts(int64_t m, int64_t n);

// The matrices of the table that are orthogonalised: how many of each shape (m, n), m <= n.
std::map<std::pair<int64_t, int64_t>, int64_t> OrthogonalShapes(
    const std::vector<Parameter>& table);

// Matrices of m x n that go into one batch on a GPU, of `count`; >= 1.
int64_t OrthogonalBatch(int64_t m, int64_t n, int64_t count);
// The scratch of a batch of `count`, bytes, with that of cuBLASLt.
int64_t OrthogonalScratchBytes(int64_t m, int64_t n, int64_t count);

}  // namespace hearth::spec
