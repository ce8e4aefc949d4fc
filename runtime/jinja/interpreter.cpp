#include "runtime/jinja/interpreter.h"

#include <algorithm>
#include <functional>

#include "runtime/base/error.h"
#include "runtime/jinja/evaluator.h"
#include "runtime/jinja/functions.h"
#include "runtime/jinja/parser.h"

namespace mft::jinja {
namespace {

enum class Flow { kNext, kBreak, kContinue };

/// Runs statements.
class Interpreter final : Evaluator {
 public:
  using Evaluator::Evaluator;

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
  // Variables.

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

  /// Returns the output of `write`.
  template <typename Write>
  std::string captured(Write write) {
    std::string text;
    std::string* const before = std::exchange(out_, &text);
    write();
    out_ = before;
    return text;
  }

  std::string text_of(const Macro& macro, Scope* scope) override {
    const int loops_before = std::exchange(loops_, 0);
    std::string text = captured([&] { run(macro.body, scope); });
    loops_ = loops_before;
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

  /// Returns a message's number, or -1 for any other value.
  int message_of(const Value& value) const {
    if (!value.is(Type::kDict)) return -1;
    const auto found = numbers_.find(&value.dict());
    return found == numbers_.end() ? -1 : found->second;
  }

  void run_set(const Statement& statement, Scope* scope) {
    const Value value = evaluate(*statement.value, scope);
    assign(*statement.target, value, scope);
    // A loop over the messages' numbers gets each message by such an assignment.
    if (loops_ > 0 && message_ < 0) message_ = message_of(value);
  }

  /// Runs statements whose body has its own scope.
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
    if (flow != Flow::kNext) return flow;  // leaves a loop, and discards the text
    Value value = memory_.text(std::move(text));
    if (statement.value != nullptr) value = filtered(*statement.value, value, inner);
    if (statement.kind == StatementKind::kSetBlock) {
      assign(*statement.target, value, scope);
    } else {
      if (!value.is_text()) fail("the filters of a filter block must return text, not a ", type_name(value));
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

  /// The items of a loop with a condition are found one by one, because the body may change the condition.
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

  [[noreturn]] static bool fail_over() { fail("the items of a loop with a condition are read after its end"); }

  /// Converts an item as a loop with a condition does: items that are assigned to tuples become tuples.
  Value rebuilt(const Expression& target, const Value& value) {
    if (target.kind != ExpressionKind::kTuple) return value;
    std::vector<Value> items = items_of(value, memory_);
    for (size_t i = 0; i < items.size(); ++i) items[i] = rebuilt(*target.parts[i], items[i]);
    return memory_.list(std::move(items), true);
  }

  struct LoopEnd {
    bool ran = false;     // whether an iteration reached the end of the body; if not, `else` runs
    bool broken = false;  // whether a break ended the loop
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
    if (!end.broken && state.index > 0) --state.index;  // stays at the last item
    --loops_;
    message_ = message_before;
    return end;
  }

  std::unordered_map<const Dict*, int> numbers_;  // message -> number
  Rendering rendering_;
  std::string* out_ = nullptr;
  int message_ = -1, loops_ = 0;
};

}  // namespace

Rendering run(const Syntax& syntax, const std::vector<std::pair<std::string, Value>>& variables, const List* messages,
              const std::tm& now, Memory& memory) {
  return Interpreter(syntax, now, memory).render(variables, messages);
}

}  // namespace mft::jinja
