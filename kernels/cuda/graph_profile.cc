// Which kernels a graph's time goes to, without a profiler: nodes are switched off and what is left
// is timed.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device.h"

namespace hearth::kernels {
namespace {

// Found through the runtime, so that nothing links the driver. The runtime itself cannot tell what
// a library launched through the driver.
template <typename Function>
Function Driver(const char* symbol, unsigned version) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(symbol, &entry, version, cudaEnableDefault, &found);
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess
             ? reinterpret_cast<Function>(entry)
             : nullptr;
}

std::string NameOf(const CUDA_KERNEL_NODE_PARAMS& params) {
  static const auto of_kernel = Driver<decltype(&cuKernelGetName)>("cuKernelGetName", 12030);
  static const auto of_function = Driver<decltype(&cuFuncGetName)>("cuFuncGetName", 12030);
  const char* name = nullptr;
  if (params.kern != nullptr && of_kernel != nullptr) {
    of_kernel(&name, params.kern);
  } else if (params.func != nullptr && of_function != nullptr) {
    of_function(&name, params.func);
  }
  return name == nullptr ? "a kernel without a name" : name;
}

// Name and grid; {"", ""} for what is no kernel.
std::pair<std::string, std::string> KindOf(cudaGraphNode_t node) {
  static const auto read =
      Driver<decltype(&cuGraphKernelNodeGetParams)>("cuGraphKernelNodeGetParams", 12000);
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  CUDA_KERNEL_NODE_PARAMS params = {};
  if (cudaGraphNodeGetType(node, &type) != cudaSuccess || type != cudaGraphNodeTypeKernel ||
      read == nullptr || read(node, &params) != CUDA_SUCCESS) {
    return {};
  }
  return {NameOf(params),
          absl::StrCat(params.gridDimX, " x ", params.gridDimY, " x ", params.gridDimZ, " of ",
                       params.blockDimX * params.blockDimY * params.blockDimZ, " threads")};
}

// Kernels, copies and fills can be switched off.
bool Switches(cudaGraphNode_t node) {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  return cudaGraphNodeGetType(node, &type) == cudaSuccess &&
         (type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemcpy ||
          type == cudaGraphNodeTypeMemset);
}

absl::Status Switch(void* executable, const std::vector<cudaGraphNode_t>& nodes, bool on) {
  for (cudaGraphNode_t node : nodes) {
    HEARTH_CUDA_RETURN_IF_ERROR(
        cudaGraphNodeSetEnabled(static_cast<cudaGraphExec_t>(executable), node, on ? 1U : 0U));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<double> Graph::Time(const Exec& exec, int replays) {
  const auto stream = static_cast<cudaStream_t>(exec.stream);
  HEARTH_RETURN_IF_ERROR(Launch(exec));  // uploads the changed graph
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  HEARTH_CUDA_RETURN_IF_ERROR(cudaEventCreate(&begin));
  HEARTH_CUDA_RETURN_IF_ERROR(cudaEventCreate(&end));
  HEARTH_CUDA_RETURN_IF_ERROR(cudaEventRecord(begin, stream));
  for (int i = 0; i < replays; ++i) {
    HEARTH_RETURN_IF_ERROR(Launch(exec));
  }
  HEARTH_CUDA_RETURN_IF_ERROR(cudaEventRecord(end, stream));
  HEARTH_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(end));
  float milliseconds = 0.0F;
  HEARTH_CUDA_RETURN_IF_ERROR(cudaEventElapsedTime(&milliseconds, begin, end));
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return 1e3 * double{milliseconds} / replays;
}

absl::StatusOr<std::vector<Graph::Kind>> Graph::Profile(const Exec& exec, int replays) {
  std::vector<cudaGraphNode_t> all(nodes_);
  size_t count = nodes_;
  HEARTH_CUDA_RETURN_IF_ERROR(
      cudaGraphGetNodes(static_cast<cudaGraph_t>(graph_), all.data(), &count));
  all.erase(
      std::remove_if(all.begin(), all.end(), [](cudaGraphNode_t node) { return !Switches(node); }),
      all.end());
  std::map<std::pair<std::string, std::string>, std::vector<cudaGraphNode_t>> kinds;
  for (cudaGraphNode_t node : all) {
    kinds[KindOf(node)].push_back(node);
  }
  HEARTH_ASSIGN_OR_RETURN(const double whole, Time(exec, replays));
  HEARTH_RETURN_IF_ERROR(Switch(executable_, all, false));
  HEARTH_ASSIGN_OR_RETURN(const double none, Time(exec, replays));
  std::vector<Kind> out;
  for (const auto& [key, nodes] : kinds) {
    Kind kind;
    kind.name = key.first;
    kind.grid = key.second;
    kind.count = static_cast<int>(nodes.size());
    HEARTH_RETURN_IF_ERROR(Switch(executable_, nodes, true));
    HEARTH_ASSIGN_OR_RETURN(const double alone, Time(exec, replays));
    kind.alone_us = alone - none;
    HEARTH_RETURN_IF_ERROR(Switch(executable_, all, true));
    HEARTH_RETURN_IF_ERROR(Switch(executable_, nodes, false));
    HEARTH_ASSIGN_OR_RETURN(const double without, Time(exec, replays));
    kind.without_us = whole - without;
    HEARTH_RETURN_IF_ERROR(Switch(executable_, all, false));
    out.push_back(std::move(kind));
  }
  HEARTH_RETURN_IF_ERROR(Switch(executable_, all, true));
  std::sort(out.begin(), out.end(),
            [](const Kind& a, const Kind& b) { return a.alone_us > b.alone_us; });
  return out;
}

}  // namespace hearth::kernels
