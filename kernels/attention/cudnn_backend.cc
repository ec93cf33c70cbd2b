// Nothing is built where cuDNN's headers are missing: cudnn_sdpa.cc then says so.
#if __has_include(<cudnn_graph.h>)
#include "kernels/attention/cudnn_backend.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/device_error.h"

namespace hearth::kernels::cudnn {
namespace {

template <typename Function>
absl::Status Resolve(const Library& library, const char* name, Function& function) {
  HEARTH_ASSIGN_OR_RETURN(void* symbol, library.Symbol(name));
  function = reinterpret_cast<Function>(symbol);
  return absl::OkStatus();
}

// Api::Status, with a text that is made only after an error.
template <typename... What>
absl::Status Checked(const Api& api, cudnnStatus_t status, const What&... what) {
  return status == CUDNN_STATUS_SUCCESS ? absl::OkStatus()
                                        : api.Status(status, absl::StrCat(what...).c_str());
}

}  // namespace

absl::StatusOr<Api> Api::Load(const Library& library) {
  Api api;
  HEARTH_RETURN_IF_ERROR(Resolve(library, "cudnnGetVersion", api.GetVersion));
  HEARTH_RETURN_IF_ERROR(Resolve(library, "cudnnGetLastErrorString", api.GetLastErrorString));
  HEARTH_RETURN_IF_ERROR(Resolve(library, "cudnnGetErrorString", api.GetErrorString));
  HEARTH_RETURN_IF_ERROR(Resolve(library, "cudnnCreate", api.Create));
  HEARTH_RETURN_IF_ERROR(Resolve(library, "cudnnDestroy", api.Destroy));
  HEARTH_RETURN_IF_ERROR(Resolve(library, "cudnnSetStream", api.SetStream));
  HEARTH_RETURN_IF_ERROR(Resolve(library, "cudnnBackendCreateDescriptor", api.CreateDescriptor));
  HEARTH_RETURN_IF_ERROR(Resolve(library, "cudnnBackendDestroyDescriptor", api.DestroyDescriptor));
  HEARTH_RETURN_IF_ERROR(Resolve(library, "cudnnBackendFinalize", api.Finalize));
  HEARTH_RETURN_IF_ERROR(Resolve(library, "cudnnBackendSetAttribute", api.SetAttribute));
  HEARTH_RETURN_IF_ERROR(Resolve(library, "cudnnBackendGetAttribute", api.GetAttribute));
  HEARTH_RETURN_IF_ERROR(Resolve(library, "cudnnBackendExecute", api.Execute));
  return api;
}

absl::Status Api::Status(cudnnStatus_t status, const char* what) const {
  if (status == CUDNN_STATUS_SUCCESS) {
    return absl::OkStatus();
  }
  char reason[1024] = "";
  GetLastErrorString(reason, sizeof(reason));
  return DeviceError(absl::StrCat(what, ": ", GetErrorString(status), ": ", reason));
}

Descriptor::Descriptor(const Api& api, cudnnBackendDescriptorType_t type)
    : api_(&api), type_(type) {
  status_ = Checked(api, api.CreateDescriptor(type, &handle_), "creating descriptor ",
                    static_cast<int>(type));
}

Descriptor::~Descriptor() {
  if (handle_ != nullptr) {
    api_->DestroyDescriptor(handle_);
  }
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  // By exchange: `other` destroys what this one held.
  std::swap(api_, other.api_);
  std::swap(type_, other.type_);
  std::swap(handle_, other.handle_);
  std::swap(status_, other.status_);
  return *this;
}

Descriptor& Descriptor::Set(cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type,
                            int64_t count,
                            const void* values) {
  if (status_.ok()) {
    status_ =
        Checked(*api_, api_->SetAttribute(handle_, name, type, count, values), "setting attribute ",
                static_cast<int>(name), " of descriptor ", static_cast<int>(type_));
  }
  return *this;
}

Descriptor& Descriptor::Finalize() {
  if (status_.ok()) {
    status_ =
        Checked(*api_, api_->Finalize(handle_), "finalising descriptor ", static_cast<int>(type_));
  }
  return *this;
}

Tensor GraphBuilder::Real(int64_t uid,
                          cudnnDataType_t dtype,
                          const Dims& dims,
                          const Dims& strides,
                          cudnnBackendDescriptor_t offsets) {
  return Add(uid, dtype, dims, strides, false, false, offsets);
}

Tensor GraphBuilder::Virtual(cudnnDataType_t dtype,
                             const Dims& dims,
                             const Dims& strides,
                             cudnnBackendDescriptor_t offsets) {
  return Add(next_uid_++, dtype, dims, strides, true, false, offsets);
}

Tensor GraphBuilder::VirtualLike(const Tensor& like, cudnnDataType_t dtype) {
  return Virtual(dtype, like.dims, like.strides);
}

Tensor GraphBuilder::Scalar(int64_t uid) {
  return Add(uid, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
}

Tensor GraphBuilder::Add(int64_t uid,
                         cudnnDataType_t dtype,
                         const Dims& dims,
                         const Dims& strides,
                         bool is_virtual,
                         bool by_value,
                         cudnnBackendDescriptor_t offsets) {
  Descriptor d(api_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, uid)
      .Set(CUDNN_ATTR_TENSOR_DATA_TYPE, dtype)
      .Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data())
      .Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data())
      .Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16})
      .Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual)
      .Set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, by_value);
  if (offsets != nullptr) {
    d.Set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, offsets);
  }
  d.Finalize();
  return {Keep(std::move(d)), dims, strides};
}

cudnnBackendDescriptor_t GraphBuilder::Keep(Descriptor descriptor) {
  if (status_.ok()) {
    status_ = descriptor.status();
  }
  descriptors_.push_back(std::move(descriptor));
  return descriptors_.back().get();
}

void GraphBuilder::Operation(Descriptor descriptor) {
  descriptor.Finalize();
  operations_.push_back(Keep(std::move(descriptor)));
}

void GraphBuilder::Matmul(const Tensor& a,
                          const Tensor& b,
                          const Tensor& out,
                          const MatmulSizes& sizes) {
  Descriptor mode(api_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  mode.Set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  if (sizes.pads) {
    const double zero = 0.0;
    mode.Set(CUDNN_ATTR_MATMUL_PADDING_VALUE, CUDNN_TYPE_DOUBLE, 1, &zero);
  }
  mode.Finalize();
  Descriptor op(api_, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  op.Set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.handle)
      .Set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.handle)
      .Set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, out.handle)
      .Set(CUDNN_ATTR_OPERATION_MATMUL_DESC, Keep(std::move(mode)));
  const std::pair<cudnnBackendAttributeName_t, cudnnBackendDescriptor_t> bounds[] = {
      {CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, sizes.m},
      {CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, sizes.n},
      {CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, sizes.k}};
  for (const auto& [attribute, size] : bounds) {
    if (size != nullptr) {
      op.Set(attribute, size);
    }
  }
  Operation(std::move(op));
}

void GraphBuilder::Reduce(cudnnReduceTensorOp_t kind, const Tensor& x, const Tensor& out) {
  Descriptor mode(api_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  mode.Set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .Set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &kind)
      .Finalize();
  Descriptor op(api_, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  op.Set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.handle)
      .Set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, out.handle)
      .Set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, Keep(std::move(mode)));
  Operation(std::move(op));
}

void GraphBuilder::Reshape(const Tensor& x, const Tensor& out) {
  Descriptor op(api_, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  op.Set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.handle)
      .Set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, out.handle);
  Operation(std::move(op));
}

Descriptor GraphBuilder::PointwiseMode(cudnnPointwiseMode_t mode,
                                       cudnnDataType_t precision,
                                       int64_t axis) {
  Descriptor d(api_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  d.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
      .Set(CUDNN_ATTR_POINTWISE_MATH_PREC, precision);
  if (axis >= 0) {
    d.Set(CUDNN_ATTR_POINTWISE_AXIS, axis);
  }
  d.Finalize();
  Descriptor op(api_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  op.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, Keep(std::move(d)));
  return op;
}

void GraphBuilder::Pointwise1(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& out) {
  Descriptor op = PointwiseMode(mode, CUDNN_DATA_FLOAT, -1);
  op.Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.handle)
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out.handle);
  Operation(std::move(op));
}

void GraphBuilder::Pointwise2(cudnnPointwiseMode_t mode,
                              const Tensor& x,
                              const Tensor& b,
                              const Tensor& out,
                              cudnnDataType_t precision) {
  Descriptor op = PointwiseMode(mode, precision, -1);
  op.Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.handle)
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b.handle)
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out.handle);
  Operation(std::move(op));
}

void GraphBuilder::Select(const Tensor& x, const Tensor& b, const Tensor& mask, const Tensor& out) {
  Descriptor op = PointwiseMode(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1);
  op.Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.handle)
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b.handle)
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, mask.handle)
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out.handle);
  Operation(std::move(op));
}

void GraphBuilder::Index(const Tensor& like, int64_t axis, const Tensor& out) {
  Descriptor op = PointwiseMode(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis);
  op.Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, like.handle)
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out.handle);
  Operation(std::move(op));
}

absl::StatusOr<Descriptor> GraphBuilder::Finish(cudnnHandle_t handle) {
  HEARTH_RETURN_IF_ERROR(status_);
  Descriptor graph(api_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            static_cast<int64_t>(operations_.size()), operations_.data());
  if (handle != nullptr) {
    graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  }
  graph.Finalize();
  HEARTH_RETURN_IF_ERROR(graph.status());
  return graph;
}

}  // namespace hearth::kernels::cudnn
#endif
