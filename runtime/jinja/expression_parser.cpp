#include "runtime/jinja/expression_parser.h"

#include <charconv>

#include "runtime/jinja/value.h"

namespace mft::jinja {

ExpressionParser::ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  for (const char* name : {"loop", "caller", "varargs", "kwargs"}) number_of(name);  // in the order of KnownName
}

int ExpressionParser::number_of(const std::string& name) {
  const auto [found, is_new] = numbers_.emplace(name, static_cast<int>(syntax_.names.size()));
  if (is_new) syntax_.names.push_back(name);
  return found->second;
}

// Nodes.

ExpressionPtr ExpressionParser::make(ExpressionKind kind, std::vector<ExpressionPtr> parts, std::string word) {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = current().line;
  made->word = std::move(word);
  made->parts = std::move(parts);
  for (const auto& part : made->parts) deepen(*made, part);
  return made;
}

void ExpressionParser::deepen(Expression& expression, const ExpressionPtr& part) const {
  if (part != nullptr) expression.depth = std::max(expression.depth, part->depth + 1);
  if (expression.depth > kMostDepth) fail_here("expressions nested deeper than ", kMostDepth);
}

ExpressionPtr ExpressionParser::pair(ExpressionKind kind, ExpressionPtr one, ExpressionPtr other, std::string word) {
  std::vector<ExpressionPtr> parts;
  parts.push_back(std::move(one));
  parts.push_back(std::move(other));
  return make(kind, std::move(parts), std::move(word));
}

ExpressionPtr ExpressionParser::single(ExpressionKind kind, ExpressionPtr one, std::string word) {
  std::vector<ExpressionPtr> parts;
  parts.push_back(std::move(one));
  return make(kind, std::move(parts), std::move(word));
}

ExpressionPtr ExpressionParser::constant(Constant value) {
  auto made = make(ExpressionKind::kConstant);
  made->constant = std::move(value);
  return made;
}

ExpressionPtr ExpressionParser::name(const std::string& word) {
  if (word == "self") fail_here("self is not supported");
  auto made = make(ExpressionKind::kName, {}, word);
  made->name = number_of(word);
  for (Macro* macro : macros_) {  // a nested macro counts for the outer macro too
    macro->takes_caller |= word == "caller";
    macro->takes_varargs |= word == "varargs";
    macro->takes_kwargs |= word == "kwargs";
  }
  return made;
}

// Expressions, in ascending order of precedence.

ExpressionPtr ExpressionParser::expression(bool with_condition) {
  const Level level(*this);
  return with_condition ? condition() : disjunction();
}

ExpressionPtr ExpressionParser::condition() {
  ExpressionPtr value = disjunction();
  while (skip_name("if")) {
    ExpressionPtr test = disjunction();
    ExpressionPtr otherwise;
    if (skip_name("else")) {
      const Level level(*this);
      otherwise = condition();
    }
    std::vector<ExpressionPtr> parts;
    parts.push_back(std::move(value));
    parts.push_back(std::move(test));
    parts.push_back(std::move(otherwise));
    value = make(ExpressionKind::kCondition, std::move(parts));
  }
  return value;
}

ExpressionPtr ExpressionParser::disjunction() {
  ExpressionPtr value = conjunction();
  while (skip_name("or")) value = pair(ExpressionKind::kBinary, std::move(value), conjunction(), "or");
  return value;
}

ExpressionPtr ExpressionParser::conjunction() {
  ExpressionPtr value = negation();
  while (skip_name("and")) value = pair(ExpressionKind::kBinary, std::move(value), negation(), "and");
  return value;
}

ExpressionPtr ExpressionParser::negation() {
  if (!skip_name("not")) return comparison();
  const Level level(*this);
  return single(ExpressionKind::kUnary, negation(), "not");
}

ExpressionPtr ExpressionParser::comparison() {
  ExpressionPtr first = sum();
  std::vector<ExpressionPtr> parts;
  std::vector<std::string> words;
  for (std::string word = comparison_word(); !word.empty(); word = comparison_word()) {
    if (parts.empty()) parts.push_back(std::move(first));
    words.push_back(word);
    parts.push_back(sum());
  }
  if (words.empty()) return first;
  ExpressionPtr made = make(ExpressionKind::kCompare, std::move(parts));
  made->words = std::move(words);
  return made;
}

std::string ExpressionParser::comparison_word() {
  for (const char* sign : {"==", "!=", "<", "<=", ">", ">="}) {
    if (skip_sign(sign)) return sign;
  }
  if (skip_name("in")) return "in";
  if (is_name("not") && ahead().type == TokenType::kName && ahead().text == "in") {
    at_ += 2;
    return "not in";
  }
  return "";
}

template <typename Next>
ExpressionPtr ExpressionParser::chain(std::initializer_list<std::string_view> signs, Next next) {
  ExpressionPtr value = next();
  for (;;) {
    const auto sign = std::find_if(signs.begin(), signs.end(), [&](std::string_view one) { return skip_sign(one); });
    if (sign == signs.end()) return value;
    value = pair(ExpressionKind::kBinary, std::move(value), next(), std::string(*sign));
  }
}

ExpressionPtr ExpressionParser::sum() {
  return chain({"+", "-"}, [&] { return concatenation(); });
}
ExpressionPtr ExpressionParser::concatenation() {
  return chain({"~"}, [&] { return product(); });
}
ExpressionPtr ExpressionParser::product() {
  return chain({"*", "/", "//", "%"}, [&] { return power(); });
}
ExpressionPtr ExpressionParser::power() {
  return chain({"**"}, [&] { return unary(true); });
}

ExpressionPtr ExpressionParser::unary(bool with_filter) {
  const Level level(*this);
  ExpressionPtr value;
  if (is_sign("-") || is_sign("+")) {
    const std::string sign = take().text;
    value = single(ExpressionKind::kUnary, unary(false), sign);
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filter ? filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::primary() {
  const Token token = current();
  switch (token.type) {
    case TokenType::kName:
      ++at_;
      if (token.text == "true" || token.text == "True") return constant({ConstantType::kBool, 1, 0, ""});
      if (token.text == "false" || token.text == "False") return constant({ConstantType::kBool, 0, 0, ""});
      if (token.text == "none" || token.text == "None") return constant({});
      return name(token.text);
    case TokenType::kText: {
      std::string text;
      while (current().type == TokenType::kText) text += take().text;
      return constant({ConstantType::kText, 0, 0, std::move(text)});
    }
    case TokenType::kInt:
      ++at_;
      return constant({ConstantType::kInt, integer(token.text), 0, ""});
    case TokenType::kFloat:
      ++at_;
      return constant({ConstantType::kFloat, 0, real(token.text), ""});
    default:
      break;
  }
  if (skip_sign("(")) {
    ExpressionPtr value = tuple(true);
    expect_sign(")");
    return value;
  }
  if (skip_sign("[")) return make(ExpressionKind::kList, sequence("]"));
  if (skip_sign("{")) return dict();
  fail_unexpected();
}

int64_t ExpressionParser::integer(const std::string& text) const {
  const char kind = text.size() > 1 ? static_cast<char>(text[1] | 0x20) : '\0';
  const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + (base == 10 ? 0 : 2), end, value, base);
  if (read.ec != std::errc() || read.ptr != end) fail_here("integers of more than 63 bits are not supported");
  return value;
}

double ExpressionParser::real(const std::string& text) const {
  double value = 0;
  if (!read_real(text, value)) fail_here("not a number: ", text);
  return value;
}

std::vector<ExpressionPtr> ExpressionParser::sequence(std::string_view end) {
  std::vector<ExpressionPtr> items;
  while (!is_sign(end)) {
    if (!items.empty()) expect_sign(",");
    if (is_sign(end)) break;
    items.push_back(expression());
  }
  expect_sign(end);
  return items;
}

ExpressionPtr ExpressionParser::dict() {
  std::vector<ExpressionPtr> parts;
  while (!is_sign("}")) {
    if (!parts.empty()) expect_sign(",");
    if (is_sign("}")) break;
    parts.push_back(expression());
    expect_sign(":");
    parts.push_back(expression());
  }
  expect_sign("}");
  return make(ExpressionKind::kDict, std::move(parts));
}

bool ExpressionParser::at_tuple_end(std::string_view end_name) const {
  return current().type == TokenType::kVariableEnd || current().type == TokenType::kBlockEnd || is_sign(")") ||
         (!end_name.empty() && is_name(end_name));
}

ExpressionPtr ExpressionParser::tuple(bool in_brackets, bool with_condition, std::string_view end_name) {
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) expect_sign(",");
    if (at_tuple_end(end_name)) break;
    items.push_back(expression(with_condition));
    if (!is_sign(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items[0]);
  if (!is_tuple && !in_brackets) fail_unexpected();
  return make(ExpressionKind::kTuple, std::move(items));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr value) {
  for (;;) {
    if (skip_sign(".")) {
      if (current().type == TokenType::kInt) {
        ExpressionPtr index = primary();
        value = pair(ExpressionKind::kItem, std::move(value), std::move(index));
      } else {
        value = single(ExpressionKind::kAttribute, std::move(value), expect_name());
      }
    } else if (skip_sign("[")) {
      value = subscript(std::move(value));
    } else if (is_sign("(")) {
      value = call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr value) {
  std::vector<ExpressionPtr> bounds;  // start, stop, step
  bounds.push_back(is_sign(":") ? nullptr : expression());
  if (skip_sign("]")) return pair(ExpressionKind::kItem, std::move(value), std::move(bounds[0]));
  expect_sign(":");
  bounds.push_back(is_sign("]") || is_sign(":") ? nullptr : expression());
  bounds.push_back(skip_sign(":") && !is_sign("]") ? expression() : nullptr);
  expect_sign("]");
  bounds.insert(bounds.begin(), std::move(value));
  return make(ExpressionKind::kSlice, std::move(bounds));
}

void ExpressionParser::read_arguments(Expression& made) {
  expect_sign("(");
  Arguments& arguments = made.arguments;
  bool first = true;
  while (!is_sign(")")) {
    if (!first) expect_sign(",");
    first = false;
    if (is_sign(")")) break;
    if (is_sign("*") || is_sign("**")) fail_here("arguments with ", current().text, " are not supported");
    if (current().type == TokenType::kName && ahead().type == TokenType::kSign && ahead().text == "=") {
      const std::string key = take().text;
      ++at_;
      const auto& named = arguments.named;
      if (std::any_of(named.begin(), named.end(), [&](const auto& one) { return one.first == key; })) {
        fail_here("the argument ", key, " is given twice");
      }
      arguments.named.emplace_back(key, expression());
      deepen(made, arguments.named.back().second);
    } else {
      if (!arguments.named.empty()) fail_here("a positional argument follows a keyword argument");
      arguments.positional.push_back(expression());
      deepen(made, arguments.positional.back());
    }
  }
  expect_sign(")");
}

ExpressionPtr ExpressionParser::call(ExpressionPtr callee) {
  ExpressionPtr made = single(ExpressionKind::kCall, std::move(callee));
  read_arguments(*made);
  return made;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr value) {
  ExpressionPtr made = single(ExpressionKind::kFilter, std::move(value), expect_name());
  if (is_sign("(")) read_arguments(*made);
  return made;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr value) {
  const bool negated = skip_name("not");
  ExpressionPtr made = single(ExpressionKind::kTest, std::move(value), expect_name());
  const TokenType type = current().type;
  const bool operand = type == TokenType::kName || type == TokenType::kText || type == TokenType::kInt ||
                       type == TokenType::kFloat || is_sign("[") || is_sign("{");
  if (is_sign("(")) {
    read_arguments(*made);
  } else if (operand && !is_any_name({"else", "or", "and"})) {
    if (is_name("is")) fail_here("consecutive `is` tests are not supported");
    made->arguments.positional.push_back(postfix(primary()));
    deepen(*made, made->arguments.positional.back());
  }
  return negated ? single(ExpressionKind::kUnary, std::move(made), "not") : std::move(made);
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr value) {
  for (;;) {
    if (skip_sign("|")) {
      value = filter(std::move(value));
    } else if (skip_name("is")) {
      value = test(std::move(value));
    } else if (is_sign("(")) {
      value = call(std::move(value));
    } else {
      return value;
    }
  }
}

}  // namespace mft::jinja
