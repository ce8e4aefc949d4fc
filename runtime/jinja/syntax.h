#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mft::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<std::unique_ptr<Statement>>;

enum class ExpressionKind {
  kConstant,   // `constant`
  kName,       // `name`
  kList,       // `parts`
  kTuple,      // `parts`
  kDict,       // `parts`: a key, its value, the next key ...
  kAttribute,  // `word` of parts[0]
  kItem,       // parts[1] of parts[0]
  kSlice,      // parts[0][parts[1]:parts[2]:parts[3]]; nullptr if left out
  kCall,       // parts[0] with `arguments`
  kFilter,     // `word` of parts[0], nullptr in a filter block, with `arguments`
  kTest,       // parts[0] is `word`, with `arguments`
  kUnary,      // `word`: not, - or +
  kBinary,     // parts[0] `word` parts[1]; and, or, ~ and arithmetic
  kCompare,    // parts[0] words[0] parts[1] words[1] parts[2] ...
  kCondition,  // parts[0] if parts[1] else parts[2], which may be nullptr
  kNamespace,  // attribute `word` of the namespace `name`, as the target of an assignment
};

enum class ConstantType { kNone, kBool, kInt, kFloat, kText };

struct Constant {
  ConstantType type = ConstantType::kNone;
  int64_t integer = 0;
  double real = 0;
  std::string text;
};

struct Arguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

struct Expression {
  ExpressionKind kind;
  int line = 0;
  int depth = 1;  // levels of nested expressions
  int name = -1;  // number of a variable's name
  std::string word;
  std::vector<std::string> words;
  std::vector<ExpressionPtr> parts;
  Arguments arguments;
  Constant constant;
};

/// A macro's parameters and body.
struct Macro {
  std::string name;
  std::vector<int> parameters;  // numbers of their names
  std::vector<std::string> parameter_names;
  std::vector<ExpressionPtr> defaults;  // defaults of the last parameters
  Body body;
  std::vector<int> unset;                                                  // as in Statement
  bool takes_caller = false, takes_varargs = false, takes_kwargs = false;  // whether its body reads these variables
};

enum class StatementKind {
  kData,        // `data`
  kPrint,       // `value`
  kFor,         // `target` in `value`, if `test`: `body`, `otherwise`
  kIf,          // `branches`: the first one whose test holds or is nullptr
  kSet,         // `target` = `value`
  kSetBlock,    // `target` = the text of `body`, through the filters of `value` if there are any
  kMacro,       // `macro`
  kCall,        // `value`, a call, with `macro` as caller
  kFilter,      // the text of `body` through the filters of `value`
  kWith,        // `targets` = `values`: `body`
  kGeneration,  // the body of `macro`, which is text of the assistant
  kBreak,
  kContinue,
};

struct Branch {
  ExpressionPtr test;
  Body body;
};

struct Statement {
  StatementKind kind;
  int line = 0;
  std::string data;
  ExpressionPtr target, value, test;
  std::vector<ExpressionPtr> targets, values;
  std::vector<Branch> branches;
  Body body, otherwise;
  // Variables that are undefined when the body begins, even if the template was given them, because the body assigns
  // them before it reads them.
  std::vector<int> unset, otherwise_unset;
  std::unique_ptr<Macro> macro;
};

/// A parsed template.
struct Syntax {
  Body body;
  std::vector<int> unset;          // as in Statement
  std::vector<std::string> names;  // names of variables, by number
};

}  // namespace mft::jinja
