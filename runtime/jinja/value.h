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
  kMarkup,    // text that the filter `safe` gave, beside which + escapes other text
  kList,      // or a tuple
  kRange,     // what range() gives
  kView,      // keys(), values() or items() of a dict
  kIterator,  // what map, select, reverse and so on give: it can be walked over once
  kDict,
  kNamespace,
  kFunction,
  kLoop,
};

/// A value of Jinja, which are Python's: 16 bytes, copied freely. What it points to belongs to a Memory. Texts are
/// UTF-8; integers have 64 bits.
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
  /// What is not there, and what it was to be, for errors.
  static Value undefined(const std::string* what) {
    Value made;
    made.text_ = what;
    return made;
  }

  Type type() const { return type_; }
  bool is(Type type) const { return type_ == type; }
  /// An int or a bool, which Python counts as one.
  bool is_integer() const { return type_ == Type::kInt || type_ == Type::kBool; }
  bool is_number() const { return is_integer() || type_ == Type::kFloat; }
  bool is_text() const { return type_ == Type::kText || type_ == Type::kMarkup; }

  int64_t integer() const { return integer_; }
  double number() const { return type_ == Type::kFloat ? real_ : static_cast<double>(integer_); }
  const std::string& text() const { return *text_; }
  const List& list() const { return *list_; }  // of a range and a view too
  Iterator& iterator() const { return *iterator_; }
  const Dict& dict() const { return *dict_; }
  Dict& names() const { return *dict_; }  // of a namespace
  const Function& function() const { return *function_; }
  LoopState& loop() const { return *loop_; }
  /// What an undefined value was to be.
  std::string undefined_name() const { return text_ == nullptr ? "a value" : *text_; }
  /// Whether two values are one object, as Python's `is`.
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
  const char* view = nullptr;  // of a view: "dict_keys" and so on
};

struct Iterator {
  std::vector<Value> items;
  size_t next = 0;    // the first item that nothing took yet
  bool busy = false;  // whether a loop walks over it, or did and left it before its end
};

/// Keys in the order in which they came.
class Dict {
 public:
  /// The value of a key; nullptr where there is none.
  const Value* find(std::string_view key) const;
  const Value* find(const Value& key, Memory& memory) const;
  void set(const Value& key, const Value& value, Memory& memory);
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  size_t size() const { return items_.size(); }

 private:
  std::vector<std::pair<Value, Value>> items_;
  std::unordered_map<std::string_view, size_t> by_text_;  // of keys that are texts
};

/// Variables: (number of the name, value), looked for from the inside out.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<int, Value>> values;
  bool over = false;  // whether what it belongs to has run
};

/// A macro with the scope that it was defined in, or a built-in one by name, which may be a method of `self`.
struct Function {
  std::string name;
  Value self;  // of methods
  const Macro* macro = nullptr;
  Scope* scope = nullptr;
};

/// The variable `loop` of a for.
struct LoopState {
  std::vector<Value> items;     // as far as they are known
  std::function<bool()> fetch;  // adds the next item, if there is one; of loops with a condition
  size_t index = 0;
  Value changed;  // the arguments of the last call of loop.changed

  bool has_next() { return index + 1 < items.size() || (fetch && fetch()); }
};

/// The name of the type in Python, for errors.
const char* type_name(const Value& value);
bool is_true(const Value& value);
/// Python's ==. Pays for each item that it compares.
bool equal(const Value& one, const Value& other, Memory& memory);
/// Python's <. Throws Error where the types have no order.
bool less(const Value& one, const Value& other, Memory& memory);
/// How many items or characters. Throws Error where the value has no length.
int64_t length(const Value& value);
/// Python's str(): what {{ }} prints.
std::string to_text(const Value& value, Memory& memory);
/// The number that a decimal text is, all of it; false where it is none. Throws Error where it is too large. Whatever
/// the process's locale is, and without std::from_chars, which Android's C++ library has for integers alone.
bool read_real(const std::string& text, double& number);
/// Python's repr of a float: the shortest text that reads as the same number.
std::string float_text(double value);
/// Characters of UTF-8 text.
int64_t count_characters(std::string_view text);
/// What a for walks over: items, keys or characters. Throws Error where nothing can be walked over.
std::vector<Value> items_of(const Value& value, Memory& memory);

/// Lists within lists: the most levels that are looked at.
constexpr int kMostDepth = 64;

}  // namespace mft::jinja
