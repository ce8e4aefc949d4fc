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

// Of statements and expressions that run within each other. Threads of Android's have 512 KB of stack; macros that call
// themselves for the default of a parameter take most of it, 330 KB without optimization.
constexpr int kMostLevels = 200;
constexpr size_t kMostStyle = 100;       // characters of a date's format
constexpr int64_t kMostRange = 100'000;  // items, as of Jinja's sandbox
constexpr const char* kFunctions[] = {"dict", "namespace", "raise_exception", "range", "strftime_now"};
// What Jinja has besides, and templates may ask for, but not call here.
constexpr const char* kOtherFunctions[] = {"cycler", "joiner", "lipsum"};

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
    for (const char* name : kOtherFunctions) define(name, memory_.function({name, {}}));
    for (const auto& [name, value] : variables) define(name, value);
    out_ = &rendering_.text;
    const Frame frame(*this, globals, syntax_.unset);
    run(syntax_.body, frame.scope());
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

  /// The variables of a body, as long as it runs.
  class Frame {
   public:
    Frame(Interpreter& interpreter, Scope* parent, const std::vector<int>& unset)
        : scope_(interpreter.memory_.scope(parent)) {
      for (const int name : unset) interpreter.define(scope_, name, interpreter.undefined(name));
    }
    ~Frame() { scope_->over = true; }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

    Scope* scope() const { return scope_; }

   private:
    Scope* scope_;
  };

  // Variables.

  Value undefined(int name) { return memory_.undefined("'" + syntax_.names[static_cast<size_t>(name)] + "'"); }

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
    memory_.spend(static_cast<size_t>(kItemPrice) + scope->values.size());
    set(scope, name, value);
  }

  const Value* find(const Scope* scope, int name) {
    for (; scope != nullptr; scope = scope->parent) {
      memory_.spend(1 + scope->values.size());
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
      check_name(target.word);
      found->names().set(memory_.text(target.word), value, memory_);
    } else {
      const std::vector<Value> items = items_of(value, memory_);
      if (items.size() != target.parts.size()) {
        fail(items.size(), " values for ", target.parts.size(), " names");
      }
      for (size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i], scope);
    }
  }

  /// Transformers lets no namespace have such names.
  static void check_name(std::string_view name) {
    if (name.substr(0, 1) == "_") fail("a namespace cannot have the attribute ", name);
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
    if (value.is_text()) {
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
    if (statement.kind == StatementKind::kMacro) {
      define(scope, statement.target->name,
             memory_.function({statement.macro->name, {}, statement.macro.get(), scope}));
      return Flow::kNext;
    }
    if (statement.kind == StatementKind::kCall) {
      const Value caller = memory_.function({"caller", {}, statement.macro.get(), scope});
      print(call(*statement.value, scope, &caller));
      return Flow::kNext;
    }
    const Frame frame(*this, scope, statement.unset);
    Scope* const inner = frame.scope();
    if (statement.kind == StatementKind::kWith) {
      for (size_t i = 0; i < statement.targets.size(); ++i) {
        assign(*statement.targets[i], evaluate(*statement.values[i], scope), inner);
      }
      return run(statement.body, inner);
    }
    Flow flow = Flow::kNext;
    std::string text = captured([&] { flow = run(statement.body, inner); });
    if (flow != Flow::kNext) return flow;  // out of a loop, and the text is lost
    Value value = memory_.text(std::move(text));
    if (statement.value != nullptr) value = filtered(*statement.value, value, inner);
    if (statement.kind == StatementKind::kSetBlock) {
      assign(*statement.target, value, scope);
    } else {
      if (!value.is_text()) fail("a filter block whose filters give a ", type_name(value));
      print(value);
    }
    return flow;
  }

  Flow run_generation(const Statement& statement, Scope* scope) {
    const size_t begin = out_->size();
    const Frame frame(*this, scope, statement.macro->unset);
    run(statement.macro->body, frame.scope());
    if (out_ == &rendering_.text && out_->size() > begin) {
      memory_.spend(kItemPrice);
      rendering_.marks.push_back({begin, out_->size(), message_});
    }
    return Flow::kNext;
  }

  /// The items that a loop with a condition walks over are sought one by one, since what its body does may change
  /// which they are.
  void run_for(const Statement& statement, Scope* scope) {
    const Value source = evaluate(*statement.value, scope);
    std::vector<Value> items = items_of(source, memory_);
    LoopState* state = nullptr;
    const Value loop = memory_.loop(&state);
    size_t taken = 0;
    const auto fetch = [&] {
      while (taken < items.size()) {
        const Value& one = items[taken++];
        const Frame frame(*this, scope, {});
        assign(*statement.target, one, frame.scope());
        if (!is_true(evaluate(*statement.test, frame.scope()))) continue;
        state->items.push_back(rebuilt(*statement.target, one));
        return true;
      }
      return false;
    };
    if (statement.test != nullptr) {
      state->fetch = fetch;
    } else {
      state->items = std::move(items);
    }
    if (source.is(Type::kIterator)) source.iterator().busy = true;
    const LoopEnd end = run_loop(statement, loop, scope);
    if (state->fetch) state->fetch = [] { return fail_over(); };
    if (source.is(Type::kIterator)) source.iterator().busy = end.broken;
    if (!end.ran) {
      const Frame frame(*this, scope, statement.otherwise_unset);
      run(statement.otherwise, frame.scope());
    }
  }

  [[noreturn]] static bool fail_over() { fail("a loop with a condition is asked for its items when it is over"); }

  /// What a loop with a condition makes of an item: tuples of what it assigns to tuples.
  Value rebuilt(const Expression& target, const Value& value) {
    if (target.kind != ExpressionKind::kTuple) return value;
    std::vector<Value> items = items_of(value, memory_);
    for (size_t i = 0; i < items.size(); ++i) items[i] = rebuilt(*target.parts[i], items[i]);
    return memory_.list(std::move(items), true);
  }

  struct LoopEnd {
    bool ran = false;     // an iteration to the end of the body, without break and continue: `else` is for none
    bool broken = false;  // by a break
  };

  LoopEnd run_loop(const Statement& statement, const Value& loop, Scope* scope) {
    LoopState& state = loop.loop();
    const int message_before = message_;
    LoopEnd end;
    ++loops_;
    while (!end.broken && (state.index < state.items.size() || (state.fetch && state.fetch()))) {
      const Value item = state.items[state.index];
      const Frame frame(*this, scope, statement.unset);
      define(frame.scope(), kLoopName, loop);
      assign(*statement.target, item, frame.scope());
      message_ = message_before;
      if (message_of(item) >= 0) message_ = message_of(item);
      const Flow flow = run(statement.body, frame.scope());
      end.ran |= flow == Flow::kNext;
      end.broken = flow == Flow::kBreak;
      if (!end.broken) ++state.index;
    }
    if (!end.broken && state.index > 0) --state.index;  // it stays at the last item
    --loops_;
    message_ = message_before;
    return end;
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
    if (caller != nullptr) fail(function.name, "() takes no caller");
    if (!function.self.is(Type::kUndefined)) return call_method(function.self, function.name, arguments, memory_);
    return call_function(function.name, arguments);
  }

  Value call_macro(const Function& function, const CallArguments& arguments, const Value* caller) {
    const Macro& macro = *function.macro;
    if (function.scope->over) fail("the macro '", macro.name, "' is called when what it is defined in is over");
    const Frame frame(*this, function.scope, macro.unset);
    bind(macro, arguments, caller, frame.scope());
    const int loops_before = std::exchange(loops_, 0);
    std::string text = captured([&] { run(macro.body, frame.scope()); });
    loops_ = loops_before;
    return memory_.text(std::move(text));
  }

  /// Gives a macro's parameters, and what it reads besides, their values.
  void bind(const Macro& macro, const CallArguments& arguments, const Value* caller, Scope* scope) {
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
      fail("macro '", macro.name, "' takes no more than ", count, " arguments, each once");
    }
    if (caller != nullptr && !macro.takes_caller) {
      fail("macro '", macro.name, "' was invoked with a caller, and takes none");
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
    // A default may read parameters before it, and those behind it that are given.
    for (size_t i = 0; i < count; ++i) {
      define(scope, macro.parameters[i],
             given[i] != nullptr ? *given[i] : memory_.undefined("parameter '" + macro.parameter_names[i] + "'"));
    }
    for (size_t i = first_default; i < count; ++i) {
      if (given[i] == nullptr) define(scope, macro.parameters[i], evaluate(*macro.defaults[i - first_default], scope));
    }
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
    if (name != "dict" && name != "namespace") fail(name, "() is not supported");
    Dict made;
    if (!arguments.positional().empty()) {
      const Value& from = arguments.positional()[0];
      if (arguments.positional().size() > 1) fail(name, "() takes one argument without name");
      fill(made, from);
    }
    for (const auto& [key, value] : arguments.named()) made.set(memory_.text(key), value, memory_);
    if (name == "namespace") {
      for (const auto& [key, value] : made.items()) {
        if (!key.is(Type::kText)) fail("a namespace with a name that is a ", type_name(key));
        check_name(key.text());
      }
      return memory_.name_space(std::move(made));
    }
    Dict* dict = memory_.dict();
    *dict = std::move(made);
    return Value::of(dict);
  }

  void fill(Dict& made, const Value& from) {
    if (from.is(Type::kUndefined)) fail(from.undefined_name(), " is undefined");
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
    arguments.match_positional(3, 1);
    const bool has_start = arguments.has(1);
    const int64_t start = has_start ? arguments.integer(0, 0) : 0;
    const int64_t stop = arguments.integer(has_start ? 1 : 0, 0), step = arguments.integer(2, 1);
    if (step == 0) fail("range() arg 3 must not be zero");
    std::vector<Value> items;
    int64_t value = start;
    while (step > 0 ? value < stop : value > stop) {
      if (items.size() == static_cast<size_t>(kMostRange)) fail("range() of more than ", kMostRange, " numbers");
      memory_.spend(kItemPrice);
      items.push_back(Value::of(value));
      if (__builtin_add_overflow(value, step, &value)) break;
    }
    return memory_.sequence(Type::kRange, std::move(items));
  }

  /// Python's strftime, of a date in no time zone.
  std::string date(const std::string& style) const {
    constexpr std::string_view kFields = "aAbBcdDeFhHIjmMnpSTtuUVwWxXyY%";
    if (style.size() > kMostStyle) fail("a date in more than ", kMostStyle, " characters");
    std::string known;
    for (size_t i = 0; i < style.size(); ++i) {
      if (style[i] == '\0') fail("a date in characters of which one is 0");
      if (style[i] != '%') {
        known += style[i];
        continue;
      }
      const bool short_form = i + 1 < style.size() && style[i + 1] == '-';
      i += short_form ? 2 : 1;
      const char field = i < style.size() ? style[i] : '\0';
      if (field == 'z' || field == 'Z') continue;  // there is none
      if (field == '\0' || kFields.find(field) == kFields.npos) fail("the date ", style, " is not supported");
      known += short_form ? "%-" : "%";
      known += field;
    }
    char text[1 << 13];
    return std::string(text, std::strftime(text, sizeof text, known.c_str(), &now_));
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
