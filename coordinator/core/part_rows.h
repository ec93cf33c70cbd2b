// How a part writes its rows of the command table (core_commands.h). A part that applies commands
// has one member function for each, `void Name(const Command&)`, and names it in its Rows(). The
// row reaches the part by its type alone, so parts do not see one another.
#pragma once

#include <typeindex>

#include "coordinator/core/core_commands.h"

namespace hearth::coordinator {

// The part and the command of a member function that applies one.
template <typename Handler>
struct HandlerTypes;
template <typename PartType, typename CommandType>
struct HandlerTypes<void (PartType::*)(const CommandType&)> {
  using Part = PartType;
  using Command = CommandType;
};

template <typename T>
RequestKey KeyOf(const void* args) {
  [[maybe_unused]] const T& command = *static_cast<const T*>(args);
  if constexpr (requires { command.request_id(); }) {
    return {command.request_id(), command.job_id()};
  } else if constexpr (requires { command.request_id; }) {
    return {command.request_id, command.job_id};
  } else {
    return {};
  }
}

enum class OnFullDisk { kApplied, kRefused };

// The row of the command that Handler takes: Row<&JobCommands::Cancel>("cancel_job", ...).
template <auto Handler>
CommandRow Row(const char* name,
               OnFullDisk on_full_disk = OnFullDisk::kApplied,
               const char* request_method = "") {
  using Part = typename HandlerTypes<decltype(Handler)>::Part;
  using T = typename HandlerTypes<decltype(Handler)>::Command;
  return {typeid(T),
          name,
          on_full_disk == OnFullDisk::kRefused,
          request_method,
          *request_method == 0 ? nullptr : &KeyOf<T>,
          typeid(Part),
          [](void* part, const void* args) {
            (static_cast<Part*>(part)->*Handler)(*static_cast<const T*>(args));
          }};
}

}  // namespace hearth::coordinator
