#pragma once

#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/jinja/arguments.h"
#include "runtime/jinja/memory.h"
#include "runtime/jinja/syntax.h"
#include "runtime/jinja/value.h"

namespace mft::jinja {

/// Evaluates expressions and stores their variables. It is the base of the interpreter of statements.
class Evaluator {
 public:
  Evaluator(const Syntax& syntax, const std::tm& now, Memory& memory) : syntax_(syntax), now_(now), memory_(memory) {}
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

 protected:
  ~Evaluator() = default;

  // Maximum nesting of running statements and expressions. Android's threads have 512 KB of stack. Macros that call
  // themselves in the default of a parameter use the most, 330 KB without optimization.
  static constexpr int kMostLevels = 200;

  /// Counts the nesting of running code during its lifetime.
  class Level {
   public:
    explicit Level(Evaluator& evaluator) : evaluator_(evaluator) {
      if (++evaluator_.level_ > kMostLevels) fail("the nesting exceeds ", kMostLevels, " levels");
      evaluator_.memory_.spend(kStepPrice);
    }
    ~Level() { --evaluator_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Evaluator& evaluator_;
  };

  /// The variables of a body while it runs.
  class Frame {
   public:
    Frame(Evaluator& evaluator, Scope* parent, const std::vector<int>& unset)
        : scope_(evaluator.memory_.scope(parent)) {
      for (const int name : unset) evaluator.define(scope_, name, evaluator.undefined(name));
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
  static void set(Scope* scope, int name, const Value& value);
  void define(Scope* scope, int name, const Value& value);
  const Value* find(const Scope* scope, int name);

  // Expressions.

  Value evaluate(const Expression& expression, Scope* scope);
  /// Applies the filters of an expression to a value. Those of a filter block have no innermost operand.
  Value filtered(const Expression& expression, Value value, Scope* scope);
  Value call(const Expression& expression, Scope* scope, const Value* caller);
  /// Returns the output of a macro's body.
  virtual std::string text_of(const Macro& macro, Scope* scope) = 0;

  const Syntax& syntax_;
  const std::tm& now_;
  Memory& memory_;
  int level_ = 0;

 private:
  static Value constant(const Constant& value);
  std::vector<Value> all(const std::vector<ExpressionPtr>& expressions, Scope* scope);
  Value dict(const Expression& expression, Scope* scope);
  Value of_two(const Expression& expression, Scope* scope);
  Value comparison(const Expression& expression, Scope* scope);
  CallArguments arguments_of(const Expression& expression, const std::string& function, Scope* scope);
  static bool is_of_block(const Expression& filter);
  Value call_macro(const Function& function, const CallArguments& arguments, const Value* caller);
  /// Sets a macro's parameters and its special variables.
  void bind(const Macro& macro, const CallArguments& arguments, const Value* caller, Scope* scope);
};

}  // namespace mft::jinja
