#pragma once

#include <string_view>
#include <unordered_map>

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/memory.h"
#include "runtime/jinja/value.h"

namespace mft::jinja {

using Method = Value (*)(const Value& self, CallArguments& arguments, Memory& memory);
using MethodTable = std::unordered_map<std::string_view, Method>;

/// Methods of texts, by name.
const MethodTable& text_methods();

}  // namespace mft::jinja
