#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/jinja/value.h"

namespace mft::jinja {

/// The cost of a rendering. A unit is about ten nanoseconds, or a byte of memory.
constexpr int64_t kBudget = 50'000'000;
constexpr int64_t kStepPrice = 4;   // per run of an expression or a statement
constexpr int64_t kCallPrice = 50;  // per call of a function, a filter, a test or an operator
constexpr size_t kTextPrice = 32;   // per text, in addition to its bytes
constexpr int64_t kItemPrice = 64;  // per item of a list or a dict that is created or read

/// A rendering costs too much. This must not be mistaken for a template's rejection of a chat.
struct OverBudget : Error {
  using Error::Error;
};

/// Owns the values of a rendering, or of a JSON text. All time and memory is charged to its budget, so that an
/// untrusted template cannot use an unlimited amount.
class Memory {
 public:
  explicit Memory(int64_t budget = kBudget) : left_(budget) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Throws OverBudget if the budget is exhausted.
  void spend(int64_t price) {
    left_ -= price;
    if (left_ < 0) throw OverBudget("it takes too much time or memory");
  }
  /// The same, for a price of type size_t.
  void spend(size_t price) { spend(static_cast<int64_t>(price)); }

  Value text(std::string bytes) {
    spend(kTextPrice + bytes.size());
    return Value::of(&texts_.emplace_back(std::move(bytes)));
  }
  Value undefined(std::string what) {
    spend(kTextPrice + what.size());
    return Value::undefined(&texts_.emplace_back(std::move(what)));
  }
  Value list(std::vector<Value> items, bool tuple = false) {
    spend(kItemPrice * static_cast<int64_t>(1 + items.size()));
    return Value::of(&lists_.emplace_back(List{std::move(items), tuple, nullptr}));
  }
  /// Creates a kRange, or with a name a kView.
  Value sequence(Type type, std::vector<Value> items, const char* view = nullptr) {
    spend(kItemPrice * static_cast<int64_t>(1 + items.size()));
    return Value::of(type, &lists_.emplace_back(List{std::move(items), false, view}));
  }
  Value iterator(std::vector<Value> items) {
    spend(kItemPrice * static_cast<int64_t>(1 + items.size()));
    return Value::of(&iterators_.emplace_back(Iterator{std::move(items)}));
  }
  Value markup(std::string bytes) {
    spend(kTextPrice + bytes.size());
    return Value::markup(&texts_.emplace_back(std::move(bytes)));
  }
  Dict* dict() {
    spend(kItemPrice);
    return &dicts_.emplace_back();
  }
  /// Creates a namespace: a dict that templates read by attributes, the only one that they can change.
  Value name_space(Dict values) {
    spend(kItemPrice);
    return Value::name_space(&dicts_.emplace_back(std::move(values)));
  }
  Value function(Function function) {
    spend(kItemPrice);
    return Value::of(&functions_.emplace_back(std::move(function)));
  }
  Value loop(LoopState** made) {
    spend(kItemPrice);
    *made = &loops_.emplace_back();
    return Value::of(*made);
  }
  Scope* scope(Scope* parent) {
    spend(kItemPrice);
    return &scopes_.emplace_back(Scope{parent, {}, false});
  }

 private:
  int64_t left_;
  std::deque<std::string> texts_;
  std::deque<List> lists_;
  std::deque<Iterator> iterators_;
  std::deque<Dict> dicts_;
  std::deque<Function> functions_;
  std::deque<LoopState> loops_;
  std::deque<Scope> scopes_;
};

}  // namespace mft::jinja
