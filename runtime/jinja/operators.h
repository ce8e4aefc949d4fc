#pragma once

#include <string>
#include <string_view>

#include "runtime/jinja/memory.h"
#include "runtime/jinja/value.h"

namespace mft::jinja {

/// value.name: returns a method, else an item, else undefined. Throws Error for an attribute of an undefined value.
Value attribute(const Value& value, const std::string& name, Memory& memory);
/// value[key]: returns an item, else an attribute, else undefined.
Value item(const Value& value, const Value& key, Memory& memory);
/// value[start:stop:step]. Bounds that are left out are none.
Value slice(const Value& value, const Value& start, const Value& stop, const Value& step, Memory& memory);
/// + - * / // % ** and ~, as in Python. Throws Error if the operands are not supported or an integer exceeds 64 bits.
Value binary(std::string_view sign, const Value& left, const Value& right, Memory& memory);
/// -value and +value.
Value signed_value(std::string_view sign, const Value& value);
/// == != < <= > >= in and not in.
bool compare(std::string_view sign, const Value& left, const Value& right, Memory& memory);

}  // namespace mft::jinja
