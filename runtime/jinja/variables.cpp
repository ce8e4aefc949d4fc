#include "runtime/jinja/variables.h"

#include <string_view>
#include <unordered_set>

#include "runtime/base/error.h"
#include "runtime/jinja/parser.h"

namespace mft::jinja {
namespace {

const std::unordered_set<std::string_view>& filters() {
  static const std::unordered_set<std::string_view> names = {
      "abs",    "attr",       "batch",       "capitalize", "center",   "count",
      "d",      "default",    "dictsort",    "e",          "escape",   "filesizeformat",
      "first",  "float",      "forceescape", "format",     "groupby",  "indent",
      "int",    "items",      "join",        "last",       "length",   "list",
      "lower",  "map",        "max",         "min",        "pprint",   "random",
      "reject", "rejectattr", "replace",     "reverse",    "round",    "safe",
      "select", "selectattr", "slice",       "sort",       "string",   "striptags",
      "sum",    "title",      "tojson",      "trim",       "truncate", "unique",
      "upper",  "urlencode",  "urlize",      "wordcount",  "wordwrap", "xmlattr"};
  return names;
}

const std::unordered_set<std::string_view>& tests() {
  static const std::unordered_set<std::string_view> names = {
      "boolean",  "callable", "defined", "divisibleby", "eq",        "equalto", "escaped", "even",     "false",
      "filter",   "float",    "ge",      "greaterthan", "gt",        "in",      "integer", "iterable", "le",
      "lessthan", "lower",    "lt",      "mapping",     "ne",        "none",    "number",  "odd",      "sameas",
      "sequence", "string",   "test",    "true",        "undefined", "upper"};
  return names;
}

/// A body with its own variables, as in Jinja's compiler.
class Frame {
 public:
  explicit Frame(const Frame* parent) : parent_(parent) {}

  void declare(int name) { names_.insert(name); }
  void load(int name) {
    if (!knows(name)) names_.insert(name);
  }
  /// Records an assignment. `always`: it is not under an if, which may leave the variable unchanged.
  void store(int name, bool always) {
    if (!names_.insert(name).second || !always) return;
    if (parent_ == nullptr || !parent_->knows(name)) unset_.push_back(name);
  }
  bool knows(int name) const { return names_.count(name) > 0 || (parent_ != nullptr && parent_->knows(name)); }
  const std::vector<int>& unset() const { return unset_; }

 private:
  const Frame* parent_;
  std::unordered_set<int> names_;
  std::vector<int> unset_;
};

class Finder {
 public:
  void find(Syntax& syntax) {
    Frame frame(nullptr);
    syntax.unset = enter(frame, syntax.body);
  }

 private:
  /// Finds the variables that a frame's body reads and assigns, and then those of nested bodies.
  std::vector<int> enter(Frame& frame, Body& body, const Expression* filters = nullptr) {
    collect(frame, body, true);
    if (filters != nullptr) loads(frame, filters, false);
    descend(frame, body);
    return frame.unset();
  }

  void collect(Frame& frame, const Body& body, bool always) {
    for (const auto& statement : body) collect(frame, *statement, always);
  }

  void collect(Frame& frame, const Statement& statement, bool always) {
    const bool soft = !always;
    switch (statement.kind) {
      case StatementKind::kIf:
        for (const Branch& branch : statement.branches) {
          loads(frame, branch.test.get(), true);
          collect(frame, branch.body, false);
        }
        break;
      case StatementKind::kSet:
        loads(frame, statement.value.get(), soft);
        stores(frame, *statement.target, always);
        break;
      case StatementKind::kSetBlock:
        stores(frame, *statement.target, always);
        break;
      case StatementKind::kMacro:
        frame.store(statement.target->name, always);
        break;
      case StatementKind::kFilter:
        loads(frame, statement.value.get(), soft);
        break;
      case StatementKind::kWith:
        for (const auto& value : statement.values) loads(frame, value.get(), soft);
        break;
      default:  // kPrint, kFor, kCall
        loads(frame, statement.value.get(), soft);
    }
  }

  void stores(Frame& frame, const Expression& target, bool always) {
    if (target.kind == ExpressionKind::kName) frame.store(target.name, always);
    if (target.kind == ExpressionKind::kNamespace) frame.load(target.name);
    for (const auto& part : target.parts) stores(frame, *part, always);
  }

  static void declare(Frame& frame, const Expression& target) {
    if (target.kind == ExpressionKind::kName) frame.declare(target.name);
    for (const auto& part : target.parts) declare(frame, *part);
  }

  /// Finds the variables that an expression reads. `soft`: it is under a condition, so unknown filters are errors only
  /// when they run.
  void loads(Frame& frame, const Expression* expression, bool soft) {
    if (expression == nullptr) return;
    if (expression->kind == ExpressionKind::kName) frame.load(expression->name);
    if (!soft) check_name(*expression);
    soft |= expression->kind == ExpressionKind::kCondition;
    for (const auto& part : expression->parts) loads(frame, part.get(), soft);
    for (const auto& one : expression->arguments.positional) loads(frame, one.get(), soft);
    for (const auto& [_, one] : expression->arguments.named) loads(frame, one.get(), soft);
  }

  static void check_name(const Expression& expression) {
    if (expression.kind == ExpressionKind::kFilter && filters().count(expression.word) == 0) {
      fail("line ", expression.line, ": no filter named '", expression.word, "' is supported");
    }
    if (expression.kind == ExpressionKind::kTest && tests().count(expression.word) == 0) {
      fail("line ", expression.line, ": no test named '", expression.word, "' is supported");
    }
  }

  void descend(const Frame& frame, Body& body) {
    for (const auto& statement : body) descend(frame, *statement);
  }

  void descend(const Frame& outer, Statement& statement) {
    Frame frame(&outer);
    switch (statement.kind) {
      case StatementKind::kIf:
        for (Branch& branch : statement.branches) descend(outer, branch.body);
        break;
      case StatementKind::kFor:
        descend_for(outer, statement);
        break;
      case StatementKind::kSetBlock:
        statement.unset = enter(frame, statement.body);
        check_filters(frame, statement.value.get());
        break;
      case StatementKind::kFilter:
        statement.unset = enter(frame, statement.body, statement.value.get());
        break;
      case StatementKind::kWith:
        for (const auto& target : statement.targets) declare(frame, *target);
        statement.unset = enter(frame, statement.body);
        break;
      case StatementKind::kMacro:
      case StatementKind::kCall:
      case StatementKind::kGeneration:
        descend_macro(frame, *statement.macro);
        break;
      default:
        break;
    }
  }

  void descend_for(const Frame& outer, Statement& statement) {
    Frame test(&outer), body(&outer), otherwise(&outer);
    declare(test, *statement.target);
    loads(test, statement.test.get(), false);
    declare(body, *statement.target);
    body.declare(kLoopName);
    statement.unset = enter(body, statement.body);
    statement.otherwise_unset = enter(otherwise, statement.otherwise);
  }

  void descend_macro(Frame& frame, Macro& macro) {
    for (const int parameter : macro.parameters) frame.declare(parameter);
    for (const auto& value : macro.defaults) loads(frame, value.get(), false);
    if (macro.takes_caller) frame.declare(kCallerName);
    if (macro.takes_varargs) frame.declare(kVarargsName);
    if (macro.takes_kwargs) frame.declare(kKwargsName);
    macro.unset = enter(frame, macro.body);
  }

  /// The filters of a set block may only read variables that are known outside of it. Jinja fails to find others.
  void check_filters(const Frame& frame, const Expression* expression) {
    if (expression == nullptr) return;
    if (expression->kind == ExpressionKind::kName && !frame.knows(expression->name)) {
      fail("line ", expression->line, ": the variable ", expression->word,
           " cannot be used in the filter of a set block");
    }
    check_name(*expression);
    for (const auto& part : expression->parts) check_filters(frame, part.get());
    for (const auto& one : expression->arguments.positional) check_filters(frame, one.get());
    for (const auto& [_, one] : expression->arguments.named) check_filters(frame, one.get());
  }
};

}  // namespace

void find_unset(Syntax& syntax) { Finder().find(syntax); }

}  // namespace mft::jinja
