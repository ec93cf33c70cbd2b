#include "common/spec/plan/blocks/head_block.h"

namespace hearth::spec {

void AddHead(const BlockScope& scope, PlanBuilder& out) {
  const int64_t n = scope.tokens;
  const int64_t hidden = scope.shape.hidden;
  const Lifetime life = {scope.time.Head(), scope.time.Head()};
  HeadBuffers& ids = out.ids().head;
  ids.norm_stats =
      out.Floats("head.norm_stats", BufferClass::kWorkspace, DType::kF32, {2, n}, life);
  ids.input =
      out.Floats("head.input", BufferClass::kWorkspace, scope.activation, {n, hidden}, life);
  ids.norm = out.Floats("head.norm", BufferClass::kWorkspace, scope.activation, {n, hidden}, life);
}

void AddQuantisedHead(const BlockScope& scope, PlanBuilder& out) {
  const int64_t bytes = scope.tokens * scope.shape.hidden;
  const Lifetime life = {scope.time.Head(), scope.time.Head()};
  HeadBuffers& ids = out.ids().head;
  ids.rows = out.Bytes("head.rows", BufferClass::kWorkspace, bytes, life);
  ids.columns = out.Bytes("head.columns", BufferClass::kWorkspace, bytes, life);
}

}  // namespace hearth::spec
