# Precompiled headers: the standard library, Abseil, the generated messages and gRPC, which most files read, are a third to half of the time
# that it takes to compile one. On in the preset that users build. Off where we develop, so that a file that forgets an #include is found,
# and so that clang-tidy reads what the compiler reads.
#   hearth_precompiled(target KIND)  with KIND one of
#     messages         standard library, Abseil, the messages of proto/
#     openmp_messages  the same for files compiled with -fopenmp: GCC takes a precompiled header only with the options it was made with
#     services         and gRPC with the service stubs
# Only headers of other projects and generated ones: an edit of ours makes none of them stale.
option(HEARTH_PCH "Precompiled headers" OFF)

# -pthread defines a macro that all files which share a precompiled header must have. ccache takes the header by its bytes, which it may
# only where macros of the command line and __TIME__ need not be compared.
set(HEARTH_PCH_LAUNCHER)
if(HEARTH_PCH)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-pthread>)
  set(HEARTH_PCH_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros)
endif()

set(HEARTH_MESSAGES_HEADERS
  <algorithm> <chrono> <functional> <map> <memory> <optional> <set> <string> <string_view> <utility> <vector>
  <absl/container/flat_hash_map.h> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h>
  <absl/strings/str_join.h> <absl/strings/str_split.h> <absl/synchronization/mutex.h> <absl/time/time.h> <absl/types/span.h>
  <hearth/v1/job.pb.h> <hearth/v1/worker.pb.h> <hearth/v1/agent.pb.h> <hearth/v1/store.pb.h> <hearth/v1/trainer.pb.h>)
set(HEARTH_SERVICES_HEADERS ${HEARTH_MESSAGES_HEADERS}
  <grpcpp/grpcpp.h> <hearth/v1/job.grpc.pb.h> <hearth/v1/worker.grpc.pb.h> <hearth/v1/agent.grpc.pb.h>)

# hearth_precompiled_kind(kind LIBS ... HEADERS ...)
function(hearth_precompiled_kind kind)
  cmake_parse_arguments(A "" "" "LIBS;HEADERS" ${ARGN})
  set(source ${CMAKE_BINARY_DIR}/pch/${kind}.cc)
  if(NOT EXISTS ${source})
    file(WRITE ${source} "namespace { [[maybe_unused]] int nothing; }\n")
  endif()
  add_library(hearth_pch_${kind} OBJECT ${source})
  target_link_libraries(hearth_pch_${kind} PRIVATE ${A_LIBS})
  target_precompile_headers(hearth_pch_${kind} PRIVATE ${A_HEADERS})
endfunction()

# After the targets of proto/ exist.
function(hearth_precompiled_kinds)
  if(HEARTH_PCH)
    hearth_precompiled_kind(messages LIBS hearth_proto HEADERS ${HEARTH_MESSAGES_HEADERS})
    hearth_precompiled_kind(openmp_messages LIBS hearth_proto OpenMP::OpenMP_CXX HEADERS ${HEARTH_MESSAGES_HEADERS})
    hearth_precompiled_kind(services LIBS hearth_proto_grpc HEADERS ${HEARTH_SERVICES_HEADERS})
  endif()
endfunction()

function(hearth_precompiled target kind)
  if(HEARTH_PCH)
    target_precompile_headers(${target} REUSE_FROM hearth_pch_${kind})
  endif()
endfunction()
