#include "runtime/jinja/evaluator.h"

#include <algorithm>

#include "runtime/jinja/filters.h"
#include "runtime/jinja/functions.h"
#include "runtime/jinja/methods.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/parser.h"

namespace mft::jinja {

// Variables.

void Evaluator::set(Scope* scope, int name, const Value& value) {
  for (auto& [other, old] : scope->values) {
    if (other == name) {
      old = value;
      return;
    }
  }
  scope->values.emplace_back(name, value);
}

void Evaluator::define(Scope* scope, int name, const Value& value) {
  memory_.spend(static_cast<size_t>(kItemPrice) + scope->values.size());
  set(scope, name, value);
}

const Value* Evaluator::find(const Scope* scope, int name) {
  for (; scope != nullptr; scope = scope->parent) {
    memory_.spend(1 + scope->values.size());
    for (const auto& [other, value] : scope->values) {
      if (other == name) return &value;
    }
  }
  return nullptr;
}

// Expressions.

Value Evaluator::evaluate(const Expression& expression, Scope* scope) {
  const Level level(*this);
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return constant(expression.constant);
    case ExpressionKind::kName: {
      const Value* found = find(scope, expression.name);
      return found != nullptr ? *found : memory_.undefined("'" + expression.word + "'");
    }
    case ExpressionKind::kList:
    case ExpressionKind::kTuple:
      return memory_.list(all(expression.parts, scope), expression.kind == ExpressionKind::kTuple);
    case ExpressionKind::kDict:
      return dict(expression, scope);
    case ExpressionKind::kAttribute:
      return attribute(evaluate(*expression.parts[0], scope), expression.word, memory_);
    case ExpressionKind::kItem: {
      const Value value = evaluate(*expression.parts[0], scope);
      return item(value, evaluate(*expression.parts[1], scope), memory_);
    }
    case ExpressionKind::kSlice: {
      const auto bound = [&](size_t i) {
        return expression.parts[i] == nullptr ? Value::none() : evaluate(*expression.parts[i], scope);
      };
      const Value value = evaluate(*expression.parts[0], scope), start = bound(1), stop = bound(2);
      return slice(value, start, stop, bound(3), memory_);
    }
    case ExpressionKind::kCall:
      return call(expression, scope, nullptr);
    case ExpressionKind::kFilter:
      return filtered(expression, evaluate(*expression.parts[0], scope), scope);
    case ExpressionKind::kTest: {
      const Value value = evaluate(*expression.parts[0], scope);
      CallArguments arguments = arguments_of(expression, expression.word, scope);
      return Value::of(apply_test(expression.word, value, arguments, memory_));
    }
    case ExpressionKind::kUnary: {
      const Value value = evaluate(*expression.parts[0], scope);
      return expression.word == "not" ? Value::of(!is_true(value)) : signed_value(expression.word, value);
    }
    case ExpressionKind::kBinary:
      return of_two(expression, scope);
    case ExpressionKind::kCompare:
      return comparison(expression, scope);
    case ExpressionKind::kCondition:
      if (is_true(evaluate(*expression.parts[1], scope))) return evaluate(*expression.parts[0], scope);
      return expression.parts[2] == nullptr ? memory_.undefined("the value of an if without else")
                                            : evaluate(*expression.parts[2], scope);
    case ExpressionKind::kNamespace:
      break;
  }
  fail("cannot be evaluated");
}

Value Evaluator::constant(const Constant& value) {
  switch (value.type) {
    case ConstantType::kNone:
      return Value::none();
    case ConstantType::kBool:
      return Value::of(value.integer != 0);
    case ConstantType::kInt:
      return Value::of(value.integer);
    case ConstantType::kFloat:
      return Value::of(value.real);
    case ConstantType::kText:
      return Value::of(&value.text);
  }
  return Value::none();
}

std::vector<Value> Evaluator::all(const std::vector<ExpressionPtr>& expressions, Scope* scope) {
  std::vector<Value> values;
  for (const auto& one : expressions) values.push_back(evaluate(*one, scope));
  return values;
}

Value Evaluator::dict(const Expression& expression, Scope* scope) {
  Dict* made = memory_.dict();
  for (size_t i = 0; i + 1 < expression.parts.size(); i += 2) {
    const Value key = evaluate(*expression.parts[i], scope);
    made->set(key, evaluate(*expression.parts[i + 1], scope), memory_);
  }
  return Value::of(made);
}

Value Evaluator::of_two(const Expression& expression, Scope* scope) {
  const Value left = evaluate(*expression.parts[0], scope);
  if (expression.word == "and") return is_true(left) ? evaluate(*expression.parts[1], scope) : left;
  if (expression.word == "or") return is_true(left) ? left : evaluate(*expression.parts[1], scope);
  return binary(expression.word, left, evaluate(*expression.parts[1], scope), memory_);
}

Value Evaluator::comparison(const Expression& expression, Scope* scope) {
  Value left = evaluate(*expression.parts[0], scope);
  for (size_t i = 0; i < expression.words.size(); ++i) {
    const Value right = evaluate(*expression.parts[i + 1], scope);
    if (!compare(expression.words[i], left, right, memory_)) return Value::of(false);
    left = right;
  }
  return Value::of(true);
}

// Calls.

CallArguments Evaluator::arguments_of(const Expression& expression, const std::string& function, Scope* scope) {
  std::vector<std::pair<std::string, Value>> named;
  std::vector<Value> positional = all(expression.arguments.positional, scope);
  for (const auto& [name, value] : expression.arguments.named) named.emplace_back(name, evaluate(*value, scope));
  memory_.spend(kItemPrice * static_cast<int64_t>(positional.size() + named.size()));
  return {function, std::move(positional), std::move(named)};
}

Value Evaluator::filtered(const Expression& expression, Value value, Scope* scope) {
  const Expression* before = expression.parts[0].get();
  if (before != nullptr && before->kind == ExpressionKind::kFilter && is_of_block(*before)) {
    value = filtered(*before, value, scope);
  }
  CallArguments arguments = arguments_of(expression, expression.word, scope);
  return apply_filter(expression.word, value, arguments, memory_);
}

bool Evaluator::is_of_block(const Expression& filter) {
  const Expression* inner = &filter;
  while (inner != nullptr && inner->kind == ExpressionKind::kFilter) inner = inner->parts[0].get();
  return inner == nullptr;
}

Value Evaluator::call(const Expression& expression, Scope* scope, const Value* caller) {
  memory_.spend(kCallPrice);
  const Value callee = evaluate(*expression.parts[0], scope);
  if (callee.is(Type::kUndefined)) fail(callee.undefined_name(), " is undefined");
  if (!callee.is(Type::kFunction)) fail("'", type_name(callee), "' object is not callable");
  const Function& function = callee.function();
  CallArguments arguments = arguments_of(expression, function.name, scope);
  if (function.macro != nullptr) return call_macro(function, arguments, caller);
  if (caller != nullptr) fail(function.name, "() does not support a caller");
  if (!function.self.is(Type::kUndefined)) return call_method(function.self, function.name, arguments, memory_);
  return call_function(function.name, arguments, now_, memory_);
}

Value Evaluator::call_macro(const Function& function, const CallArguments& arguments, const Value* caller) {
  const Macro& macro = *function.macro;
  if (function.scope->over) fail("the macro '", macro.name, "' is called after the end of the block that defines it");
  const Frame frame(*this, function.scope, macro.unset);
  bind(macro, arguments, caller, frame.scope());
  return memory_.text(text_of(macro, frame.scope()));
}

void Evaluator::bind(const Macro& macro, const CallArguments& arguments, const Value* caller, Scope* scope) {
  const size_t count = macro.parameters.size(), first_default = count - macro.defaults.size();
  const std::vector<Value>& positional = arguments.positional();
  std::vector<const Value*> given(count, nullptr);
  for (size_t i = 0; i < std::min(count, positional.size()); ++i) given[i] = &positional[i];
  Dict* named_rest = memory_.dict();
  for (const auto& [name, value] : arguments.named()) {
    const auto found = std::find(macro.parameter_names.begin(), macro.parameter_names.end(), name);
    const auto place = static_cast<size_t>(found - macro.parameter_names.begin());
    if (place < count && given[place] == nullptr) {
      given[place] = &value;
    } else if (name == "caller" && macro.takes_caller && caller == nullptr) {
      caller = &value;
    } else {
      named_rest->set(memory_.text(name), value, memory_);
    }
  }
  if ((!macro.takes_varargs && positional.size() > count) || (!macro.takes_kwargs && named_rest->size() > 0)) {
    fail("macro '", macro.name, "' takes at most ", count, " arguments, each once");
  }
  if (caller != nullptr && !macro.takes_caller) {
    fail("macro '", macro.name, "' was called with a caller, but does not use one");
  }
  if (macro.takes_caller) {
    const bool has_caller = caller != nullptr && !caller->is(Type::kNone);
    define(scope, kCallerName, has_caller ? *caller : memory_.undefined("'caller'"));
  }
  if (macro.takes_varargs) {
    const auto rest = positional.begin() + static_cast<std::ptrdiff_t>(std::min(count, positional.size()));
    define(scope, kVarargsName, memory_.list({rest, positional.end()}, true));
  }
  if (macro.takes_kwargs) define(scope, kKwargsName, Value::of(named_rest));
  // A default may read earlier parameters, and later ones that are given.
  for (size_t i = 0; i < count; ++i) {
    define(scope, macro.parameters[i],
           given[i] != nullptr ? *given[i] : memory_.undefined("parameter '" + macro.parameter_names[i] + "'"));
  }
  for (size_t i = first_default; i < count; ++i) {
    if (given[i] == nullptr) define(scope, macro.parameters[i], evaluate(*macro.defaults[i - first_default], scope));
  }
}

}  // namespace mft::jinja
