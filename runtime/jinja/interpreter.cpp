#include "runtime/jinja/interpreter.h"

#include <algorithm>
#include <functional>

#include "runtime/core/error.h"
#include "runtime/jinja/arguments.h"
#include "runtime/jinja/filters.h"
#include "runtime/jinja/methods.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/parser.h"

namespace mft::jinja {
namespace {

constexpr int kMostLevels = 250;    // of statements and expressions that run within each other
constexpr size_t kMostStyle = 100;  // characters of a date's format
constexpr const char* kFunctions[] = {"dict", "namespace", "raise_exception", "range", "strftime_now"};

enum class Flow { kNext, kBreak, kContinue };

class Interpreter {
 public:
  Interpreter(const Syntax& syntax, const std::tm& now, Memory& memory) : syntax_(syntax), now_(now), memory_(memory) {}

  Rendering render(const std::vector<std::pair<std::string, Value>>& variables, const List* messages) {
    if (messages != nullptr) {
      for (size_t i = 0; i < messages->items.size(); ++i) {
        const Value& message = messages->items[i];
        if (message.is(Type::kDict)) numbers_[&message.dict()] = static_cast<int>(i);
      }
    }
    Scope* globals = memory_.scope(nullptr);
    const auto define = [&](const std::string& name, const Value& value) {
      const auto found = std::find(syntax_.names.begin(), syntax_.names.end(), name);
      if (found != syntax_.names.end()) set(globals, static_cast<int>(found - syntax_.names.begin()), value);
    };
    for (const char* name : kFunctions) define(name, memory_.function({name, {}}));
    for (const auto& [name, value] : variables) define(name, value);
    out_ = &rendering_.text;
    run(syntax_.body, memory_.scope(globals));
    return std::move(rendering_);
  }

 private:
  /// Counts what runs within each other as long as it lives.
  class Level {
   public:
    explicit Level(Interpreter& interpreter) : interpreter_(interpreter) {
      if (++interpreter_.level_ > kMostLevels) fail("it nests deeper than ", kMostLevels, " levels");
      interpreter_.memory_.spend(kStepPrice);
    }
    ~Level() { --interpreter_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Interpreter& interpreter_;
  };

  // Variables.

  static void set(Scope* scope, int name, const Value& value) {
    for (auto& [other, old] : scope->values) {
      if (other == name) {
        old = value;
        return;
      }
    }
    scope->values.emplace_back(name, value);
  }

  void define(Scope* scope, int name, const Value& value) {
    memory_.spend(kItemPrice);
    set(scope, name, value);
  }

  const Value* find(const Scope* scope, int name) {
    for (; scope != nullptr; scope = scope->parent) {
      memory_.spend(scope->values.size());
      for (const auto& [other, value] : scope->values) {
        if (other == name) return &value;
      }
    }
    return nullptr;
  }

  void assign(const Expression& target, const Value& value, Scope* scope) {
    if (target.kind == ExpressionKind::kName) {
      define(scope, target.name, value);
    } else if (target.kind == ExpressionKind::kNamespace) {
      const Value* found = find(scope, target.name);
      if (found == nullptr || !found->is(Type::kNamespace)) fail("cannot assign attribute on non-namespace object");
      found->names().set(memory_.text(target.word), value, memory_);
    } else {
      const std::vector<Value> items = items_of(value, memory_);
      if (items.size() != target.parts.size()) {
        fail(items.size(), " values for ", target.parts.size(), " names");
      }
      for (size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i], scope);
    }
  }

  // Output.

  void emit(const std::string& text) {
    memory_.spend(text.size());
    *out_ += text;
    if (out_ != &rendering_.text || text.empty()) return;
    auto& parts = rendering_.parts;
    if (parts.empty() || parts.back().message != message_) {
      parts.push_back({out_->size() - text.size(), 0, message_});
    }
    parts.back().end = out_->size();
  }

  /// What `write` puts out.
  template <typename Write>
  std::string captured(Write write) {
    std::string text;
    std::string* const before = std::exchange(out_, &text);
    write();
    out_ = before;
    return text;
  }

  // Statements.

  Flow run(const Body& body, Scope* scope) {
    for (const auto& statement : body) {
      const Flow flow = run(*statement, scope);
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  Flow run(const Statement& statement, Scope* scope) {
    const Level level(*this);
    switch (statement.kind) {
      case StatementKind::kData:
        emit(statement.data);
        return Flow::kNext;
      case StatementKind::kPrint:
        print(evaluate(*statement.value, scope));
        return Flow::kNext;
      case StatementKind::kFor:
        run_for(statement, scope);
        return Flow::kNext;
      case StatementKind::kIf:
        for (const Branch& branch : statement.branches) {
          if (branch.test == nullptr || is_true(evaluate(*branch.test, scope))) return run(branch.body, scope);
        }
        return Flow::kNext;
      case StatementKind::kSet:
        run_set(statement, scope);
        return Flow::kNext;
      case StatementKind::kBreak:
        return Flow::kBreak;
      case StatementKind::kContinue:
        return Flow::kContinue;
      case StatementKind::kGeneration:
        return run_generation(statement, scope);
      default:
        return run_block(statement, scope);
    }
  }

  void print(const Value& value) {
    if (value.is(Type::kText)) {
      emit(value.text());
    } else {
      emit(to_text(value, memory_));
    }
  }

  /// A message's number, -1 of any other value.
  int message_of(const Value& value) const {
    if (!value.is(Type::kDict)) return -1;
    const auto found = numbers_.find(&value.dict());
    return found == numbers_.end() ? -1 : found->second;
  }

  void run_set(const Statement& statement, Scope* scope) {
    const Value value = evaluate(*statement.value, scope);
    assign(*statement.target, value, scope);
    // A loop over the messages' numbers takes each by such an assignment.
    if (loops_ > 0 && message_ < 0) message_ = message_of(value);
  }

  /// Statements whose body has a scope of its own.
  Flow run_block(const Statement& statement, Scope* scope) {
    Scope* inner = memory_.scope(scope);
    if (statement.kind == StatementKind::kMacro) {
      define(scope, statement.target->name,
             memory_.function({statement.macro->name, {}, statement.macro.get(), scope}));
      return Flow::kNext;
    }
    if (statement.kind == StatementKind::kCall) {
      define(inner, kCallerName, memory_.function({"caller", {}, statement.macro.get(), scope}));
      print(call(*statement.value, inner, find(inner, kCallerName)));
      return Flow::kNext;
    }
    if (statement.kind == StatementKind::kWith) {
      for (size_t i = 0; i < statement.targets.size(); ++i) {
        assign(*statement.targets[i], evaluate(*statement.values[i], scope), inner);
      }
      return run(statement.body, inner);
    }
    Flow flow = Flow::kNext;
    const std::string text = captured([&] { flow = run(statement.body, inner); });
    Value value = memory_.text(text);
    if (statement.value != nullptr) value = filtered(*statement.value, value, inner);
    if (statement.kind == StatementKind::kSetBlock) {
      assign(*statement.target, value, scope);
    } else {
      print(value);
    }
    return flow;
  }

  Flow run_generation(const Statement& statement, Scope* scope) {
    const size_t begin = out_->size();
    const Flow flow = run(statement.body, memory_.scope(scope));
    if (out_ == &rendering_.text && out_->size() > begin) {
      memory_.spend(kItemPrice);
      rendering_.marks.push_back({begin, out_->size(), message_});
    }
    return flow;
  }

  void run_for(const Statement& statement, Scope* scope) {
    std::vector<Value> items = items_of(evaluate(*statement.value, scope), memory_);
    if (statement.test != nullptr) {
      const auto fails = [&](const Value& one) {
        Scope* inner = memory_.scope(scope);
        assign(*statement.target, one, inner);
        return !is_true(evaluate(*statement.test, inner));
      };
      items.erase(std::remove_if(items.begin(), items.end(), fails), items.end());
    }
    if (items.empty()) {
      run(statement.otherwise, memory_.scope(scope));
      return;
    }
    LoopState* state = nullptr;
    const Value loop = memory_.loop(&state);
    const Value kept = memory_.list(std::move(items));  // as long as `loop`, which a namespace may keep
    state->items = &kept.list().items;
    const int message_before = message_;
    ++loops_;
    for (state->index = 0; state->index < state->items->size(); ++state->index) {
      const Value& item = (*state->items)[state->index];
      Scope* inner = memory_.scope(scope);
      define(inner, kLoopName, loop);
      assign(*statement.target, item, inner);
      message_ = message_before;
      if (message_of(item) >= 0) message_ = message_of(item);
      if (run(statement.body, inner) == Flow::kBreak) break;
    }
    --loops_;
    message_ = message_before;
  }

  // Expressions.

  Value evaluate(const Expression& expression, Scope* scope) {
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

  static Value constant(const Constant& value) {
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

  std::vector<Value> all(const std::vector<ExpressionPtr>& expressions, Scope* scope) {
    std::vector<Value> values;
    for (const auto& one : expressions) values.push_back(evaluate(*one, scope));
    return values;
  }

  Value dict(const Expression& expression, Scope* scope) {
    Dict* made = memory_.dict();
    for (size_t i = 0; i + 1 < expression.parts.size(); i += 2) {
      const Value key = evaluate(*expression.parts[i], scope);
      made->set(key, evaluate(*expression.parts[i + 1], scope), memory_);
    }
    return Value::of(made);
  }

  Value of_two(const Expression& expression, Scope* scope) {
    const Value left = evaluate(*expression.parts[0], scope);
    if (expression.word == "and") return is_true(left) ? evaluate(*expression.parts[1], scope) : left;
    if (expression.word == "or") return is_true(left) ? left : evaluate(*expression.parts[1], scope);
    return binary(expression.word, left, evaluate(*expression.parts[1], scope), memory_);
  }

  Value comparison(const Expression& expression, Scope* scope) {
    Value left = evaluate(*expression.parts[0], scope);
    for (size_t i = 0; i < expression.words.size(); ++i) {
      const Value right = evaluate(*expression.parts[i + 1], scope);
      if (!compare(expression.words[i], left, right, memory_)) return Value::of(false);
      left = right;
    }
    return Value::of(true);
  }

  // Calls.

  CallArguments arguments_of(const Expression& expression, const std::string& function, Scope* scope) {
    std::vector<std::pair<std::string, Value>> named;
    std::vector<Value> positional = all(expression.arguments.positional, scope);
    for (const auto& [name, value] : expression.arguments.named) named.emplace_back(name, evaluate(*value, scope));
    memory_.spend(kItemPrice * static_cast<int64_t>(positional.size() + named.size()));
    return {function, std::move(positional), std::move(named)};
  }

  /// The filters of an expression on a value; those of a filter block have no innermost operand.
  Value filtered(const Expression& expression, Value value, Scope* scope) {
    const Expression* before = expression.parts[0].get();
    if (before != nullptr && before->kind == ExpressionKind::kFilter && is_of_block(*before)) {
      value = filtered(*before, value, scope);
    }
    CallArguments arguments = arguments_of(expression, expression.word, scope);
    return apply_filter(expression.word, value, arguments, memory_);
  }

  static bool is_of_block(const Expression& filter) {
    const Expression* inner = &filter;
    while (inner != nullptr && inner->kind == ExpressionKind::kFilter) inner = inner->parts[0].get();
    return inner == nullptr;
  }

  Value call(const Expression& expression, Scope* scope, const Value* caller) {
    memory_.spend(kCallPrice);
    const Value callee = evaluate(*expression.parts[0], scope);
    if (callee.is(Type::kUndefined)) fail(callee.undefined_name(), " is undefined");
    if (!callee.is(Type::kFunction)) fail("'", type_name(callee), "' object is not callable");
    const Function& function = callee.function();
    CallArguments arguments = arguments_of(expression, function.name, scope);
    if (function.macro != nullptr) return call_macro(function, arguments, caller);
    if (!function.self.is(Type::kUndefined)) return call_method(function.self, function.name, arguments, memory_);
    return call_function(function.name, arguments);
  }

  Value call_macro(const Function& function, const CallArguments& arguments, const Value* caller) {
    const Macro& macro = *function.macro;
    Scope* scope = memory_.scope(function.scope);
    const size_t count = macro.parameters.size(), first_default = count - macro.defaults.size();
    std::vector<const Value*> given(count, nullptr);
    std::vector<Value> rest;
    for (size_t i = 0; i < arguments.positional().size(); ++i) {
      if (i < count) {
        given[i] = &arguments.positional()[i];
      } else {
        rest.push_back(arguments.positional()[i]);
      }
    }
    Dict* named_rest = memory_.dict();
    for (const auto& [name, value] : arguments.named()) {
      const auto found = std::find(macro.parameter_names.begin(), macro.parameter_names.end(), name);
      if (found != macro.parameter_names.end()) {
        given[static_cast<size_t>(found - macro.parameter_names.begin())] = &value;
      } else if (name == "caller") {
        caller = &value;
      } else {
        named_rest->set(memory_.text(name), value, memory_);
      }
    }
    if (!macro.takes_rest && (!rest.empty() || named_rest->size() > 0)) {
      fail("macro '", macro.name, "' takes no more than ", count, " arguments");
    }
    if (caller != nullptr) {
      if (!macro.takes_caller) fail("macro '", macro.name, "' was invoked with a caller, and takes none");
      define(scope, kCallerName, *caller);
    } else if (macro.takes_caller) {
      define(scope, kCallerName, memory_.undefined("'caller'"));
    }
    if (macro.takes_rest) {
      define(scope, kVarargsName, memory_.list(std::move(rest), true));
      define(scope, kKwargsName, Value::of(named_rest));
    }
    for (size_t i = 0; i < count; ++i) {
      const bool has_default = given[i] == nullptr && i >= first_default;
      define(scope, macro.parameters[i],
             given[i] != nullptr ? *given[i]
             : has_default       ? evaluate(*macro.defaults[i - first_default], scope)
                                 : memory_.undefined("parameter '" + macro.parameter_names[i] + "'"));
    }
    const int loops_before = std::exchange(loops_, 0);
    const std::string text = captured([&] { run(macro.body, scope); });
    loops_ = loops_before;
    return memory_.text(text);
  }

  Value call_function(const std::string& name, CallArguments& arguments) {
    if (name == "range") return range(arguments);
    if (name == "raise_exception") {
      arguments.match({"message"}, 1);
      fail(to_text(arguments.at(0), memory_));
    }
    if (name == "strftime_now") {
      arguments.match({"format"}, 1);
      return memory_.text(date(arguments.text(0)));
    }
    Dict made;
    if (!arguments.positional().empty()) {
      const Value& from = arguments.positional()[0];
      if (arguments.positional().size() > 1) fail(name, "() takes one argument without name");
      fill(made, from);
    }
    for (const auto& [key, value] : arguments.named()) made.set(memory_.text(key), value, memory_);
    if (name == "namespace") return memory_.name_space(std::move(made));
    Dict* dict = memory_.dict();
    *dict = std::move(made);
    return Value::of(dict);
  }

  void fill(Dict& made, const Value& from) {
    if (from.is(Type::kDict)) {
      for (const auto& [key, value] : from.dict().items()) made.set(key, value, memory_);
      return;
    }
    for (const Value& one : items_of(from, memory_)) {
      const std::vector<Value> pair = items_of(one, memory_);
      if (pair.size() != 2) fail("dict() wants pairs of a key and a value");
      made.set(pair[0], pair[1], memory_);
    }
  }

  Value range(CallArguments& arguments) {
    const size_t count = arguments.positional().size();
    arguments.match({"start", "stop", "step"}, 1);
    const int64_t start = count > 1 ? arguments.integer(0, 0) : 0;
    const int64_t stop = arguments.integer(count > 1 ? 1 : 0, 0), step = arguments.integer(2, 1);
    if (step == 0) fail("range() arg 3 must not be zero");
    std::vector<Value> items;
    int64_t value = start;
    while (step > 0 ? value < stop : value > stop) {
      memory_.spend(kItemPrice);
      items.push_back(Value::of(value));
      if (__builtin_add_overflow(value, step, &value)) break;
    }
    return memory_.list(std::move(items));
  }

  std::string date(const std::string& style) const {
    if (style.size() > kMostStyle) fail("a date in more than ", kMostStyle, " characters");
    char text[1 << 14];
    return std::string(text, std::strftime(text, sizeof text, style.c_str(), &now_));
  }

  const Syntax& syntax_;
  const std::tm& now_;
  Memory& memory_;
  std::unordered_map<const Dict*, int> numbers_;  // of messages
  Rendering rendering_;
  std::string* out_ = nullptr;
  int message_ = -1, level_ = 0, loops_ = 0;
};

}  // namespace

Rendering run(const Syntax& syntax, const std::vector<std::pair<std::string, Value>>& variables, const List* messages,
              const std::tm& now, Memory& memory) {
  return Interpreter(syntax, now, memory).render(variables, messages);
}

}  // namespace mft::jinja
