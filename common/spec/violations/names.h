// Nearest valid name, for error texts about table names and keys.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hearth::spec {

// Smallest number of inserted, removed, replaced and swapped neighbouring bytes that turns `a` into
// `b`.
int EditDistance(std::string_view a, std::string_view b);

// The candidate nearest to `name`, or "" when none is near enough to be a likely typing error.
// Prefixes count as near, and letters are compared without case.
std::string_view NearestName(std::string_view name,
                             const std::vector<std::string_view>& candidates);

// `value` is not one of `candidates`: "\"bf61\" is not a recipe; did you mean bf16? (fp32, bf16,
// fp8)". `meant` is what to suggest if that is known; else it is the nearest name.
std::string UnknownNameText(std::string_view value,
                            std::string_view what,
                            const std::vector<std::string_view>& candidates,
                            std::string_view meant = {});

// "bf16", "fp8 and bf16", "nvfp4, fp8 and bf16"; "" of none.
std::string NamesText(const std::vector<std::string_view>& names);

}  // namespace hearth::spec
