#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace mft::jinja {

class Memory;
struct List;
struct Iterator;
class Dict;
struct Function;
struct LoopState;
struct Macro;

enum class Type : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kMarkup,    // text from the filter `safe`; + escapes other text that is added to it
  kList,      // a list or a tuple
  kRange,     // the result of range()
  kView,      // keys(), values() or items() of a dict
  kIterator,  // the result of map, select, reverse and so on, which can be iterated once
  kDict,
  kNamespace,
  kFunction,
  kLoop,
};

/// A value of Jinja, with the types of Python: 16 bytes, cheap to copy. A Memory owns the data that it points to. Texts
/// are UTF-8; integers have 64 bits.
class Value {
 public:
  Value() : type_(Type::kUndefined), text_(nullptr) {}
  static Value none() { return Value(Type::kNone); }
  static Value of(bool value) {
    Value made(Type::kBool);
    made.integer_ = value ? 1 : 0;
    return made;
  }
  static Value of(int64_t value) {
    Value made(Type::kInt);
    made.integer_ = value;
    return made;
  }
  static Value of(double value) {
    Value made(Type::kFloat);
    made.real_ = value;
    return made;
  }
  static Value of(const std::string* text) {
    Value made(Type::kText);
    made.text_ = text;
    return made;
  }
  static Value of(const List* list) {
    Value made(Type::kList);
    made.list_ = list;
    return made;
  }
  static Value markup(const std::string* text) {
    Value made(Type::kMarkup);
    made.text_ = text;
    return made;
  }
  /// A kRange or a kView.
  static Value of(Type type, const List* items) {
    Value made(type);
    made.list_ = items;
    return made;
  }
  static Value of(Iterator* iterator) {
    Value made(Type::kIterator);
    made.iterator_ = iterator;
    return made;
  }
  static Value of(Dict* dict) {
    Value made(Type::kDict);
    made.dict_ = dict;
    return made;
  }
  static Value name_space(Dict* dict) {
    Value made(Type::kNamespace);
    made.dict_ = dict;
    return made;
  }
  static Value of(const Function* function) {
    Value made(Type::kFunction);
    made.function_ = function;
    return made;
  }
  static Value of(LoopState* loop) {
    Value made(Type::kLoop);
    made.loop_ = loop;
    return made;
  }
  /// An undefined value, with a description for errors.
  static Value undefined(const std::string* what) {
    Value made;
    made.text_ = what;
    return made;
  }

  Type type() const { return type_; }
  bool is(Type type) const { return type_ == type; }
  /// An int or a bool, which is an int in Python.
  bool is_integer() const { return type_ == Type::kInt || type_ == Type::kBool; }
  bool is_number() const { return is_integer() || type_ == Type::kFloat; }
  bool is_text() const { return type_ == Type::kText || type_ == Type::kMarkup; }

  int64_t integer() const { return integer_; }
  double number() const { return type_ == Type::kFloat ? real_ : static_cast<double>(integer_); }
  const std::string& text() const { return *text_; }
  const List& list() const { return *list_; }  // also for ranges and views
  Iterator& iterator() const { return *iterator_; }
  const Dict& dict() const { return *dict_; }
  Dict& names() const { return *dict_; }  // for namespaces
  const Function& function() const { return *function_; }
  LoopState& loop() const { return *loop_; }
  /// The description of an undefined value.
  std::string undefined_name() const { return text_ == nullptr ? "a value" : *text_; }
  /// Whether two values are the same object, like Python's `is`.
  bool same(const Value& other) const;

 private:
  explicit Value(Type type) : type_(type), text_(nullptr) {}

  Type type_;
  union {
    int64_t integer_;
    double real_;
    const std::string* text_;
    const List* list_;
    Iterator* iterator_;
    Dict* dict_;
    const Function* function_;
    LoopState* loop_;
  };
};

struct List {
  std::vector<Value> items;
  bool tuple = false;
  const char* view = nullptr;  // name of a view, such as "dict_keys"
};

struct Iterator {
  std::vector<Value> items;
  size_t next = 0;    // the next item
  bool busy = false;  // whether a loop iterates over it, or left it before its end
};

/// A dict with keys in the order of insertion.
class Dict {
 public:
  /// Returns the value of a key, or nullptr.
  const Value* find(std::string_view key) const;
  const Value* find(const Value& key, Memory& memory) const;
  void set(const Value& key, const Value& value, Memory& memory);
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  size_t size() const { return items_.size(); }

 private:
  std::vector<std::pair<Value, Value>> items_;
  std::unordered_map<std::string_view, size_t> by_text_;  // keys that are texts
};

/// Variables as (number of the name, value). Lookups search from the innermost scope.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<int, Value>> values;
  bool over = false;  // whether its block has ended
};

/// A macro with its defining scope, or a built-in function by name, which may be a method of `self`.
struct Function {
  std::string name;
  Value self;  // for methods
  const Macro* macro = nullptr;
  Scope* scope = nullptr;
};

/// The variable `loop` of a for loop.
struct LoopState {
  std::vector<Value> items;     // the known items
  std::function<bool()> fetch;  // for loops with a condition: adds the next item, if there is one
  size_t index = 0;
  Value changed;  // arguments of the last call of loop.changed

  bool has_next() { return index + 1 < items.size() || (fetch && fetch()); }
};

/// The name of the type in Python, for error messages.
const char* type_name(const Value& value);
bool is_true(const Value& value);
/// Python's ==. Charges the cost of each compared item.
bool equal(const Value& one, const Value& other, Memory& memory);
/// Python's <. Throws Error if the types have no order.
bool less(const Value& one, const Value& other, Memory& memory);
/// The number of items or characters. Throws Error if the value has no length.
int64_t length(const Value& value);
/// Python's str(), the output of {{ }}.
std::string to_text(const Value& value, Memory& memory);
/// Parses a whole text as a decimal number, in any locale. Returns false if it is not a number. Throws Error if it is
/// too large. std::from_chars is not used, because Android's C++ library supports it only for integers.
bool read_real(const std::string& text, double& number);
/// Python's repr of a float: the shortest text that parses as the same number.
std::string float_text(double value);
/// The number of characters of UTF-8 text.
int64_t count_characters(std::string_view text);
/// Returns the items of an iteration: items, keys or characters. Throws Error if the value is not iterable.
std::vector<Value> items_of(const Value& value, Memory& memory);

/// Maximum nesting of lists.
constexpr int kMostDepth = 64;

}  // namespace mft::jinja
