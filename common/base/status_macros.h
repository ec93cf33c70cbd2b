// Macros over absl::Status; the Abseil of Debian 12 has none.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the status of `expr` from the enclosing function if it is not OK.
#define HEARTH_RETURN_IF_ERROR(expr)      \
  do {                                    \
    absl::Status hearth_status_ = (expr); \
    if (!hearth_status_.ok()) {           \
      return hearth_status_;              \
    }                                     \
  } while (false)

#define HEARTH_MACRO_CONCAT_INNER(a, b) a##b
#define HEARTH_MACRO_CONCAT(a, b) HEARTH_MACRO_CONCAT_INNER(a, b)

// HEARTH_ASSIGN_OR_RETURN(auto x, F()): x = *F(), or returns F's status.
#define HEARTH_ASSIGN_OR_RETURN(lhs, expr) \
  HEARTH_ASSIGN_OR_RETURN_IMPL(HEARTH_MACRO_CONCAT(hearth_statusor_, __LINE__), lhs, expr)
#define HEARTH_ASSIGN_OR_RETURN_IMPL(var, lhs, expr) \
  auto var = (expr);                                 \
  if (!var.ok()) {                                   \
    return std::move(var).status();                  \
  }                                                  \
  lhs = *std::move(var)

// Always on. For conditions that must hold whatever the outside world does; `text` says what was
// believed.
#define HEARTH_CHECK(cond, text)                                                              \
  do {                                                                                        \
    if (!(cond)) [[unlikely]] {                                                               \
      std::fprintf(stderr, "%s:%d: check failed: %s: %s\n", __FILE__, __LINE__, #cond, text); \
      std::abort();                                                                           \
    }                                                                                         \
  } while (false)

#ifdef NDEBUG
#define HEARTH_DCHECK(cond, text) static_cast<void>(0)
#else
#define HEARTH_DCHECK(cond, text) HEARTH_CHECK(cond, text)
#endif
