// Tables: arrays of rows that are looked up by one of their members, and the names of an enum.
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>
#include <vector>

namespace hearth {

// The first of `rows` (an array, a span or a vector that outlives the result) whose member `key`
// equals `value`; null = there is none.
//   FindRow(kSchedules, &ScheduleRow::name, "cosine")
template <typename Rows, typename Row, typename Key, typename Value>
constexpr const Row* FindRow(const Rows& rows, Key Row::*key, const Value& value) {
  for (const Row& row : rows) {
    if (row.*key == value) {
      return &row;
    }
  }
  return nullptr;
}

// The member `key` of each row, in the table's order.
template <typename Rows, typename Row, typename Key>
std::vector<std::remove_const_t<Key>> ColumnOf(const Rows& rows, Key Row::*key) {
  std::vector<std::remove_const_t<Key>> column;
  for (const Row& row : rows) {
    column.push_back(row.*key);
  }
  return column;
}

// A name for each value of an enum whose values are 0, 1, 2, ... up to kLast, in this order.
// Another number of names does not compile.
//   constexpr EnumNames<Verdict, Verdict::kSpike> kNames = {"good", "spike"};
template <typename Enum, Enum kLast>
class EnumNames {
 public:
  template <typename... Names>
  // NOLINTNEXTLINE(google-explicit-constructor): it is written as a list of names
  constexpr EnumNames(Names... names) : names_{names...} {
    static_assert(sizeof...(names) == kCount, "one name a value");
  }

  // `value` is one of the enum's.
  constexpr std::string_view operator[](Enum value) const {
    return names_[static_cast<size_t>(value)];
  }

 private:
  static constexpr size_t kCount = static_cast<size_t>(kLast) + 1;
  std::string_view names_[kCount];
};

}  // namespace hearth
