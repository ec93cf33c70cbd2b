// cuDNN's backend API behind RAII and statuses: descriptors, and graphs of operations on 4-d
// tensors. For cudnn_sdpa.cc.
#pragma once

#include <cudnn_graph.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/library.h"

namespace hearth::kernels::cudnn {

// Entry points. Those named here exist since 9.8.
struct Api {
  static absl::StatusOr<Api> Load(const Library& library);

  decltype(&cudnnGetVersion) GetVersion = nullptr;
  decltype(&cudnnGetLastErrorString) GetLastErrorString = nullptr;
  decltype(&cudnnGetErrorString) GetErrorString = nullptr;
  decltype(&cudnnCreate) Create = nullptr;
  decltype(&cudnnDestroy) Destroy = nullptr;
  decltype(&cudnnSetStream) SetStream = nullptr;
  decltype(&cudnnBackendCreateDescriptor) CreateDescriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) DestroyDescriptor = nullptr;
  decltype(&cudnnBackendFinalize) Finalize = nullptr;
  decltype(&cudnnBackendSetAttribute) SetAttribute = nullptr;
  decltype(&cudnnBackendGetAttribute) GetAttribute = nullptr;
  decltype(&cudnnBackendExecute) Execute = nullptr;

  // OK, or kInternal "what: status: cuDNN's reason". A descriptor's errors name the numbers of its
  // type and attribute in cudnn_graph.h.
  absl::Status Status(cudnnStatus_t status, const char* what) const;
};

// A descriptor; the Api outlives it. After a failed call of a chain the rest does nothing:
//   Descriptor d(api, TYPE); d.Set(...).Set(...).Finalize(); if (!d.status().ok()) ...
class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const Api& api, cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept { *this = std::move(other); }
  Descriptor& operator=(Descriptor&& other) noexcept;

  Descriptor& Set(cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type,
                  int64_t count,
                  const void* values);
  Descriptor& Set(cudnnBackendAttributeName_t name, int64_t value) {
    return Set(name, CUDNN_TYPE_INT64, 1, &value);
  }
  Descriptor& Set(cudnnBackendAttributeName_t name, bool value) {
    return Set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
  }
  Descriptor& Set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    return Set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  Descriptor& Set(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
    return Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
  }
  Descriptor& Finalize();

  const absl::Status& status() const { return status_; }
  cudnnBackendDescriptor_t get() const { return handle_; }

 private:
  const Api* api_ = nullptr;
  cudnnBackendDescriptorType_t type_ = {};
  cudnnBackendDescriptor_t handle_ = nullptr;
  absl::Status status_;
};

using Dims = std::array<int64_t, 4>;

// A tensor of a graph.
struct Tensor {
  cudnnBackendDescriptor_t handle = nullptr;
  Dims dims = {};
  Dims strides = {};
};

// Tensors [batch, 1, 1, 1] that bound a product's extents in each sequence; null: the whole.
struct MatmulSizes {
  cudnnBackendDescriptor_t m = nullptr;
  cudnnBackendDescriptor_t n = nullptr;
  cudnnBackendDescriptor_t k = nullptr;
  bool pads = false;  // what lies beyond counts as 0
};

// Collects tensors and operations; the first error is kept and the rest does nothing.
class GraphBuilder {
 public:
  explicit GraphBuilder(const Api& api) : api_(api) {}

  // In memory, given by `uid` when the plan runs; 16-byte aligned. uid < 1000. `offsets`: a tensor
  // [batch + 1, 1, 1, 1] of the element at which each sequence begins; null: by the strides.
  Tensor Real(int64_t uid,
              cudnnDataType_t dtype,
              const Dims& dims,
              const Dims& strides,
              cudnnBackendDescriptor_t offsets = nullptr);
  // A tensor between two operations, without memory of its own.
  Tensor Virtual(cudnnDataType_t dtype,
                 const Dims& dims,
                 const Dims& strides,
                 cudnnBackendDescriptor_t offsets = nullptr);
  Tensor VirtualLike(const Tensor& like, cudnnDataType_t dtype = CUDNN_DATA_FLOAT);
  // One float in host memory, given by `uid` when the plan runs.
  Tensor Scalar(int64_t uid);

  // `sizes`: of each sequence, given when the plan runs.
  void Matmul(const Tensor& a, const Tensor& b, const Tensor& out, const MatmulSizes& sizes = {});
  void Reduce(cudnnReduceTensorOp_t op, const Tensor& x, const Tensor& out);
  void Reshape(const Tensor& x, const Tensor& out);
  void Pointwise1(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& out);
  void Pointwise2(cudnnPointwiseMode_t mode,
                  const Tensor& x,
                  const Tensor& b,
                  const Tensor& out,
                  cudnnDataType_t precision = CUDNN_DATA_FLOAT);
  // out = mask ? x : b
  void Select(const Tensor& x, const Tensor& b, const Tensor& mask, const Tensor& out);
  // out = index of the element along `axis`
  void Index(const Tensor& like, int64_t axis, const Tensor& out);

  // The finalised CUDNN_BACKEND_OPERATIONGRAPH; `handle` may be null for a GPU that is not there.
  // The builder's tensors must outlive it.
  absl::StatusOr<Descriptor> Finish(cudnnHandle_t handle);
  // Everything made so far, to be kept with the plan.
  std::vector<Descriptor> TakeDescriptors() { return std::move(descriptors_); }

 private:
  Tensor Add(int64_t uid,
             cudnnDataType_t dtype,
             const Dims& dims,
             const Dims& strides,
             bool is_virtual,
             bool by_value,
             cudnnBackendDescriptor_t offsets = nullptr);
  cudnnBackendDescriptor_t Keep(Descriptor descriptor);
  void Operation(Descriptor descriptor);
  Descriptor PointwiseMode(cudnnPointwiseMode_t mode, cudnnDataType_t precision, int64_t axis);

  const Api& api_;
  absl::Status status_;
  int64_t next_uid_ = 1000;
  std::vector<Descriptor> descriptors_;
  std::vector<cudnnBackendDescriptor_t> operations_;
};

}  // namespace hearth::kernels::cudnn
